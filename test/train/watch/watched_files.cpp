// The reader of --watch: files that grow, are cut, replaced, deleted, damaged.
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "test/watched_folder.h"

using namespace test;
namespace fs = std::filesystem;

static std::vector<int> counted_to(int last) {
    std::vector<int> steps;
    for (int s = 1; s <= last; s++) steps.push_back(s);
    return steps;
}

TEST(rows_that_come_in_spans_are_read_once) {
    const std::string root = folder("spans"), file = root + "/a/metrics.jsonl";
    std::string text = start_row();
    for (int step = 1; step <= 200; step++) text += train_row(step) + (step % 20 ? "" : val_row(step));
    write_text(file, "");
    WatchedFolder f(root);
    for (size_t at = 0, n = 0; at < text.size(); n++) {
        const size_t bytes = 1 + philox(5, 0, n).x[0] % 700;
        append_text(file, text.substr(at, bytes));
        at += bytes;
        f.update();
    }
    EXPECT(f.page.steps("a") == counted_to(200), "%zu train rows", f.page.steps("a").size());
    EXPECT(f.page.steps("a", "val").size() == 10, "%zu val rows", f.page.steps("a", "val").size());
    EXPECT(f.page.appends > 50 && f.page.resets < 5, "%d appends, %d resets", f.page.appends, f.page.resets);
    const json& run = f.page.runs["a"];
    EXPECT(run["sampled"] == false && run["start"]["params"] == 1000, "run object");
    double seconds = 0;
    for (int step = 1; step <= 200; step++) {
        seconds += 1e-3 * (10 + step % 3);
        EXPECT_NEAR(run["train"]["seconds"][size_t(step - 1)].get<double>(), seconds, 1e-9);
    }
}

// A resume cuts the file within a row's reach of the reader and appends other rows.
TEST(a_file_that_was_cut_or_replaced_is_read_anew) {
    const std::string root = folder("cut"), file = root + "/a/metrics.jsonl";
    write_text(file, start_row() + train_rows(1, 100));
    WatchedFolder f(root);
    f.update();
    EXPECT(f.page.steps("a") == counted_to(100), "%zu rows", f.page.steps("a").size());
    const auto cut = (start_row() + train_rows(1, 40)).size();
    EXPECT(truncate(file.c_str(), off_t(cut + 20)) == 0, "truncate");
    f.update();
    EXPECT(f.page.steps("a") == counted_to(40), "cut: %zu rows", f.page.steps("a").size());
    // cut and grown past the reader between two looks, by rows with other times
    EXPECT(truncate(file.c_str(), off_t(cut)) == 0, "truncate");
    append_text(file, "{\"event\":\"resume\",\"step\":40,\"params\":1000}\n");
    for (int step = 41; step <= 150; step++) append_text(file, train_row(step, ",\"x\":1"));
    f.update();
    EXPECT(f.page.steps("a") == counted_to(150), "grown: %zu rows", f.page.steps("a").size());
    EXPECT(f.page.runs["a"]["marks"].size() == 1 && f.page.runs["a"]["marks"][0]["kind"] == "restart" &&
           f.page.runs["a"]["marks"][0]["step"] == 40, "%s", f.page.runs["a"]["marks"].dump().c_str());
    write_text(file + ".new", start_row() + train_rows(1, 300));
    fs::rename(file + ".new", file);
    f.update();
    EXPECT(f.page.steps("a") == counted_to(300), "replaced: %zu rows", f.page.steps("a").size());
}

// Between two looks the file is cut and grows to the very size that it had.
TEST(a_file_of_the_same_size_with_other_rows_is_read_anew) {
    const std::string root = folder("same_size"), file = root + "/a/metrics.jsonl";
    std::string rows = train_rows(1, 50);
    write_text(file, rows);
    WatchedFolder f(root);
    f.update();
    const std::string from = "\"lr\":0.001", to = "\"lr\":0.002";
    for (size_t at = 0; (at = rows.find(from, at)) != rows.npos;) rows.replace(at, from.size(), to);
    std::fstream(file, std::ios::in | std::ios::out) << rows;
    fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(2));
    append_text(file, train_row(51));
    f.update();
    EXPECT(f.page.runs["a"]["train"]["lr"][0] == 0.002 && f.page.steps("a").size() == 51, "%s",
           f.page.runs["a"]["train"]["lr"][0].dump().c_str());
}

