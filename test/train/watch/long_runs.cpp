// Long runs: sampled, thinned, and always true to their rows.
#include "test/watched_folder.h"

using namespace test;

// Every number of a page's columns is the row's of that step.
static void expect_true_rows(const KnownRuns& page, const std::string& run) {
    const json& train = page.runs.at(run)["train"];
    if (train.empty()) return;
    int before = 0;
    for (size_t i = 0; i < train["step"].size(); i++) {
        const int step = train["step"][i];
        EXPECT(step > before, "step %d after %d", step, before);
        before = step;
        const json row = json::parse(train_row(step));
        for (const char* key : {"loss", "norm", "lr", "tokens", "ms"})
            EXPECT(train[key][i] == row[key], "%s of step %d: %s, not %s", key, step,
                   train[key][i].dump().c_str(), row[key].dump().c_str());
    }
}

static double seconds_up_to(int step) {
    double ms = 0;
    for (int s = 1; s <= step; s++) ms += 10 + s % 3;
    return 1e-3 * ms;
}

TEST(a_long_file_is_sampled_evenly_and_truly) {
    constexpr int kSteps = 30000, kVal = 100;
    const std::string root = folder("long"), file = root + "/a/metrics.jsonl";
    std::string text = start_row();
    for (int step = 1; step <= kSteps; step++)
        text += (step == 12345 ? train_row(step, ",\"skipped\":true") : train_row(step)) +
                (step % kVal ? "" : val_row(step));
    write_text(file, text);
    WatchedFolder f(root);
    f.update();
    expect_true_rows(f.page, "a");
    const std::vector<int> steps = f.page.steps("a");
    EXPECT(steps.size() > 1000 && steps.size() < 3100, "%zu rows", steps.size());
    EXPECT(steps.front() == 1 && steps.back() == kSteps, "steps %d to %d", steps.front(), steps.back());
    int widest = 0;
    for (size_t i = 1; i < steps.size(); i++) widest = std::max(widest, steps[i] - steps[i - 1]);
    EXPECT(widest <= 32, "%d steps between two rows", widest);
    const json& marks = f.page.runs["a"]["marks"];
    EXPECT(marks.size() == 1 && marks[0]["step"] == 12345, "the skipped step: %s", marks.dump().c_str());
    EXPECT(f.page.steps("a", "val").size() == kSteps / kVal, "%zu val rows",
           f.page.steps("a", "val").size());
    EXPECT(f.page.runs["a"]["sampled"] == true, "sampled");
    for (const size_t i : {size_t(1), steps.size() / 2, steps.size() - 1})
        EXPECT_NEAR(f.page.runs["a"]["train"]["seconds"][i].get<double>(), seconds_up_to(steps[i]), 1e-6);
}

// What is there after a few reads, before the file is read to its end.
TEST(a_first_view_has_points_over_all_of_the_file) {
    const std::string root = folder("view"), file = root + "/a/metrics.jsonl";
    constexpr int kSteps = 20000;
    write_text(file, start_row() + train_rows(1, kSteps));
    WatchedRun run(1, "a", "a/");
    EXPECT(view_run(run, root), "no view of a long file");
    SentRun sent;
    KnownRuns page;
    page.apply_run(json::parse(run_json(run, sent)));
    expect_true_rows(page, "a");
    const std::vector<int> steps = page.steps("a");
    EXPECT(steps.size() > 250 && steps.back() == kSteps, "%zu rows, last %d", steps.size(), steps.back());
    for (size_t i = 1; i < steps.size(); i++)
        EXPECT(steps[i] - steps[i - 1] < 3 * kSteps / 300, "%d after %d", steps[i], steps[i - 1]);
    EXPECT(page.runs["a"]["start"]["params"] == 1000, "start row");
    EXPECT_NEAR(page.runs["a"]["train"]["seconds"].back().get<double>(), seconds_up_to(kSteps),
                0.02 * seconds_up_to(kSteps));
}

TEST(a_run_that_grows_for_long_stays_small_and_true) {
    const std::string root = folder("grows"), file = root + "/a/metrics.jsonl";
    write_text(file, start_row());
    WatchedFolder f(root);
    f.update();
    size_t most = 0;
    int step = 0;
    for (int look = 0; look < 400; look++) {
        const int rows = look % 50 == 7 ? 1000 : 20;        // now and then many at once
        append_text(file, train_rows(step + 1, step + rows));
        step += rows;
        f.update(false);
        const std::vector<int> steps = f.page.steps("a");
        EXPECT(!steps.empty() && steps.back() == step, "the last step is not there");
        most = std::max(most, steps.size());
    }
    expect_true_rows(f.page, "a");
    EXPECT(most <= 3072, "%zu rows", most);
    EXPECT(f.page.appends > 300 && f.page.resets < 20, "%d appends, %d resets", f.page.appends,
           f.page.resets);
    int widest = 0;
    const std::vector<int> steps = f.page.steps("a");
    for (size_t i = 1; i < steps.size(); i++) widest = std::max(widest, steps[i] - steps[i - 1]);
    EXPECT(steps.front() == 1 && widest <= 64, "from %d, %d steps between two rows", steps.front(), widest);
    // a page that comes later knows the same
    WatchedFolder late(root);
    KnownRuns other;
    PageFeed feed{f.watcher};
    std::string events;
    feed.append(events);
    other.apply(events);
    EXPECT(other.runs["a"]["train"] == f.page.runs["a"]["train"], "two pages differ");
}

