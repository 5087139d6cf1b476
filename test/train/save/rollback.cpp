// train.rollback by its parts: which steps are trouble, and that a run goes on from an image of its state as
// one that resumes a checkpoint of the same step, with the same data.
#include <filesystem>
#include <map>

#include "llmc/base/disk/output_file.h"
#include "llmc/train/run/step_log.h"
#include "llmc/train/save/checkpoint.h"
#include "test/program.h"
#include "test/zero.h"

namespace fs = std::filesystem;

namespace PRECISION {

static std::string fresh(const std::string& name) {
    const std::string dir = test::folder(TEST_PRECISION "_" + name);
    fs::remove_all(dir);
    fs::create_directories(dir);
    return dir;
}

// ---------------------------------------------------------------------------------------------------------
// what is trouble

// A step's loss and norm, as StepLog counts them.
static bool count(RunState& s, const TrainConfig& cfg, int64_t step, double loss, double norm = 1) {
    const bool wrong = s.count(cfg, step, loss, norm, std::isfinite(loss) && std::isfinite(norm));
    s.loss.score(loss);
    s.norm.score(norm);
    return wrong;
}

static RunState calm(const TrainConfig& cfg, int64_t steps) {
    RunState s;
    for (int64_t step = 1; step <= steps; step++)
        EXPECT(!count(s, cfg, step, 2 + 0.1 * std::sin(double(step)), 1 + 0.1 * std::cos(double(step))) &&
               s.trouble.first == 0, "step %d", int(step));
    return s;
}

TEST_IF(kIsFp64, steps_in_a_row_are_trouble) {
    const TrainConfig cfg = {.max_skips = 2, .rollback = {.every = 10, .z = 6, .steps = 3}};
    for (const int before : {50, 70, 199, 200, 413}) {
        RunState s = calm(cfg, before);
        EXPECT(!count(s, cfg, before + 1, 4) && !count(s, cfg, before + 2, 1, 9), "two are not three");
        EXPECT(s.trouble.first == before + 1 && s.trouble.above == 2, "first %d", int(s.trouble.first));
        EXPECT(count(s, cfg, before + 3, 4), "after %d steps: three of them", before);
    }
    RunState early = calm(cfg, 49);
    EXPECT(!count(early, cfg, 50, 90) && early.trouble.first == 0, "no window yet");
    RunState broken = calm(cfg, 100);
    for (int step = 101; step <= 120; step++)
        EXPECT(!count(broken, cfg, step, step % 3 ? 9 : 2), "step %d: no three in a row", step);
    // what is in trouble does not belong to the window: any length of it is as far above
    TrainConfig patient = cfg;
    patient.rollback.steps = 40;
    RunState s = calm(patient, 300);
    for (int step = 301; step < 340; step++) EXPECT(!count(s, patient, step, 4), "step %d", step);
    EXPECT(count(s, patient, 340, 4), "40 of them");
}

TEST_IF(kIsFp64, skipped_steps_are_trouble) {
    const double nan = std::nan("");
    TrainConfig cfg = {.max_skips = 2, .rollback = {.every = 10, .z = 6, .steps = 2}};
    RunState s = calm(cfg, 100);
    EXPECT(!count(s, cfg, 101, nan) && s.trouble.first == 101, "an image of this step is none");
    EXPECT(!count(s, cfg, 102, 2) && s.trouble.first == 0 && s.skipped == 1, "the next is calm");
    EXPECT(!count(s, cfg, 103, 9) && !count(s, cfg, 104, 2, INFINITY) && s.trouble.above == 1, "no number");
    EXPECT(count(s, cfg, 105, 9) && s.trouble.first == 103, "above z before and after");
    RunState t = calm(cfg, 100);
    for (int step = 101; step <= 103; step++) EXPECT(count(t, cfg, step, nan) == (step == 103), "%d", step);
    cfg.rollback.every = 0;
    RunState off = calm(cfg, 100);
    for (int step = 101; step <= 110; step++) EXPECT(!count(off, cfg, step, 50), "off");
    for (int step = 1; step <= 3; step++)
        EXPECT(count(off, cfg, 110 + step, nan) == (step == 3) && off.trouble.first == 0, "max_skips alone");
}

// ---------------------------------------------------------------------------------------------------------
// images

struct Place {
    int ranks, tp = 1, pp = 1, zero = 0;
    bool muon = false, offload = false;
    Rounded rounded = Rounded::Nothing;
    std::string text() const {
        return fmt::format("{} ranks, tp {}, pp {}, zero {}{}{}{}", ranks, tp, pp, zero, muon ? ", Muon" : "",
                           offload ? ", offloaded" : "", name_of(rounded));
    }
};

static Config config_on(const Place& p, const std::string& dir) {
    Config cfg = zero_config(p.ranks, p.zero, 1);
    cfg.model.heads = 4, cfg.model.channels = 16;
    cfg.run.dir = dir;
    cfg.train.rollback = {.every = 3, .z = 6, .steps = 1, .skip = 2, .most = 9};
    cfg.optimizer.stochastic_rounding = true;
    cfg.checkpoint.keep_last = 0, cfg.checkpoint.every = 1000, cfg.checkpoint.async = true;
    cfg.parallel.tp = p.tp, cfg.parallel.pp = p.pp;
    if (p.muon) cfg.optimizer.kind = OptimizerKind::Muon;
    if (p.offload) cfg.memory.offload = Offload::Optimizer;
    round_state(cfg.optimizer, p.rounded);
    return cfg;
}

static std::map<std::string, std::string> shares_of(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& e : fs::directory_iterator(folder))
        if (e.path().extension() == ".safetensors") files[e.path().filename()] = read_file(e.path());
    return files;
}

