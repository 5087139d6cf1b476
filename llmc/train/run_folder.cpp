#include "llmc/train/run_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/files.h"

namespace fs = std::filesystem;

static bool holds_checkpoint(const std::string& dir) {
    std::error_code error;
    for (const auto& e : fs::directory_iterator(dir, error))
        if (e.path().filename().string().starts_with("step_")) return true;
    return file_exists(dir + "/checkpoints.jsonl");
}

// Makes the folder, to see that it can be, and removes what was made.
static void try_to_make(const std::string& dir) {
    std::vector<fs::path> made;
    std::error_code error, ignored;
    for (fs::path p = dir; !p.empty() && !fs::exists(p, ignored); p = p.parent_path()) made.push_back(p);
    fs::create_directories(dir, error);
    if (!error && !fs::is_directory(dir, ignored)) error = std::make_error_code(std::errc::not_a_directory);
    const bool writable = access(dir.c_str(), W_OK | X_OK) == 0;
    const std::string why = strerror(errno);
    for (const fs::path& p : made) fs::remove(p, ignored);
    CHECK_INPUT(!error, "cannot make run.dir %s: %s", dir.c_str(), error.message().c_str());
    CHECK_INPUT(writable, "cannot write to run.dir %s: %s", dir.c_str(), why.c_str());
}

void check_run_dir(const Config& cfg) {
    const std::string& dir = cfg.run.dir;
    const char* d = dir.c_str();
    try_to_make(dir);
    const bool run = file_exists(dir + "/metrics.jsonl"), saved = holds_checkpoint(dir);
    CHECK_INPUT(cfg.checkpoint.resume != "never" || (!run && !saved),
                "run.dir %s already holds a run, and checkpoint.resume = never.\n"
                "       Go on with it (--checkpoint.resume=auto), name another folder (--run.dir=%s_2), or "
                "delete this one (rm -r %s)", d, d, d);
    const bool finished = run && !saved &&
                          read_file(dir + "/metrics.jsonl").find("{\"event\":\"done\"") != std::string::npos;
    CHECK_INPUT(!finished || (cfg.checkpoint.resume != "auto" && cfg.checkpoint.resume != "never"),
                "run.dir %s already holds a run, finished, without a checkpoint to go on from.\n"
                "       Name another folder (--run.dir=%s_2), or delete this one (rm -r %s)", d, d, d);
    CHECK_INPUT(run || saved || !file_exists(dir + "/config.json"),
                "run.dir %s holds a config.json, which the run's own would replace.\n"
                "       Name another folder (--run.dir=%s/run), or move the file.", d, d);
}
