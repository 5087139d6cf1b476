#include "llmc/train/watch/write_report.h"

#include <filesystem>
#include <set>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/terminal.h"
#include "llmc/train/report/embedded.h"
#include "llmc/train/watch/watched_run.h"

inline namespace watch {

static constexpr size_t kMostRows = 2000;
static constexpr std::string_view kNoData = "id=\"data\">null<";     // of the live page

// No text of a run ends the script element that holds the data.
static std::string without_tags(const std::string& json) {
    std::string text;
    for (const char c : json) {
        if (c == '<') text += "\\u003c";
        else text += c;
    }
    return text;
}

// Two runs of one name are shown by their paths.
static std::string name_of(const std::string& folder, std::set<std::string>& names) {
    const std::string name = name_of_run(std::filesystem::absolute(folder).string());
    if (names.insert(name).second) return name;
    std::string longer = printable(std::filesystem::path(folder).lexically_normal().string());
    if (longer.ends_with('/')) longer.pop_back();
    CHECK_INPUT(names.insert(longer).second, "--report: {} is named twice", folder);
    return longer;
}

// The run as a JSON object; adds to `damaged` its lines that are no rows.
static std::string read_whole_run(uint64_t id, const std::string& name, const std::string& folder,
                                  uint64_t& damaged) {
    WatchedRun run(id, name, "");
    run.whole = true;
    read_run(run, folder);
    read_life(run, folder);
    CHECK_INPUT(!run.loading, "--report: run.dir '{}' has no metrics.jsonl; train first, or name another run "
                "by --run.dir=DIR", folder);
    CHECK_INPUT(run.history.train.rows() || run.history.val.rows(), "--report: {}/metrics.jsonl: no training "
                "or validation rows yet", folder);
    run.history.train.leave_extremes(kMostRows, "train");
    run.history.comm.leave_extremes(kMostRows, "comm");
    damaged += run.history.damaged;
    SentRun nothing;
    return without_tags(run_json(run, nothing));
}

int write_report(const std::vector<std::string>& folders, std::string file) {
    std::set<std::string> names;
    uint64_t id = 1, damaged = 0;
    const std::string data = json_list(folders, [&](const std::string& folder) {
        return read_whole_run(id++, name_of(folder, names), folder, damaged);
    });
    if (file.empty()) file = folders[0] + "/report.html";
    check_output("--report", file, "<!doctype html>");
    std::string page(watch_page());
    const size_t at = page.find(kNoData);
    CHECK(at != page.npos, "the page has no place for data");
    page.replace(at, kNoData.size(), "id=\"data\">" + data + "<");
    write_file(file, page);
    print("wrote {}, {}", for_terminal(file), human_bytes(double(page.size())));
    if (damaged) print("; {} left out", counted(int64_t(damaged), "damaged line"));
    print("\n");
    return kExitDone;
}

}  // namespace watch