TEST(runs_come_and_go) {
    const std::string root = folder("come");
    fs::create_directories(root);
    WatchedFolder f(root);
    f.update();
    EXPECT(f.page.runs.empty() && f.page.folder["watching"] == 0, "%s", f.page.folder.dump().c_str());
    for (const char* run : {"a", "deep/er/b", "step_size"})
        write_text(root + "/" + run + "/metrics.jsonl", train_rows(1, 5));
    for (const char* none : {"a/step_5", ".hidden"})
        write_text(root + "/" + none + "/metrics.jsonl", train_rows(1, 5));
    write_text(root + "/metrics.jsonl", train_rows(1, 7));
    f.update();
    EXPECT(f.page.runs.size() == 4, "%zu runs", f.page.runs.size());
    EXPECT(f.page.steps(".").size() == 7 && f.page.steps("deep/er/b").size() == 5 &&
           f.page.steps("step_size").size() == 5, "rows");
    fs::remove_all(root + "/a");
    f.update(false);
    EXPECT(!f.page.runs.contains("a"), "a deleted run is still there");
    write_text(root + "/a/metrics.jsonl", train_rows(1, 3));      // by the same name, at once
    f.update();
    EXPECT(f.page.steps("a").size() == 3, "%zu rows", f.page.steps("a").size());
    fs::remove_all(root);
    f.update();
    EXPECT(f.page.runs.empty(), "%zu runs", f.page.runs.size());
}

TEST(damaged_lines_cost_themselves_alone) {
    const std::string root = folder("damaged"), file = root + "/a/metrics.jsonl";
    const std::string garbage[] = {
        "garbage\n", "\n", "{}\n", "[1,2]\n", "{\"event\":\"train\",\"step\":\n", "{\"event\":5}\n",
        "{\"event\":\"train\",\"step\":1e999}\n", "{\"event\":\"train\",\"loss\":2.5}\n",
        std::string("\0\0\0\n", 4), "\xff\xfe\n",
        "{\"event\":\"sample\",\"step\":2,\"text\":\"" + std::string(3 << 20, 'x') + "\"}\n",
        std::string(5000, '[') + "\n", "{\"event\":\"task\",\"step\":3}\n", "{\"event\":\"health\"\n",
        "{\"event\":\"sample\",\"step\":4,\"text\":\"\\u0000\\u001b</script>\"}\n"};
    write_text(file, train_row(1));
    WatchedFolder f(root);
    f.update();
    int step = 1;
    for (const std::string& line : garbage) {
        append_text(file, line + train_row(++step));
        f.update();
    }
    EXPECT(f.page.steps("a") == counted_to(step), "%zu of %d rows", f.page.steps("a").size(), step);
    WatchedFolder again(root);
    again.update();
    EXPECT(again.page.steps("a") == counted_to(step), "%zu of %d rows at once",
           again.page.steps("a").size(), step);
    const json samples = again.page.runs["a"]["samples"];
    EXPECT(samples.size() == 1 && samples[0]["step"] == 4, "%s", samples.dump().substr(0, 200).c_str());
}

TEST(names_are_text) {
    const std::string root = folder("names");
    const std::string names[] = {"<img src=x onerror=1>", "a\"b\\c", "new\nline", "\xff\xfe", "%2e%2e",
                                 "event: gone", "\xc3\xa9"};
    for (const std::string& name : names) write_text(root + "/" + name + "/metrics.jsonl", train_rows(1, 3));
    WatchedFolder f(root);
    f.update();
    EXPECT(f.page.runs.size() == std::size(names), "%zu runs", f.page.runs.size());
    for (const char* name : {"<img src=x onerror=1>", "a\"b\\c", "%2e%2e", "event: gone", "\xc3\xa9"})
        EXPECT(f.page.steps(name).size() == 3, "no run '%s'", name);
}

// Bytes that no page can show have codes: every run has a name of its own, which stays.
TEST(names_of_invalid_text_are_all_shown) {
    const std::string root = folder("invalid_names");
    const std::set<std::string> paths = {"\xff", "\xfe", "\xff\xff", "a\x01", "a\x02", "a\uFFFD", "\uFFFDff",
                                    "\uFFFD\xff", "\u00e9\xff", "\u00e9", "a b"};
    for (const std::string& path : paths) write_text(root + "/" + path + "/metrics.jsonl", train_rows(1, 3));
    WatchedFolder f(root);
    f.update();
    std::set<std::string> shown;
    for (const auto& [name, found] : find_runs(root)) {
        shown.insert(found.substr(0, found.size() - 1));
        EXPECT(f.page.steps(name).size() == 3, "%s", name.c_str());
    }
    EXPECT(shown == paths, "%zu of %zu are shown", shown.size(), paths.size());
    EXPECT(find_runs(root).contains("\u00e9") && find_runs(root).contains("\uFFFDff\uFFFDff"), "names");
}