static constexpr int64_t kImage = 3, kTrouble = 5, kEnd = 9, kMoved = 7 * kZeroRows;

// Trains to kEnd: back from kTrouble to the image of kImage, or from a checkpoint of kImage. Either way the
// data go on behind kMoved.
static int trained(const Config& cfg, const Mesh& mesh, const std::string& from) {
    Tiny t(cfg, false, mesh);
    Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
    std::optional<Origin> origin;
    if (!from.empty()) origin = open_checkpoint(from, mesh.world);
    RunState state = checkpoint.load_or_init(origin);
    if (origin) state.sample = kMoved;
    Loader data(t.set, cfg.train.micro_batch, uint64_t(state.sample), mesh.dp.index, mesh.dp.size);
    Trace trace;
    const auto step = [&] {
        train_step(t, data, state.step, trace);
        state.advance(t.model.pipeline.batch_rows, cfg.model.context);
    };
    while (!origin && state.step < kTrouble) {
        checkpoint.save_if_due(state, state.step == 2, false);      // its files are written beside the steps
        step();
    }
    if (!origin) {
        RunState& image = t.model.images.go_back({.first = kTrouble, .above = 1});
        EXPECT(image.step == kImage, "the image is of step %d", int(image.step));
        image.sample = kMoved;
        state = image;
        data.move_to(uint64_t(state.sample));
        checkpoint.finish();
        checkpoint.save(state, false);
        checkpoint.finish();
    }
    while (state.step < kEnd) step();
    checkpoint.save(state, true);
    return 0;
}

