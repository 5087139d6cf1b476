#include "llmc/train/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/base/json.h"

namespace fs = std::filesystem;

static void sync_folder(const std::string& path) {
    const Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY));
    CHECK_INPUT(fd && fsync(fd.fd) == 0, "cannot sync the folder '%s': %s", path.c_str(), strerror(errno));
}

static void remove_folder(const std::string& path) {
    std::error_code error;
    fs::remove_all(path, error);
    CHECK_INPUT(!error, "cannot remove '%s': %s", path.c_str(), error.message().c_str());
}

NewFolder::NewFolder(const std::string& p) : path(p), temporary(p + ".incomplete") {
    remove_folder(temporary);
    make_directories(temporary);
}

NewFolder::~NewFolder() {
    std::error_code error;
    fs::remove_all(temporary, error);
}

void NewFolder::publish() const {
    sync_folder(temporary);
    remove_folder(path);    // the same step once more: a signal asked for it
    CHECK_INPUT(rename(temporary.c_str(), path.c_str()) == 0, "cannot rename '%s' to '%s': %s",
                temporary.c_str(), path.c_str(), strerror(errno));
    sync_folder(parent_directory(path));
}

static bool holds_checkpoint(const std::string& dir) {
    std::error_code error;
    for (const auto& e : fs::directory_iterator(dir, error))
        if (e.path().filename().string().starts_with("step_")) return true;
    return false;
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

void check_run_dir(const std::string& dir) {
    try_to_make(dir);
    CHECK_INPUT(!file_exists(dir + "/metrics.jsonl") && !holds_checkpoint(dir),
                "run.dir %s already holds a run, and this version cannot go on with one.\n"
                "       Name another folder (--run.dir=%s_2), or delete this one (rm -r %s).\n"
                "       --generate=TEXT writes text with the checkpoint in it.",
                dir.c_str(), dir.c_str(), dir.c_str());
    CHECK_INPUT(!file_exists(dir + "/config.json"),
                "run.dir %s holds a config.json, which the run's own would replace.\n"
                "       Name another folder (--run.dir=%s/run), or move the file.",
                dir.c_str(), dir.c_str());
}

void check_init(const std::string& dir) {
    CHECK_INPUT(file_exists(dir + "/model.safetensors") && file_exists(dir + "/config.json"),
                "model.init = '%s': there is no checkpoint (model.safetensors and config.json). Expected "
                "random, or a folder step_N that a run has saved", dir.c_str());
}

std::vector<int64_t> checkpoint_steps(const std::string& run_dir) {
    std::vector<int64_t> steps;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run_dir, error)) {
        const std::string name = entry.path().filename();
        int64_t step;
        if (!name.starts_with("step_")) continue;
        const auto [end, e] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
        if (e == std::errc() && end == name.data() + name.size()) steps.push_back(step);
    }
    std::sort(steps.begin(), steps.end());
    return steps;
}

std::string newest_checkpoint(const std::string& run_dir) {
    const auto steps = checkpoint_steps(run_dir);
    return steps.empty() ? "" : run_dir + "/step_" + std::to_string(steps.back());
}

void acknowledge_checkpoint(const std::string& run_dir, int64_t step, const std::string& dir) {
    const std::string path = run_dir + "/checkpoints.jsonl";
    const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    CHECK_INPUT(fd, "cannot open '%s': %s", path.c_str(), strerror(errno));
    const std::string line = "{\"step\":" + std::to_string(step) + ",\"dir\":" + json_string(dir) + "}\n";
    write_all(fd.fd, line.data(), line.size(), path);
    CHECK_INPUT(fsync(fd.fd) == 0, "cannot sync '%s': %s", path.c_str(), strerror(errno));
}

void prune_checkpoints(const CheckpointConfig& cfg, const std::string& run_dir) {
    const auto steps = checkpoint_steps(run_dir);
    if (cfg.keep_last == 0) return;
    for (size_t i = 0; i + size_t(cfg.keep_last) < steps.size(); i++)
        if (!cfg.keep_every || steps[i] % cfg.keep_every)
            remove_folder(run_dir + "/step_" + std::to_string(steps[i]));
}