TEST(links_out_of_the_folder_are_not_followed) {
    const std::string root = folder("links"), outside = folder("outside");
    write_text(outside + "/metrics.jsonl", train_rows(1, 9));
    write_text(root + "/a/metrics.jsonl", train_rows(1, 3));
    fs::create_directory_symlink(outside, root + "/b");
    fs::create_directories(root + "/c");
    fs::create_symlink(outside + "/metrics.jsonl", root + "/c/metrics.jsonl");
    fs::create_symlink(outside + "/metrics.jsonl", root + "/a/config.json");
    fs::create_symlink(outside + "/metrics.jsonl", root + "/a/checkpoints.jsonl");
    EXPECT(mkdir((root + "/d").c_str(), 0777) == 0 &&
           mkfifo((root + "/d/metrics.jsonl").c_str(), 0666) == 0, "a pipe");
    WatchedFolder f(root);
    f.update();
    EXPECT(f.page.runs.size() == 1 && f.page.steps("a").size() == 3, "%zu runs", f.page.runs.size());
    EXPECT(f.page.runs["a"]["config"].is_null() && f.page.runs["a"]["marks"].empty(), "files by links");
    // a folder that becomes a link after it was found
    EXPECT(bool(open_below(root, "a/metrics.jsonl")), "a file of the run");
    fs::rename(root + "/a", root + "/was");
    fs::create_directory_symlink(outside, root + "/a");
    for (const char* path : {"a/metrics.jsonl", "c/metrics.jsonl", "../outside/metrics.jsonl",
                             "d/metrics.jsonl", "b/metrics.jsonl"})
        EXPECT(!open_below(root, path), "%s is opened", path);
    EXPECT(!open_below(root, outside + "/metrics.jsonl"), "an absolute path is opened");
    // the folder itself may be a link
    fs::create_directory_symlink(root, folder("link_to_root"));
    WatchedFolder g(folder("link_to_root"));
    g.update();
    EXPECT(g.page.steps("was").size() == 3 && g.page.runs.size() == 1, "%zu runs", g.page.runs.size());
}

// Scores of --evaluate, in any order of steps; a file that is cut is read anew. Without rows nothing is sent.
TEST(scores_of_an_evaluation_are_sent) {
    const std::string root = folder("evals"), file = root + "/a/evals.jsonl";
    write_text(root + "/a/metrics.jsonl", start_row() + train_rows(1, 5));
    WatchedFolder f(root);
    f.update();
    EXPECT(f.page.runs["a"]["tasks"].empty(), "%s", f.page.runs["a"]["tasks"].dump().c_str());
    const auto row = [](int step, double accuracy) {
        const std::string text = R"({{"step":{},"task":"piqa","documents":20,"accuracy":{}}})";
        return fmt::format(fmt::runtime(text), step, accuracy) + "\n";
    };
    write_text(file, row(5, 0.5) + "no row\n" + row(2, 0.25));
    f.update();
    EXPECT(f.page.runs["a"]["tasks"]["piqa"]["accuracy"] == json({0.5, 0.25}) &&
           f.page.runs["a"]["tasks"]["piqa"]["step"] == json({5, 2}), "%s",
           f.page.runs["a"]["tasks"].dump().c_str());
    write_text(file, row(4, 0.75));
    f.update();
    EXPECT(f.page.runs["a"]["tasks"]["piqa"]["accuracy"] == json({0.75}), "%s",
           f.page.runs["a"]["tasks"].dump().c_str());
}

