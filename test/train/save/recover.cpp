// Recovery from a folder on an unreadable disk, rows kept in metrics.jsonl, and the run's state in a
// manifest.
#include "llmc/train/save/recover.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/train/save/run_state.h"
#include "test/saving.h"

namespace fs = std::filesystem;
using namespace test;

static std::string fresh_folder() {
    static int count = 0;
    const std::string dir = temporary_directory() + "/recover" + std::to_string(count++);
    fs::create_directories(dir);
    return dir;
}

// ---------------------------------------------------------------------------------------------------------
// errors of reading

// A disk whose n-th listing, look or read fails; `count` of them have come.
struct Unreadable { int at, code, count = 0; };
static Disk unreadable(Unreadable& u) {
    const Disk below = posix_disk();
    Disk d = below;
    const auto fails = [&u] { return u.count++ == u.at; };
    d.list = [=, &u](auto& path, auto* names) { return fails() ? u.code : below.list(path, names); };
    d.size = [=, &u](auto& path, auto* bytes) { return fails() ? u.code : below.size(path, bytes); };
    d.read = [=, &u](auto& path, void* to, size_t bytes, uint64_t at) -> ssize_t {
        return fails() ? -u.code : below.read(path, to, bytes, at);
    };
    return d;
}

static std::vector<std::string> names_of(const std::string& dir) {
    std::vector<std::string> names;
    posix_disk().list(dir, &names);
    return names;
}

// A disk with a passing error costs no checkpoint, and no run starts anew.
TEST(what_cannot_be_read_is_not_set_aside) {
    const std::string dir = fresh_folder();
    int64_t acknowledged = 0;
    run_to(posix_disk(), dir, 2, 3, &acknowledged);
    const auto before = names_of(dir);
    int points = 0;
    for (const int code : {EIO, EMFILE, ESTALE, EACCES}) {
        for (int at = 0;; at++) {
            Unreadable u{at, code};
            const Disk disk = unreadable(u);
            Recovery r;
            const Fatal e = fatal_of([&] { r = recover(disk, dir); });
            if (u.count <= at) break;
            points++;
            const bool said = e.code == kExitConfig && strstr(e.what(), strerror(code)) &&
                              strstr(e.what(), dir.c_str());
            const bool found = e.code == 0 && r.manifest && r.manifest->step == 3;      // read again
            EXPECT(said || found, "reading operation %d: code %d, '%s'", at, e.code, e.what());
            EXPECT(names_of(dir) == before, "reading operation %d: the folder has changed", at);
        }
    }
    EXPECT(points >= 40, "%d points", points);
    const Recovery r = recover(posix_disk(), dir);
    EXPECT(r.manifest && r.manifest->step == 3 && r.damaged.empty(), "step 3 is well");
}

// Recovery ends on a disk that fails while a damaged folder is set aside.
TEST(setting_aside_ends_where_nothing_can_be_read) {
    const std::string dir = fresh_folder();
    fs::create_directories(dir + "/step_5");
    Disk disk = posix_disk();
    disk.size = [size = disk.size](auto& path, auto* bytes) {
        return path.find(".damaged") != path.npos ? EIO : size(path, bytes);
    };
    const Fatal e = fatal_of([&] { (void)recover(disk, dir); });
    EXPECT(e.code == kExitConfig && fs::exists(dir + "/step_5"), "code %d, '%s'", e.code, e.what());
}

TEST(checkpoints_set_aside_are_remembered) {
    const std::string dir = fresh_folder();
    fs::create_directories(dir + "/step_5");
    for (int start = 0; start < 3; start++)
        EXPECT(recover(posix_disk(), dir).all_damaged, "start %d would begin anew", start);
    EXPECT(!recover(posix_disk(), dir + "/none").all_damaged, "a folder that is not there");
}

TEST(leftovers_of_saves_and_starts_go) {
    const std::string dir = fresh_folder();
    for (const char* name : {"step_5.tmp-1", "step_4.tmp-old", "step_3", "tmp-mine", "shared"})
        fs::create_directories(dir + "/" + name);
    for (const char* name : {"shared.tmp-17", "shared.tmp-17.17.tmp", "notes.tmp-1", "a.17.tmp",
                             "config.json.00c0ffee00c0ffee.tmp"})
        write_file(dir + "/" + name, "");
    remove_leftovers(posix_disk(), dir);
    const std::vector<std::string> left = {"a.17.tmp", "notes.tmp-1", "shared", "step_3", "tmp-mine"};
    EXPECT(names_of(dir) == left, "%zu names are left", names_of(dir).size());
    remove_leftovers(posix_disk(), dir + "/none");
}

TEST(names_that_look_like_leftovers_stay) {
    const std::string dir = fresh_folder();
    const std::vector<std::string> names = {"step_0012.tmp-1", "step_5.tmp-", "step_5.tmp-1x",
                                            "step_5x.tmp-1", "step_mine.tmp-1"};
    for (const std::string& name : names) fs::create_directories(dir + "/" + name);
    remove_leftovers(posix_disk(), dir);
    EXPECT(names_of(dir) == names, "%zu names are left", names_of(dir).size());
    for (const char* name : {"step_x.damaged", "step_007.damaged"}) fs::create_directories(dir + "/" + name);
    EXPECT(!recover(posix_disk(), dir).all_damaged, "no run has set these aside");
}