// The reading of a long file is no pause for others.
TEST(runs_are_current_while_a_long_file_is_read) {
    const std::string root = folder("beside"), file = root + "/b/metrics.jsonl";
    constexpr int kSteps = 1000000;             // several parts
    const std::string rows = train_rows(1, kSteps / 10);
    write_text(root + "/a/metrics.jsonl", start_row());
    for (int copy = 0; copy < 10; copy++) append_text(root + "/a/metrics.jsonl", rows);
    write_text(file, start_row() + train_rows(1, 10));
    WatchedFolder f(root);
    f.watcher.look(true);                       // first views
    const std::shared_ptr<WatchedRun> a = f.watcher.find("a");
    int looks = 0;
    for (bool all = false; !all; looks++) {
        append_text(file, train_row(11 + looks));
        all = f.watcher.look(false);
        EXPECT(all != a->loading, "look %d has read %s", looks, all ? "too little" : "more than it says");
        f.take();
        EXPECT(f.page.steps("b").back() == 11 + looks, "step %d of %d", f.page.steps("b").back(), 11 + looks);
    }
    EXPECT(looks > 2, "a file of %zu bytes in %d looks", 10 * rows.size(), looks);
    EXPECT(a->history.train.seen == kSteps, "%zu rows", size_t(a->history.train.seen));
    EXPECT_NEAR(a->history.seconds, 10 * seconds_up_to(kSteps / 10), 1e-3);
    // replaced, and again between two parts
    write_text(root + "/a/metrics.jsonl", rows);
    for (int copy = 0; copy < 9; copy++) append_text(root + "/a/metrics.jsonl", rows);
    f.watcher.look(false);
    EXPECT(a->loading, "a replaced file is read at once");
    write_text(root + "/a/metrics.jsonl", start_row() + train_rows(1, 7));
    f.update();
    EXPECT(f.page.steps("a").size() == 7, "%zu rows of a new file", f.page.steps("a").size());
}

TEST(rows_of_some_steps_are_found_by_seeking) {
    const std::string root = folder("zoom"), file = root + "/a/metrics.jsonl";
    constexpr int kSteps = 20000;
    std::string text = start_row();
    for (int step = 1; step <= kSteps; step++) text += train_row(step) + (step % 7 ? "" : val_row(step));
    write_text(file, text);
    WatchedFolder f(root);
    f.update();
    WatchedRun& run = *f.watcher.find("a");
    for (const auto& [from, to, points] : {std::array{5000, 5099, 200}, {1, 3, 10}, {1, kSteps, 500},
                                           {kSteps - 9, 2 * kSteps, 50}, {700, 700, 1},
                                           {30000, 40000, 10}}) {
        KnownRuns page;
        page.runs["a"] = json::parse(rows_json(run, root, from, to, size_t(points)));
        expect_true_rows(page, "a");
        const std::vector<int> steps = page.steps("a");
        const int there = std::max(0, std::min(to, kSteps) - from + 1);
        EXPECT(int(steps.size()) <= points, "%zu of %d points", steps.size(), points);
        if (there <= points) EXPECT(int(steps.size()) == there, "%zu of %d rows", steps.size(), there);
        else EXPECT(int(steps.size()) > points / 2, "%zu of %d points", steps.size(), points);
        if (!steps.empty()) EXPECT(steps.front() >= from && steps.back() <= to, "steps beyond the range");
        if (there) EXPECT(steps.front() == from, "begins at %d, not %d", steps.front(), from);
        for (size_t i = 0; i < steps.size(); i++)
            EXPECT_NEAR(page.runs["a"]["train"]["seconds"][i].get<double>(), seconds_up_to(steps[i]), 1e-6);
    }
}

TEST(columns_beyond_the_limit_are_left_out) {
    const std::string root = folder("wide"), file = root + "/a/metrics.jsonl";
    std::string text;
    for (int step = 1; step <= 300; step++) text += train_row(step, fmt::format(",\"key_{}\":1", step));
    write_text(file, text);
    WatchedFolder f(root);
    f.update();
    EXPECT(f.page.steps("a").size() == 300 && f.page.runs["a"]["train"].size() <= 64, "%zu columns",
           f.page.runs["a"]["train"].size());
}