TEST(other_rows_are_shown) {
    const std::string root = folder("others"), file = root + "/a/metrics.jsonl";
    write_text(root + "/a/config.json", "{\n \"train\": {\"steps\": 10}\n}\n");
    write_text(root + "/a/checkpoints.jsonl", "{\"step\":5,\"dir\":\"a/step_5\"}\n");
    write_text(file, start_row() + train_rows(1, 5) + train_row(6, ",\"skipped\":true") +
               "{\"event\":\"train\",\"step\":7,\"loss\":null,\"norm\":null,\"ms\":10,\"skipped\":true}\n" +
               "{\"event\":\"task\",\"step\":7,\"task\":\"piqa\",\"accuracy\":0.5,\"documents\":20}\n" +
               "{\"event\":\"sample\",\"step\":7,\"text\":\"Once <b>\"}\n" +
               "{\"event\":\"comm\",\"step\":7,\"bytes\":100,\"axis\":{\"dp\":{\"wait_ms\":2.5}}}\n" +
               "{\"event\":\"health\",\"step\":7,\"layers\":[{\"rms\":1}]}\n" +
               "{\"event\":\"spike\",\"step\":7,\"of\":\"norm\",\"value\":14.25,\"z\":8.06,"
               "\"first\":\"h.3.<fcw>\",\"first_z\":9.7,\"first_step\":6}\n"
               "{\"event\":\"rollback\",\"step\":9,\"to\":7,\"skipped\":22}\n"
               "{\"event\":\"memory\",\"step\":7,\"peak_bytes\":4000}\n");
    WatchedFolder f(root);
    f.update();
    const auto used = [&] { return f.page.runs["a"]["memory"]["peak_bytes"].back(); };
    EXPECT(used() == 4000, "%s", f.page.runs["a"]["memory"].dump().c_str());
    append_text(file, "{\"event\":\"done\",\"step\":7,\"peak_bytes\":5000}\n");
    f.update();
    json run = f.page.runs["a"];
    EXPECT(run["state"] == "done" && used() == 5000, "%s",
           run["state"].dump().c_str());
    EXPECT(run["config"]["train"]["steps"] == 10, "config");
    EXPECT(run["tasks"]["piqa"]["accuracy"][0] == 0.5 && run["tasks"]["piqa"]["documents"][0] == 20, "task");
    EXPECT(run["samples"][0]["text"] == "Once <b>", "sample");
    EXPECT(run["comm"]["axis.dp.wait_ms"][0] == 2.5, "comm");
    EXPECT(run["health"][0]["layers"][0]["rms"] == 1, "health");
    EXPECT(run["train"]["loss"][6].is_null() && run["train"]["skipped"][6] == 1 &&
           run["train"]["skipped"][0].is_null(), "columns of a skipped step");
    std::map<std::string, int> marks;
    std::string spike, rollback;
    for (const json& mark : run["marks"]) {
        marks[mark["kind"]]++;
        if (mark["kind"] == "spike" && mark["step"] == 7) spike = mark["text"];
        if (mark["kind"] == "rollback" && mark["step"] == 9) rollback = mark["text"];
    }
    EXPECT(marks["skipped"] == 2 && marks["checkpoint"] == 1 && marks["spike"] == 1, "%s",
           run["marks"].dump().c_str());
    EXPECT(spike == "spike: norm 14.25, z 8.1; first moved: h.3.<fcw> (z 9.7 at step 6)", "%s",
           spike.c_str());
    EXPECT(rollback == "rollback from step 9 to step 7, 22 steps of data left out", "%s", rollback.c_str());
    // the run goes on: no more done
    append_text(file, "{\"event\":\"resume\",\"step\":7,\"params\":1000}\n" + train_row(8));
    f.update();
    run = f.page.runs["a"];
    EXPECT(run["state"] == "training" && run["start"]["event"] == "resume", "%s",
           run["state"].dump().c_str());
}

TEST(ranks_are_read_while_their_files_are_fresh) {
    const std::string root = folder("ranks"), file = root + "/a/ranks/0.json";
    write_text(root + "/a/metrics.jsonl", train_rows(1, 5));
    const auto rank = [](int r, const char* doing, const char* collective) {
        return fmt::format("{{\"event\":\"rank\",\"rank\":{},\"host\":\"<n1>\",\"dp\":{},\"pp\":0,\"tp\":0,"
                           "\"doing\":\"{}\",\"step\":5,\"collective\":\"{}\",\"seconds\":40}}\n",
                           r, r, doing, collective);
    };
    write_text(file, rank(0, "train", "all_gather tp") + rank(1, "save", ""));
    write_text(root + "/a/ranks/2.json", rank(2, "train", "") + "{\"event\":\"rank\",\"ra");
    write_text(root + "/a/ranks/3.json", rank(3, "train", ""));
    fs::last_write_time(root + "/a/ranks/2.json", fs::file_time_type::clock::now() - std::chrono::seconds(8));
    fs::last_write_time(root + "/a/ranks/3.json", fs::file_time_type::clock::now() - std::chrono::hours(1));
    WatchedFolder f(root);
    f.update();
    json ranks = f.page.runs["a"]["ranks"];
    EXPECT(ranks.size() == 3 && ranks[0]["collective"] == "all_gather tp" && ranks[1]["doing"] == "save" &&
           ranks[2]["rank"] == 2 && ranks[2]["host"] == "<n1>" && ranks[1]["place"]["dp"] == 1, "%s",
           ranks.dump().c_str());
    EXPECT(ranks[0]["seconds"] >= 40 && ranks[0]["seconds"] < 100, "%s", ranks[0].dump().c_str());
    EXPECT_NEAR(ranks[2]["seconds"].get<double>() - ranks[2]["age"].get<double>(), 40, 0.11);
    EXPECT(ranks[2]["age"] >= 7 && ranks[2]["age"] < 60, "%s", ranks[2].dump().c_str());
    write_text(file, rank(0, "evaluate", "") + rank(1, "save", ""));
    f.update();
    EXPECT(f.page.runs["a"]["ranks"][0]["doing"] == "evaluate", "ranks do not change");
    fs::remove_all(root + "/a/ranks");
    f.update();
    EXPECT(f.page.runs["a"]["ranks"].is_null(), "ranks of a run that has ended");
}
