#include "llmc/train/resume.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/train/recover.h"
#include "llmc/train/save.h"
#include "llmc/train/settings_diff.h"
#include "llmc/train/votes.h"

// Rank 0's text, on every rank.
static std::string from_rank_0(const Axis& world, const std::string& mine) {
    int64_t size = int64_t(mine.size());
    world.broadcast(&size, 1, 0);
    std::string text = mine;
    text.resize(size_t(size));
    world.broadcast(text.data(), text.size(), 0);
    return text;
}

// A file that rank 0 has made has to be there for all.
static void check_shared(const std::string& run_dir, const Axis& world) {
    if (world.size == 1) return;
    std::string name;
    if (world.index == 0) {
        make_directories(run_dir);
        name = run_dir + "/" + kSharedProbe + std::to_string(getpid());
        write_file(name, "");
    }
    name = from_rank_0(world, name);
    const bool seen = file_exists(name);
    const double missing = sum_over<1>(world, {double(!seen)})[0];
    if (world.index == 0) (void)unlink(name.c_str());
    CHECK_INPUT(missing == 0, "run.dir %s is not the same folder on all hosts: %.0f of %d ranks do not see a "
                "file that rank 0 has made there. Put it on a file system that they share", run_dir.c_str(),
                missing, world.size);
}

Origin open_init(const std::string& init) {
    CHECK_INPUT(file_exists(init + "/" + kManifest), "model.init = '%s': there is no checkpoint (%s). "
                "Expected random, hf:DIR, llmc:FILE, or a folder step_N that a run has saved", init.c_str(),
                kManifest);
    return open_checkpoint(init);
}

Origin open_checkpoint(const std::string& folder) {
    Verified v = verify_checkpoint(posix_disk(), folder, Check::Sizes);
    CHECK_INPUT(v.manifest, "'%s': there is no checkpoint: %s. Expected a folder step_N that a run has saved",
                folder.c_str(), v.problem.c_str());
    return {folder, std::move(*v.manifest)};
}

std::string newest_checkpoint(const std::string& run_dir) {
    const std::vector<int64_t> steps = saved_steps(posix_disk(), run_dir);
    return steps.empty() ? "" : run_dir + "/step_" + std::to_string(steps.back());
}

// Of run.dir, by rank 0: the folder; empty: there is nothing to go on from.
static std::string newest_verified(const std::string& run_dir) {
    const Recovery r = recover(posix_disk(), run_dir);
    for (const std::string& line : r.damaged)
        fprintf(stderr, "warning: damaged checkpoint: %s\n", line.c_str());
    if (r.hopeless)
        fatal(kExitCheckpoint, __FILE__, __LINE__, "run.dir %s had checkpoints, and none is left that "
              "verifies. Nothing is overwritten.\n       Bring one back (step_N of a backup), go on "
              "from another (--checkpoint.resume=FOLDER),\n       or start anew in another run.dir",
              run_dir.c_str());
    return r.folder;
}

std::optional<Origin> find_origin(const Config& cfg, const Axis& world) {
    check_shared(cfg.run.dir, world);
    const std::string& how = cfg.checkpoint.resume;
    std::string folder;
    if (how == "never") return std::nullopt;
    if (world.index == 0 && how == "auto") folder = newest_verified(cfg.run.dir);
    if (world.index == 0 && how != "auto") {
        const Verified v = verify_checkpoint(posix_disk(), how);
        if (!v.manifest)
            fatal(kExitCheckpoint, __FILE__, __LINE__, "checkpoint.resume = '%s': %s", how.c_str(),
                  v.problem.c_str());
        folder = how;
    }
    folder = from_rank_0(world, folder);
    if (folder.empty()) return std::nullopt;
    return open_checkpoint(folder);
}

void check_settings(const Config& cfg, const Origin& origin, bool prints) {
    const SettingsDiff diff = settings_diff(parse_config(origin.manifest.config, origin.folder), cfg);
    if (prints && !diff.table.empty()) {
        printf("settings that differ from those of %s\n%s\n", origin.folder.c_str(), diff.table.c_str());
        fflush(stdout);
    }
    CHECK_INPUT(diff.refused.empty(), "%s: these settings change what the run computes; set them back, or "
                "allow it:\n       --checkpoint.override='[%s]'", origin.folder.c_str(),
                diff.refused.c_str());
}