// Links at every level: their targets stay.
TEST(leftovers_go_and_targets_of_links_stay) {
    const std::string dir = fresh_folder(), others = fresh_folder(), outer = dir + "/step_5.tmp-1",
                      inner = outer + "/folder/deeper";
    write_file(others + "/file", "precious");
    fs::create_directories(inner);
    for (const std::string& in : {outer, outer + "/folder", inner}) {
        write_file(in + "/file", "");
        fs::create_symlink(others, in + "/link");
        fs::create_symlink(others + "/file", in + "/link_to_a_file");
        fs::create_symlink("loop", in + "/loop");
    }
    for (const char* name : {"/step_6.tmp-old", "/step_7.tmp-2", "/shared.tmp-1"})
        fs::create_symlink(name[6] == '7' ? "step_7.tmp-2" : others, dir + name);
    remove_leftovers(posix_disk(), dir);
    EXPECT(names_of(dir).empty(), "%zu names are left", names_of(dir).size());
    EXPECT(names_of(others) == std::vector<std::string>{"file"} && read_file(others + "/file") == "precious",
           "%zu names in the target", names_of(others).size());
}

// The path of the innermost folder is longer than a path may be.
TEST(leftovers_of_any_depth_go) {
    const std::string dir = fresh_folder(), top = dir + "/step_5.tmp-1";
    fs::create_directories(top + "/moved_1/x");
    int at = open(top.c_str(), O_RDONLY | O_DIRECTORY), depth = 0;
    for (; depth < 3000 && mkdirat(at, "deep", 0755) == 0; depth++) {
        const int next = openat(at, "deep", O_RDONLY | O_DIRECTORY);
        close(at);
        at = next;
    }
    close(at);
    EXPECT(depth == 3000, "%d folders", depth);
    remove_leftovers(posix_disk(), dir);
    EXPECT(names_of(dir).empty(), "it is still there");
}

// A name that is taken by a link is passed over, wherever the link leads.
TEST(setting_aside_passes_links) {
    const std::string dir = fresh_folder();
    fs::create_directories(dir + "/step_5");
    fs::create_symlink("nowhere", dir + "/step_5.damaged");
    fs::create_symlink("step_5.damaged-2", dir + "/step_5.damaged-2");
    EXPECT(recover(posix_disk(), dir).all_damaged && fs::is_directory(dir + "/step_5.damaged-3"),
           "set aside");
    EXPECT(fs::is_symlink(dir + "/step_5.damaged") && fs::is_symlink(dir + "/step_5.damaged-2"), "links");
}

// A link that takes the place of checkpoints.jsonl during a run leads nowhere.
TEST(no_acknowledgement_goes_through_a_link) {
    const std::string dir = fresh_folder(), other = fresh_folder() + "/other";
    write_file(other, "mine");
    fs::create_symlink(other, dir + "/checkpoints.jsonl");
    const std::string error = save(posix_disk(), dir, 3, 1, 1);
    EXPECT(error.find("checkpoints.jsonl") != error.npos && read_file(other) == "mine", "'%s', '%s'",
           error.c_str(), read_file(other).c_str());
}

// A file or a link named step_N moves aside when step N is saved.
TEST(a_stray_costs_no_checkpoint) {
    const std::string dir = fresh_folder();
    write_file(dir + "/step_3", "mine");
    fs::create_symlink("step_4", dir + "/step_4");
    EXPECT(!recover(posix_disk(), dir).all_damaged && names_of(dir).size() == 2, "a start leaves them");
    for (const int64_t step : {3, 4}) EXPECT(save(posix_disk(), dir, step, 1, 1) == "", "step %ld", step);
    EXPECT(recover(posix_disk(), dir).manifest->step == 4, "the last step");
    EXPECT(read_file(dir + "/step_3.damaged") == "mine" && fs::is_symlink(dir + "/step_4.damaged"), "strays");
}

// ---------------------------------------------------------------------------------------------------------
// metrics.jsonl

static std::string cut(const std::string& rows, int64_t step) {
    const std::string path = fresh_folder() + "/metrics.jsonl";
    write_file(path, rows);
    cut_metrics(posix_disk(), path, step);
    return read_file(path);
}

