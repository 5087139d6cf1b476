#include "llmc/train/save/checkpoint.h"

#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "llmc/base/config/axes.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/json/json.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/agents/member.h"
#include "llmc/comm/votes.h"

namespace PRECISION::inline saves {

static std::string new_run_id() {
    std::random_device random;
    return fmt::format("{:08x}{:08x}", random(), random());
}

// A rank that slept while others went on without it publishes and removes nothing once it wakes up.
static Disk disk_of_run(Disk disk, const std::string& run_dir) {
    const Membership* own = member();
    if (!own) return disk;
    return fenced(disk, [own, run_dir] { return own->owns_files(run_dir); });
}

Checkpoint::Checkpoint(const Config& c, Shards& held, Votes& v, std::byte* const& s,
                       std::vector<ExtraFile> tokenizer, Images& kept, Disk disk)
    : cfg(c), shards(held), mesh(held.mesh), votes(v), snapshot(s), images(kept),
      tokenizer_files(std::move(tokenizer)), run(new_run_id()), share(share_to_save(held)),
      saver(mesh.world, c.checkpoint, v, disk_of_run(std::move(disk), c.run.dir)),
      hook{c.checkpoint.hook, c.checkpoint.hook_timeout, c.run.dir + "/hook.log"},
      folder(file_id(c.run.dir)) {
    total_bytes = uint64_t(sum_over<1>(mesh.world, {double(share.bytes)})[0]);
    if (share.offloaded) shards.await_readers = [this] { saver.await_share(); };
}

// ---------------------------------------------------------------------------------------------------------
// loading

// The step, if run.dir has its checkpoint, else -1. All ranks agree.
int64_t Checkpoint::saved_here(const Origin& origin, int64_t step) const {
    const std::string folder = cfg.run.dir + "/step_" + std::to_string(step);
    const bool there = origin.bytes_of ? mesh.rank == 0 && file_exists(folder + "/" + kManifest)
                                       : origin.folder == folder;
    return any_of(mesh.world, there) ? step : -1;
}

void Checkpoint::restore_from(const Origin& origin) {
    // moments begin as zeros; those of another optimizer do not fit
    const bool moments = cfg.train.steps > 0 && origin.manifest.step > 0 &&
                         origin.settings.optimizer.kind == cfg.optimizer.kind;
    restore(shards, origin.bytes_of ? saved_state(origin.folder, origin.manifest.pieces, origin.bytes_of)
                                    : checkpoint_state(origin.folder, origin.manifest), moments);
}

// A save falls due in trouble and waits for its end: an image in trouble leaves it due.
static bool was_due_in_trouble(const CheckpointConfig& c, const RunState& state) {
    bool any = false;
    for (int64_t step = state.trouble.first; step > 0 && step < state.step; step++) any |= c.due(step, false);
    return any;
}

// A save that was under way when a rank was lost has gone with it. All ranks together.
bool Checkpoint::misses_save(int64_t step) {
    std::vector<int64_t> steps;
    if (mesh.rank == 0) steps = saved_steps(posix_disk(), cfg.run.dir);
    const int64_t last = int64_t(largest_over(mesh.world, steps.empty() ? -1 : double(steps.back())));
    if (last >= 0) newest = cfg.run.dir + "/step_" + std::to_string(last);
    const int64_t every = cfg.checkpoint.every;
    return every > 0 && step / every * every > std::max<int64_t>(last, 0);
}

RunState Checkpoint::load_or_init(const std::optional<Origin>& origin, const Contents& contents) {
    phase(Phase::Load, 0);
    if (!origin) {
        const std::string& init = cfg.model.init;
        const bool random = starts_random(init);
        if (random) restore(shards, random_weights(shards.d, uint64_t(cfg.run.seed)));
        else if (!is_foreign(init)) verify_init(init, mesh.world);
        if (!random) load_weights(shards, init);
        RunState begin;
        begin.contents = contents;
        return begin;
    }
    restore_from(*origin);
    newest = origin->bytes_of ? "" : origin->folder;
    run = origin->manifest.run;
    const std::string manifest = origin->folder + "/" + kManifest;
    RunState state = origin->state();
    for (const auto& [setting, files] : contents) state.contents[setting] = files;
    CHECK_INPUT(state.seed == origin->settings.run.seed, "{}: random numbers of seed {}, of a run "
                "with run.seed = {}", manifest, state.seed, origin->settings.run.seed);
    CHECK_INPUT(state.step <= cfg.train.steps || cfg.train.steps == 0, "{} is of step {}, beyond "
                "train.steps = {}", origin->folder, state.step, cfg.train.steps);
    if (cfg.train.steps == 0) state.evaluated = state.sampled = false;     // only evaluates and samples
    late_ = origin->bytes_of && was_due_in_trouble(cfg.checkpoint, state);
    // with train.rollback a further save would change what the run may go back to
    if (origin->bytes_of && misses_save(state.step)) late_ |= !cfg.train.rollback.every;
    saved = saved_here(*origin, state.step);
    // a crash may have come before
    if (saved >= 0 && cfg.train.steps > 0 && mesh.rank == 0) saver.prune(cfg.run.dir);
    return state;
}

// ---------------------------------------------------------------------------------------------------------
// saving

bool Checkpoint::async() const { return saves_async(cfg); }

void Checkpoint::save_if_due(const RunState& state, bool asked, bool ends) {
    poll();
    asked_ |= asked;
    late_ |= cfg.checkpoint.due(state.step, ends);
    const bool waits = images.in_trouble(state) && !ends;
    bool saves = !waits && std::exchange(late_, false);
    if (!waits && (!saver.busy() || ends)) saves |= std::exchange(asked_, false);
    if (!ends) images.keep(state, saves);
    if (!saves && !ends) return;
    phase(Phase::Save, state.step);
    if (saves) save(state, ends);
    else finish();
    if (!ends || mesh.rank > 0 || cfg.checkpoint.hook.empty()) return;
    hook.finish();                  // commands may have held older checkpoints
    saver.prune(cfg.run.dir);
}

static std::string mesh_json(const Config& cfg, const Mesh& mesh) {
    const MeshShape shape = mesh_shape(cfg.parallel, mesh.world.size);
    JsonObject sizes;
    sizes.add("ranks", mesh.world.size);
    for (const MeshAxis a : shown_axes(shape)) sizes.add(axis_rows[a].name, shape.*axis_rows[a].size);
    return sizes.add("zero", cfg.parallel.zero).str();
}

Manifest Checkpoint::manifest() const {
    Manifest m;
    m.run = run;
    m.config = to_json(cfg);
    m.mesh = mesh_json(cfg, mesh);
    return m;
}

std::string Checkpoint::state_text(const RunState& state) const {
    RunState now = state;
    now.seed = cfg.run.seed;
    return to_json(now);
}

SaveJob Checkpoint::job(const RunState& state) const {
    SaveJob j{.place = {.run_dir = cfg.run.dir, .step = state.step, .attempt = 0}, .pieces = share.pieces,
              .data = share.data(shards), .total_bytes = total_bytes, .manifest = {}, .extras = {},
              .folder = folder};
    if (snapshot) {
        std::byte* to = snapshot;
        for (size_t i = 0; i < j.data.size(); i++) {
            std::span<const std::byte>& piece = j.data[i];
            if (share.on_host[i]) continue;
            ops::start_copy_to_host(to, piece.data(), piece.size());
            piece = {to, piece.size()};
            to += piece.size();
        }
        ops::finish_copies();               // also those of the last update
    }
    j.manifest = manifest();
    j.manifest.step = state.step;
    j.manifest.state = state_text(state);
    j.extras.push_back({"config.json", shared_text(to_json(cfg) + "\n")});
    j.extras.insert(j.extras.end(), tokenizer_files.begin(), tokenizer_files.end());
    return j;
}

// "in runs/a 12 GB are free"
static std::string room_in(const std::string& run_dir) {
    uint64_t bytes = 0;
    if (posix_disk().free_bytes(run_dir, &bytes) == 0)
        return fmt::format("in {} {} are free", run_dir, human_bytes(double(bytes)));
    return fmt::format("run.dir {} is gone: was it moved or removed? Bring it back", run_dir);
}

void Checkpoint::poll() {
    report(saver.poll(), false);
    (void)hook.poll();
}

void Checkpoint::report(const std::optional<Saver::Outcome>& outcome, bool last) {
    if (!outcome) return;
    if (outcome->error.empty()) {
        saved = outcome->step;
        newest = outcome->dir;
        if (mesh.rank > 0) return;
        print_event("saved", for_terminal(newest));
        hook.add(newest, hold_checkpoint(newest).lock);
        return;
    }
    if (mesh.rank > 0 && !last) return;
    const std::string text =
        fmt::format("the checkpoint of step {} is not {}: {}.\n       It takes {}; {}.", outcome->step,
                    outcome->complete ? "acknowledged" : "saved", outcome->error,
                    human_bytes(double(total_bytes)), room_in(cfg.run.dir));
    if (last) fatal(kExitConfig, __FILE__, __LINE__, "{} It was the run's last, {}.\n       Make room before "
                    "the next run, or name another disk by run.dir", text, outcome->complete
                    ? "and it is written in full, but a power cut may take it; the next start looks whether "
                      "it is there" : "so what was trained since the one before is lost");
    warning("{} Training goes on.\n       Make room, or keep fewer checkpoints (checkpoint.keep_last); kill "
            "-USR1 {} tries again", text, int(getpid()));
}

void Checkpoint::save(const RunState& state, bool ends) {
    if (cfg.train.steps == 0 && !saves_initial(cfg)) return;
    const bool waits = ends || !async();
    if (saver.busy() && !ends) {
        if (begun_ == state.step) return;               // before a rollback to this step
        skipped_++;
        if (mesh.rank == 0 && std::has_single_bit(skipped_))        // of many: the 1st, 2nd, 4th, 8th ...
            print(stderr, "note: the checkpoint of step {} is skipped: the one before is still being "
                  "written{}\n", state.step,
                  skipped_ > 1 ? fmt::format(" ({} skipped so far)", skipped_) : "");
        return;
    }
    finish();
    if (saved == state.step) return;
    begun_ = state.step;
    if (before_save) before_save();
    SaveJob j = job(state);
    j.beside_training = !waits;
    saver.begin(std::move(j));
    if (waits) report(saver.finish(), ends);
}

}  // namespace PRECISION::saves