TEST(an_image_goes_on_as_a_checkpoint_does) {
    for (const Place& p : {Place{1}, Place{1, 1, 1, 0, true}, Place{1, 1, 1, 0, false, true},
                           Place{2, 1, 1, 1, true, false, kMostRounded}, Place{2, 1, 1, 1},
                           Place{2, 2}, Place{4, 1, 2, 3},
                           Place{4, 2, 1, 2, true, true}}) {
        if (kIsFp64 && p.ranks == 4) continue;
        const std::string back = fresh("back"), straight = fresh("straight"), resumed = fresh("resumed");
        const std::string name = p.text();
        const auto run_on = [&](const std::string& dir, const std::string& from) {
            const Config cfg = config_on(p, dir);
            const auto body = [&](const Config& c, const Mesh& mesh) { return trained(c, mesh, from); };
            if (p.ranks == 1) body(cfg, Mesh());
            else run_threads(cfg, body);
        };
        run_on(back, "");
        // without a rollback: a checkpoint of the same step
        const Config plain = config_on(p, straight);
        const auto to_image = [&](const Config& cfg, const Mesh& mesh) {
            Tiny t(cfg, false, mesh);
            Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
            RunState state = checkpoint.load_or_init({});
            Loader data(t.set, cfg.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
            Trace trace;
            for (; state.step < kImage; state.advance(t.model.pipeline.batch_rows, cfg.model.context))
                train_step(t, data, state.step, trace);
            checkpoint.save(state, true);
            return 0;
        };
        if (p.ranks == 1) to_image(plain, Mesh());
        else run_threads(plain, to_image);
        EXPECT(shares_of(back + "/step_3") == shares_of(straight + "/step_3"), "%s: image", name.c_str());
        run_on(resumed, straight + "/step_3");
        EXPECT(shares_of(back + "/step_9") == shares_of(resumed + "/step_9"), "%s: later", name.c_str());
    }
}

TEST_IF(kIsFp64, the_image_before_the_trouble) {
    Config cfg = config_on({1}, fresh("ring"));
    cfg.train.rollback.steps = 2;
    Tiny t(cfg);
    Images& images = t.model.images;
    RunState s;
    const auto keep = [&](int64_t step, bool anew = false, int64_t trouble = 0) {
        s.step = step;
        s.trouble.first = trouble;
        images.keep(s, anew);
    };
    for (int64_t step = 0; step <= 12; step++) keep(step);
    EXPECT(images.go_back({.first = 14, .above = 2}).step == 12, "two steps older are enough");
    for (int64_t step = 12; step <= 15; step++) keep(step);
    EXPECT(images.go_back({.first = 16, .above = 2}).step == 12, "one is not");
    EXPECT(images.go_back({.first = 13, .above = 2}).step == 12, "the oldest, where all are near");
    for (int64_t step = 13; step <= 18; step++) keep(step, false, step < 15 ? 0 : 15);
    EXPECT(images.go_back({.first = 15, .above = 4}).step == 12, "none is taken in trouble");
    for (int64_t step = 13; step <= 17; step++) keep(step, step == 17);
    EXPECT(images.go_back({.first = 30, .above = 2}).step == 17, "a checkpoint begins the ring anew");
}

// ---------------------------------------------------------------------------------------------------------
// rows

static std::string cut(const std::string& rows, int64_t step, int64_t rollbacks = 0) {
    const std::string path = fresh("cut") + "/metrics.jsonl";
    write_file(path, rows);
    cut_metrics(posix_disk(), path, step, rollbacks);
    return read_file(path);
}

// Steps 1 to 6, back to 4, 5 to 7, back to 4 again, 5 to 8. A checkpoint knows how many rollbacks came first.
TEST_IF(kIsFp64, rows_of_rollbacks_are_of_the_step_they_lead_to) {
    std::string rows[9];
    for (int step = 1; step <= 8; step++)
        rows[step] = rows[step - 1] + "{\"event\":\"train\",\"step\":" + std::to_string(step) + "}\n";
    const auto back = [](int step) {
        return fmt::format("{{\"event\":\"rollback\",\"step\":{},\"to\":4,\"skipped\":9}}\n", step);
    };
    const auto after = [&](int step) { return rows[step].substr(rows[4].size()); };
    const std::string marks = back(6) + back(7), all = rows[4] + marks + after(8);
    EXPECT(cut(rows[6], 4) == rows[4], "the first rollback");
    EXPECT(cut(rows[4] + back(6) + after(7), 4, 1) == rows[4] + back(6), "the second");
    for (int step = 1; step <= 3; step++) EXPECT(cut(all, step, 2) == rows[step], "step %d", step);
    for (int step = 4; step <= 8; step++)
        EXPECT(cut(all, step, 2) == rows[4] + marks + after(step), "step %d: '%s'", step,
               cut(all, step, 2).c_str());
    EXPECT(cut(all, 4) == rows[4] && cut(all, 4, 1) == rows[4] + back(6), "a checkpoint of before");
}

// ---------------------------------------------------------------------------------------------------------
// decided late

// The main loop with a learning rate that spoils a few steps of data. left: steps that the host is behind.
static std::string loop_of(size_t left) {
    Config cfg = tiny_config();
    cfg.run.dir = fresh("loop_" + std::to_string(left));
    cfg.train.steps = 90, cfg.train.micro_batch = 2, cfg.train.batch_tokens = 2 * cfg.model.context;
    cfg.train.rollback = {.every = 4, .z = 8, .steps = 3, .skip = 5, .most = 4};
    cfg.checkpoint.every = 33, cfg.checkpoint.async = false, cfg.log.every = 0;
    Tiny t(cfg);
    RunLog log(t.cfg);
    Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
    RunState state = checkpoint.load_or_init({});
    std::optional<Loader> loader;
    loader.emplace(t.set, cfg.train.micro_batch, 0);
    log.start(t.cfg, {}, "", state);
    StepLog step_log(t.cfg, {}, t.model, log, state);
    Signals asked;
    for (;; step_log.advance(&*loader)) {
        const int64_t step = state.step;
        const bool last = step >= cfg.train.steps;
        if ((last || checkpoint.due(step)) && !step_log.catches_up(asked)) continue;
        checkpoint.save_if_due(state, false, last);
        if (last) break;
        const int64_t data = state.sample / 2;
        step_log.begin();
        t.model.pipeline.run(*loader);
        const StepSums sums = t.model.statistics->sum_over_ranks({}, 0);
        t.model.optimizer->clip(sums.squares, sums.loss);
        t.model.optimizer->update(data == 62 || data == 63 ? 2.0 : 1e-3, step);
        step_log.add(step + 1, 1e-3);
        asked = step_log.write(left);
    }
    std::string text;
    for (const auto& [name, bytes] : shares_of(cfg.run.dir + "/step_90")) text += bytes;
    for (const test::json& row : test::rows_of(TEST_PRECISION "_loop_" + std::to_string(left)))
        if (row["event"] == "train") text += fmt::format("{} {}\n", row["step"].dump(), row["loss"].dump());
        else if (row["event"] == "rollback") text += row.dump() + "\n";
    return text;
}

TEST(a_host_that_is_behind_decides_the_same) {
    const std::string now = loop_of(0);
    EXPECT(loop_of(1) == now && test::count_of(now, "\"rollback\"") == 1, "%s",
           now.substr(now.find("1 ")).substr(0, 200).c_str());
}

}  // namespace PRECISION
