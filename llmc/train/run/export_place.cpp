#include "llmc/train/run/export_place.h"

#include <algorithm>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/save/formats/formats.h"
#include "llmc/train/save/recover.h"

inline namespace runs {

namespace fs = std::filesystem;

static constexpr const char* kOfRun[] = {"config.json", "metrics.jsonl", "checkpoints.jsonl", "kernels.txt"};

static bool is_name_of_run(const std::string& name) {
    return std::find(std::begin(kOfRun), std::end(kOfRun), name) != std::end(kOfRun) ||
           name.starts_with("step_") || name.starts_with(kSharedProbe) || name.find("lock") != name.npos;
}

// The path without links and "..", as far as it is there.
static fs::path resolved(const fs::path& path) {
    std::error_code error;
    const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
    return error ? path : whole;
}

static bool same(const fs::path& a, const fs::path& b) {
    std::error_code error;
    return fs::equivalent(a, b, error) || resolved(a) == resolved(b);
}

// A file, or the files of a folder.
static void add_files(std::vector<fs::path>& files, const fs::path& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return files.push_back(path);
    for (const auto& entry : fs::directory_iterator(path, error))
        if (!entry.is_directory(error)) files.push_back(entry.path());
}

static std::vector<fs::path> files_to_keep(const Config& cfg, const std::string& config_path) {
    std::vector<fs::path> files = {config_path};
    for (const char* name : kOfRun) files.push_back(fs::path(cfg.run.dir) / name);
    if (!starts_random(cfg.model.init))
        add_files(files, is_foreign(cfg.model.init) ? path_of(cfg.model.init) : cfg.model.init);
    if (!cfg.data.tokenizer.empty()) add_files(files, cfg.data.tokenizer);
    for (const auto* corpora : {&cfg.data.train, &cfg.data.val})
        for (const Corpus& c : *corpora)
            for (const std::string& path : glob_files(c.path)) files.push_back(path);
    return files;
}

// Of run.dir, which may be links to folders elsewhere.
static std::vector<fs::path> checkpoints_of(const std::string& run_dir) {
    std::vector<fs::path> folders;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run_dir, error))
        if (entry.path().filename().string().starts_with("step_")) folders.push_back(entry.path());
    return folders;
}

// The folder of the run or checkpoint around the file; empty: no run is there. A folder with rows or
// checkpoints belongs to a run.
static fs::path run_with(const fs::path& file, const std::string& run_dir,
                         const std::vector<fs::path>& checkpoints) {
    const auto is_run = [&](const fs::path& folder) {
        return file_exists(folder / "metrics.jsonl") || file_exists(folder / "checkpoints.jsonl") ||
               same(folder, run_dir);
    };
    if (file_exists(file.parent_path() / kManifest)) return file.parent_path();
    for (fs::path p = file; p.has_relative_path(); p = p.parent_path()) {
        if (is_name_of_run(p.filename()) && is_run(p.parent_path())) return p.parent_path();
        for (const fs::path& folder : checkpoints)
            if (same(p, folder)) return folder;
    }
    return {};
}

void check_export_place(const std::string& to, const Config& cfg, const std::string& config_path) {
    const std::vector<fs::path> kept = files_to_keep(cfg, config_path);
    const std::vector<fs::path> checkpoints = checkpoints_of(cfg.run.dir);
    for (const std::string& name : files_of_export(to)) {
        const fs::path target = name, by_name = resolved(target.parent_path()) / target.filename();
        for (const fs::path& file : kept)
            CHECK_INPUT(!same(target, file) && by_name != resolved(file), "--export={}: {} is read by this "
                        "command or written by the run, and would be replaced. Name another place",
                        to, file.string());
        for (const fs::path& path : {by_name, resolved(target)}) {
            const fs::path run = run_with(path, cfg.run.dir, checkpoints);
            CHECK_INPUT(run.empty(), "--export={}: {} would be a file of the run or checkpoint in {}. Name "
                        "another place, or a new folder in it, such as {}/export", to, name,
                        run.string(), cfg.run.dir);
        }
    }
}

}  // namespace runs