TEST(metrics_are_cut_back) {
    const auto row = [](const char* event, int step) {
        return fmt::format("{{\"event\":\"{}\",\"step\":{}}}\n", event, step);
    };
    const std::string start = "{\"event\":\"start\",\"params\":9}\n", one = row("train", 1),
                      val = row("val", 1), resume = row("resume", 1), two = row("train", 2),
                      done = row("done", 2);
    const std::string all = start + one + val + resume + two + done;
    EXPECT(cut(all, 2) == start + one + val + resume + two, "'%s'", cut(all, 2).c_str());
    EXPECT(cut(all, 1) == start + one + val + resume, "'%s'", cut(all, 1).c_str());
    EXPECT(cut(all, 0) == start, "'%s'", cut(all, 0).c_str());
    EXPECT(cut(all, -1).empty(), "a run that starts anew keeps '%s'", cut(all, -1).c_str());
    EXPECT(cut(start + one + two.substr(0, 20), 5) == start + one, "a line that is not whole stays");
    EXPECT(cut("", 3).empty(), "an empty file");
    cut_metrics(posix_disk(), fresh_folder() + "/none", 3);
}

// A run of 12 steps with a wrong step in one row resumes at step 8: rows 1 to 8 stay.
TEST(one_wrong_step_cuts_no_other_row) {
    for (int wrong = 1; wrong <= 12; wrong++)
        for (const long as : {99999L, 1L << 62, 0L}) {
            std::string rows = "{\"event\":\"start\",\"params\":9}\n", expected = rows;
            for (int step = 1; step <= 12; step++) {
                const long said = step == wrong ? as : step;
                const std::string train = fmt::format("{{\"event\":\"train\",\"step\":{}}}\n", said),
                                  val = fmt::format("{{\"event\":\"val\",\"step\":{}}}\n", step);
                rows += train + val;
                if (step <= 8) expected += train + val;
            }
            const std::string left = cut(rows, 8);
            EXPECT(left == expected, "step %d is %ld: '%s'", wrong, as, left.c_str());
        }
}

// Blocks of reading end within rows.
TEST(long_files_of_rows_are_cut_at_a_row) {
    std::string rows;
    size_t expected = 0;
    for (int step = 1; rows.size() < 5 << 20; step++) {
        rows += fmt::format("{{\"event\":\"sample\",\"step\":{},\"text\":\"", step) +
                std::string(size_t(step * 37 % 5000), 'x') + "\"}\n";
        if (step == 900) expected = rows.size();
    }
    const std::string left = cut(rows, 900);
    EXPECT(left == rows.substr(0, expected), "%zu bytes, expected %zu", left.size(), expected);
}

// ---------------------------------------------------------------------------------------------------------
// the state of a run

static bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

static bool same(const std::optional<Validation>& a, const std::optional<Validation>& b) {
    if (!a || !b) return !a && !b;
    return a->step == b->step && same(a->loss, b->loss) && bool(a->bits_per_byte) == bool(b->bits_per_byte) &&
           (!a->bits_per_byte || same(*a->bits_per_byte, *b->bits_per_byte));
}

static bool refused(const std::string& state) {
    try {
        (void)run_state_of(state);
    } catch (const std::runtime_error&) {
        return true;
    }
    return false;
}

TEST(a_run_state_comes_back) {
    const double nan = std::nan("");
    RunState s;
    s.step = 17, s.skipped = 2, s.evaluated = true, s.rollbacks = 3, s.trouble = {.first = 16, .above = 1};
    for (int i = 0; i < 300; i++) s.loss.score(1.0 / (i + 3)), s.norm.score(i == 7 ? nan : 0.1 * i);
    for (const auto& v : std::vector<std::optional<Validation>>{
             std::nullopt, Validation{3, 0.1, {}}, Validation{3, 1.0 / 3, 0.7}, Validation{5, nan, nan},
             Validation{5, nan, {}}}) {
        s.first = s.last = v;
        const RunState r = run_state_of(to_json(s));
        EXPECT(r.step == 17 && r.skipped == 2 && r.evaluated && !r.sampled, "%s", to_json(s).c_str());
        EXPECT(r.loss.values == s.loss.values && r.loss.next == s.loss.next &&
               r.norm.values == s.norm.values && r.norm.next == s.norm.next, "windows");
        EXPECT(r.rollbacks == 3 && r.trouble.first == 16 && r.trouble.above == 1, "trouble");
        EXPECT(same(r.first, v) && same(r.last, v), "%s", to_json(s).c_str());
    }
    s.sample = 136, s.seed = 7;
    const std::string text = to_json(s);
    const RunState r = run_state_of(text);
    EXPECT(r.sample == 136 && r.seed == 7 && text.find("\"loader\":{\"sample\":136}") != text.npos, "%s",
           text.c_str());
    std::string other = text;
    other.replace(other.find("philox"), 6, "mt1993");
    EXPECT(refused(other), "%s", other.c_str());
    s.last = Validation{5, INFINITY, {}};           // JSON has no infinity; the value stays not finite
    EXPECT(std::isnan(run_state_of(to_json(s)).last->loss), "%s", to_json(s).c_str());
    for (const char* bad : {"", "{}", "[]", "{\"step\":\"x\"}"}) EXPECT(refused(bad), "'%s'", bad);
    for (int64_t RunState::* count : {&RunState::step, &RunState::sample, &RunState::skipped}) {
        RunState negative = r;
        negative.*count = -1;
        EXPECT(refused(to_json(negative)), "%s", to_json(negative).c_str());
    }
}
