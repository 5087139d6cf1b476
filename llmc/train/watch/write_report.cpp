#include "llmc/train/watch/write_report.h"

#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/files.h"
#include "llmc/base/json.h"
#include "llmc/train/serve/embedded.h"
#include "llmc/train/watch/watched_run.h"

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

int write_report(const std::string& run_dir, std::string file) {
    const std::filesystem::path path = std::filesystem::absolute(run_dir).lexically_normal();
    const bool bare = !path.has_filename();
    const std::string name = (bare ? path.parent_path() : path).filename().string();
    WatchedRun run(1, printable(name), "");
    run.whole = true;
    run.checkpoints.most = run.checkpoints.most_bytes = SIZE_MAX;
    read_run(run, run_dir);
    read_evals(run, run_dir);
    read_life(run, run_dir);
    CHECK_INPUT(!run.loading, "--report: run.dir '{}' has no metrics.jsonl; train first, or name another run "
                "by --run.dir=DIR", run_dir);
    run.history.train.leave_extremes(kMostRows, {"loss", "norm"});
    run.history.comm.leave_extremes(kMostRows, {"wait_ms", "device_wait_ms"});
    if (file.empty()) file = run_dir + "/report.html";
    SentRun nothing;
    const std::string data = "[" + without_tags(run_json(run, nothing)) + "]";
    std::string page(watch_page());
    const size_t at = page.find(kNoData);
    CHECK(at != page.npos, "the page has no place for data");
    page.replace(at, kNoData.size(), "id=\"data\">" + data + "<");
    write_file(file, page);
    print("wrote {}, {}\n", for_terminal(file), human_bytes(double(page.size())));
    return kExitDone;
}
