#include "llmc/train/save/resume.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/votes.h"
#include "llmc/model/layout.h"
#include "llmc/train/save/formats/formats.h"
#include "llmc/train/save/recover.h"
#include "llmc/train/save/run_folder.h"
#include "llmc/train/save/save.h"
#include "llmc/train/save/settings_diff.h"

inline namespace saves {

// Rank 0's text, on every rank.
static std::string from_rank_0(const Axis& world, const std::string& mine) {
    std::string text = mine;
    take_from_rank_0(world, text);
    return text;
}

static std::string folder_of(const std::string& run_dir, int64_t step) {
    return SavePlace{.run_dir = run_dir, .step = step, .attempt = 0}.folder();
}

// The probably intended value, for a message; empty: unknown.
static std::string meant_by(const std::string& init) {
    if (const std::string meant = meant_import(init); !meant.empty()) return meant;
    const std::vector<int64_t> steps = saved_steps(posix_disk(), init);
    return steps.empty() ? "" : folder_of(init, steps.back());
}

void check_init(const std::string& init) {
    if (starts_random(init)) return;
    if (is_foreign(init)) return void(open_foreign(init));
    const std::string meant = meant_by(init);
    CHECK_INPUT(file_exists(init + "/" + kManifest), "model.init = '{}': there is no checkpoint ({}). "
                "Expected random, {}, or a folder step_N that a run has saved{}{}{}",
                init, kManifest, list_of_formats(", "),
                meant.empty() ? "" : ".\n       Did you mean ", meant, meant.empty() ? "" : "?");
}

static Manifest verified_init(const Disk& disk, const std::string& init, Check check) {
    Verified v = verify_checkpoint(disk, init, check);
    if (!v.manifest)
        fatal(kExitCheckpoint, __FILE__, __LINE__, "model.init = '{}': the checkpoint is damaged: {}", init,
              v.problem);
    return std::move(*v.manifest);
}

// The first contradiction between the settings of a checkpoint and its tensors; empty: no contradiction.
static std::string wrong_tensors(const ModelConfig& model, const Manifest& m) {
    const std::string wrong = wrong_shape(model, {});
    if (!wrong.empty()) return wrong;
    std::map<std::string, const std::vector<int64_t>*> saved;
    for (const SavedPiece& p : m.pieces) saved[p.tensor] = &p.shape;
    const auto tensors = whole_tensors(make_dims(model));
    for (const Tensor& t : tensors) {
        const auto found = saved.find(t.name);
        if (found == saved.end())
            return fmt::format("model.layers = {}, but no tensor is '{}'", model.layers, t.name);
        std::vector<int64_t> expected = {t.param.whole_rows};
        if (t.param.whole_cols > 1) expected.push_back(t.param.whole_cols);
        if (*found->second != expected)
            return fmt::format("model.vocab, context, channels = {}, {}, {}, but '{}' has another shape",
                               model.vocab, model.context, model.channels, t.name);
    }
    if (saved.size() == tensors.size()) return "";
    return fmt::format("model.layers = {}, but there are {} tensors, expected {}", model.layers, saved.size(),
                       tensors.size());
}

// Settings of a checkpoint. Versions without a setting computed as its value here says.
static Config settings_of(const Manifest& m, const std::string& folder) {
    Config settings = parse_config(m.config, folder + "/" + kManifest);
    if (std::ranges::find(settings.named, "optimizer.cautious_adamw") == settings.named.end())
        settings.optimizer.cautious_adamw = settings.optimizer.cautious;
    return settings;
}

static void check_settings(const std::string& folder, const std::string& wrong) {
    if (!wrong.empty())
        fatal(kExitCheckpoint, __FILE__, __LINE__, "{}/{}: its settings are not those of its tensors: {}.\n"
              "       Bring the folder back from a copy, or move it away to use the checkpoint before",
              folder, kManifest, wrong);
}
static void check_settings(const std::string& folder, const Manifest& m) {
    check_settings(folder, wrong_tensors(settings_of(m, folder).model, m));
}

void verify_init(const std::string& init, const Axis& world, const Disk& disk, Check check) {
    check_init(init);
    run_on_rank_0(world, [&](const Heartbeat& heartbeat) {
        check_settings(init, verified_init(noticed(disk, heartbeat), init, check));
    });
}

RunState Origin::state() const {
    RunState state = run_state_of(manifest.state);
    if (state.tokens < 0) state.tokens = state.sample * settings.model.context;
    return state;
}

Origin origin_of(const std::string& folder, Manifest manifest) {
    Config settings = settings_of(manifest, folder);
    return {folder, std::move(manifest), std::move(settings)};
}

Origin open_head(const std::string& init) {
    check_init(init);
    Origin origin = origin_of(init, verified_init(posix_disk(), init, Check::Head));
    check_settings(init, wrong_shape(origin.settings.model, {}));
    return origin;
}

static Manifest verified_manifest(const Disk& disk, const std::string& folder) {
    Verified v = verify_checkpoint(disk, folder, Check::Sizes);
    CHECK_INPUT(v.manifest, "'{}': there is no checkpoint: {}. Expected a folder step_N that a run has saved",
                folder, v.problem);
    check_settings(folder, *v.manifest);
    return std::move(*v.manifest);
}

Origin open_checkpoint(const std::string& folder, const Axis& world, const Disk& disk) {
    Manifest manifest;
    run_on_rank_0(world, [&](const Heartbeat& heartbeat) {
        manifest = verified_manifest(noticed(disk, heartbeat), folder);
    });
    const std::string bytes = world.size > 1 ? from_rank_0(world, packed(manifest)) : "";
    if (world.index > 0) manifest = unpacked(bytes);
    return origin_of(folder, std::move(manifest));
}

// The newest step that verifies, held; of `steps`, ascending. A folder that is pruned meanwhile ends the
// search: a newer one is there. Empty: none.
static HeldCheckpoint newest_of(const Disk& disk, const std::string& run_dir, std::vector<int64_t> steps,
                                bool* pruned) {
    for (; !steps.empty(); steps.pop_back()) {
        HeldCheckpoint held = hold_checkpoint(folder_of(run_dir, steps.back()));
        const Verified v = verify_step(disk, run_dir, steps.back());
        if (v.manifest) return held;
        uint64_t bytes;
        if ((*pruned = disk.size(held.folder, &bytes) == ENOENT)) return {};
        warning("a checkpoint that does not verify is passed over: {}/{}", held.folder, v.problem);
    }
    return {};
}

static HeldCheckpoint newest_held(const Disk& disk, const std::string& run_dir) {
    HeldCheckpoint found;
    for (bool pruned = true; std::exchange(pruned, false) && found.folder.empty();) {
        const std::vector<int64_t> steps = saved_steps(disk, run_dir);
        found = newest_of(disk, run_dir, steps, &pruned);
        if (!steps.empty() && found.folder.empty() && !pruned)
            fatal(kExitCheckpoint, __FILE__, __LINE__, "no checkpoint of run.dir {} verifies: bring one "
                  "back, or name a folder of weights by --model.init=DIR", run_dir);
    }
    return found;
}

HeldCheckpoint newest_checkpoint(const std::string& run_dir, const Axis& world, const Disk& disk) {
    HeldCheckpoint found;
    run_on_rank_0(world, [&](const Heartbeat& heartbeat) {
        found = newest_held(noticed(disk, heartbeat), run_dir);
    });
    found.folder = from_rank_0(world, found.folder);
    return found;
}

// Of run.dir: the folder; empty: there is nothing to go on from.
static std::string newest_verified(const Disk& disk, const std::string& run_dir) {
    const Recovery r = recover(disk, run_dir);
    for (const std::string& line : r.damaged) warning("damaged checkpoint: {}", line);
    if (r.all_damaged)
        fatal(kExitCheckpoint, __FILE__, __LINE__, "run.dir {} had checkpoints, and none is left that "
              "verifies. Nothing is overwritten.\n       Bring one back (step_N of a backup), go on "
              "from another (--checkpoint.resume=FOLDER),\n       or start anew in another run.dir",
              run_dir);
    return r.folder;
}

// The folder of checkpoint.resume; of a run, the newest of its steps.
static std::string resumed_folder(const Disk& disk, std::string named) {
    while (named.size() > 1 && named.ends_with('/')) named.pop_back();
    if (file_exists(named + "/" + kManifest)) return named;
    const std::vector<int64_t> steps = saved_steps(disk, named);
    const bool there = is_directory(named);
    const bool of_step = std::filesystem::path(named).filename().string().starts_with("step_");
    CHECK_INPUT(there && (of_step || !steps.empty()), "checkpoint.resume = '{}': there is no {}. Expected "
                "auto, never, a folder step_N that a run has saved, or the folder of a run", named,
                there ? "checkpoint in this folder" : "such folder");
    return steps.empty() ? named : folder_of(named, steps.back());
}

// The folder of checkpoint.resume, by rank 0. A folder of run.dir is returned by its name in run.dir.
static std::string named_and_verified(const Disk& disk, const Config& cfg) {
    const std::string named = resumed_folder(disk, cfg.checkpoint.resume), &dir = cfg.run.dir;
    const Verified v = verify_checkpoint(disk, named);
    if (!v.manifest)
        fatal(kExitCheckpoint, __FILE__, __LINE__, "checkpoint.resume = '{}': {}. Expected auto, never, or a "
              "folder step_N that a run has saved", named, v.problem);
    const int64_t step = v.manifest->step;
    std::error_code none;
    const bool here = std::filesystem::equivalent(named, folder_of(dir, step), none);
    const std::vector<int64_t> steps = saved_steps(disk, dir);
    const bool beyond = !steps.empty() && (steps.back() > step || (steps.back() == step && !here));
    CHECK_INPUT(!beyond || cfg.train.steps == 0, "checkpoint.resume = '{}' is of step {}, but run.dir {} "
                "already holds {}.\n       Go on in another folder (--run.dir={}_2), or from the newest "
                "(--checkpoint.resume=auto)", named, step, dir, folder_of(dir, steps.back()), dir);
    return here ? folder_of(dir, step) : named;
}
std::optional<Origin> find_origin(const Config& cfg, const Axis& world, const Disk& disk) {
    check_shared(cfg.run.dir, world, file_exists);
    std::string folder;
    run_on_rank_0(world, [&](const Heartbeat& heartbeat) {
        const Disk seen = noticed(disk, heartbeat);
        remove_leftovers(seen, cfg.run.dir);
        if (cfg.checkpoint.begins_anew()) return;
        folder = cfg.checkpoint.resumes_newest() ? newest_verified(seen, cfg.run.dir)
                                                 : named_and_verified(seen, cfg);
    });
    folder = from_rank_0(world, folder);
    if (folder.empty()) return std::nullopt;
    return open_checkpoint(folder, world, disk);
}

Foreseen foresee_origin(const Config& cfg) {
    std::vector<std::string> folders;
    if (cfg.checkpoint.resumes_newest())
        for (const int64_t step : saved_steps(posix_disk(), cfg.run.dir))
            folders.push_back(folder_of(cfg.run.dir, step));
    else if (cfg.checkpoint.resumes_from_path())
        folders.push_back(resumed_folder(posix_disk(), cfg.checkpoint.resume));
    const bool any = !folders.empty();
    for (; !folders.empty(); folders.pop_back()) {
        Verified v = verify_checkpoint(posix_disk(), folders.back(), Check::Head);
        if (v.manifest) return {any, origin_of(folders.back(), std::move(*v.manifest))};
    }
    return {any, {}};
}

static std::string own_tokenizer(const Origin& origin) { return origin.folder + "/tokenizer.json"; }

// model.init counts at the start of a run only: the weights that this run began with may be gone. An
// evaluation begins with the checkpoint's weights.
static void adopt_init(Config& cfg, const Origin& origin, bool prints) {
    std::string& init = cfg.model.init;
    const std::string& saved = origin.settings.model.init;
    if (init != saved) check_init(init);
    if (prints && !starts_random(init))
        print("model.init = '{}' is not read: the run goes on from {}\n\n", for_terminal(init),
              for_terminal(origin.folder));
    init = cfg.train.steps > 0 ? saved : origin.folder;
}

int adopt_open_settings(Config& cfg, const std::optional<Origin>& origin, bool prints) {
    if (!origin) return 0;
    const Config& saved = origin->settings;
    adopt_init(cfg, *origin, prints);
    if (!cfg.model.vocab) cfg.model.vocab = saved.model.vocab;
    const std::string cautious = "optimizer.cautious_adamw";
    const bool open = std::find(cfg.named.begin(), cfg.named.end(), cautious) == cfg.named.end();
    if (open && prints && saved.optimizer.cautious_adamw != cfg.optimizer.cautious_adamw)
        print("{} = {}, as the checkpoint was made\n\n", cautious, saved.optimizer.cautious_adamw);
    if (open) cfg.optimizer.cautious_adamw = saved.optimizer.cautious_adamw;
    if (cfg.data.tokenizer.empty() && !saved.data.tokenizer.empty())
        cfg.data.tokenizer =
            file_exists(saved.data.tokenizer) ? saved.data.tokenizer : own_tokenizer(*origin);
    return saved.train.micro_batch;
}

void check_settings(const Config& cfg, const Origin& origin, const Contents& contents, bool prints) {
    Config now = cfg;
    if (now.data.tokenizer == own_tokenizer(origin)) now.data.tokenizer = origin.settings.data.tokenizer;
    const SettingsDiff diff = settings_diff(origin.settings, now, origin.state().contents, contents);
    if (prints && !diff.table.empty()) {
        print("settings that differ from those of {}\n{}\n", for_terminal(origin.folder), diff.table);
        const int64_t step = origin.manifest.step;
        const std::string jump = jump_of_learning_rate(origin.folder, step, origin.settings, cfg);
        if (!jump.empty()) print("{}\n", jump);
        fflush(stdout);
    }
    CHECK_INPUT(diff.refused.empty(), "{}: these settings change what the run computes ({}); set them back, "
                "or allow it:\n       --checkpoint.override='[{}]'", origin.folder, diff.changes,
                diff.refused);
}

}  // namespace saves
