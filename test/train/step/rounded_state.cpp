// State that is rounded stochastically: equal bits at every ZeRO stage, with and without offload, for any
// number of threads, in the memory that the plan states.
#include "test/rounded_state.h"
#include "test/zero.h"

namespace PRECISION {

static Config rounded_config(int ranks, int zero, Rounded r, OptimizerKind kind) {
    Config cfg = zero_config(ranks, zero, 4);
    cfg.optimizer.kind = kind, cfg.optimizer.momentum_warmup = 2;
    round_state(cfg.optimizer, r);
    return cfg;
}

TEST(no_zero_stage_and_no_offload_changes_a_bit) {
    for (const OptimizerKind kind : {OptimizerKind::Adamw, OptimizerKind::Muon})
        for (const Rounded r : rounded_kinds()) {
            const char* const what = kind == OptimizerKind::Muon ? "Muon" : "AdamW";
            const Outcome first = run(rounded_config(3, 0, r, kind));
            const Outcome full = run(rounded_config(3, 0, Rounded::Nothing, kind));
            EXPECT(!(first == full), "%s: nothing is rounded", what);
            for (int zero = 0; zero < 4; zero++) {
                Config cfg = rounded_config(3, zero, r, kind);
                if (zero) EXPECT(run(cfg) == first, "%s%s: ZeRO %d differs", what, name_of(r), zero);
                cfg.memory.offload = "optimizer";
                EXPECT(run(cfg) == first, "%s%s, ZeRO %d: offloading", what, name_of(r), zero);
            }
        }
}

TEST(no_number_of_threads_changes_a_bit) {
    for (const OptimizerKind kind : {OptimizerKind::Adamw, OptimizerKind::Muon})
        for (const Rounded r : rounded_kinds()) {
            const auto state_of = [&](int threads) {
                set_threads(threads);
                return train_steps(rounded_config(1, 0, r, kind), 2);
            };
            const Trace one = state_of(1), three = state_of(3);
            EXPECT(one == three, "threads change bits%s", name_of(r));
            set_threads(1);
        }
}

// Rounded once per step, moments stay near those in full.
TEST(moments_stay_near_those_in_full) {
    const auto moments_of = [](Rounded r) {
        return train_steps(rounded_config(1, 0, r, OptimizerKind::Adamw), 3);
    };
    const Trace full = moments_of(Rounded::Nothing), rounded = moments_of(Rounded::Moments);
    const auto apart = [](const std::vector<real>& a, const std::vector<real>& b) {
        double error = 0, square = 0;
        for (size_t i = 0; i < a.size(); i++)
            error += std::pow(double(a[i] - b[i]), 2), square += std::pow(double(a[i]), 2);
        return std::sqrt(error / square);
    };
    for (const double distance : {apart(full.m, rounded.m), apart(full.v, rounded.v)})
        EXPECT(distance > 1e-4 && distance < 0.05, "%g apart", distance);
}

// Rows of the memory plan, on the device and offloaded.
TEST(plans_know_the_bytes) {
    const auto bytes_of = [](Rounded r, bool offload) {
        Config cfg = rounded_config(2, 1, r, OptimizerKind::Adamw);
        if (offload) cfg.memory.offload = "optimizer";
        const auto mesh = described_mesh(cfg.parallel, 2, 0);
        const Model model(cfg, mesh->mesh, 2, false);
        std::map<std::string, size_t> bytes;
        for (const Arena* arena : {&model.arena, &model.host})
            for (const auto& row : arena->plan()) bytes[row.name] += row.bytes;
        for (const StateSlot& slot : model.shards.state)
            EXPECT(bytes[slot.planned] == slot.bytes(slot.at.back()), "%s", slot.planned);
        return bytes;
    };
    for (const bool offload : {false, true}) {
        auto full = bytes_of(Rounded::Nothing, offload), moments = bytes_of(Rounded::Moments, offload);
        for (const char* row : {"first moments", "second moments"})
            EXPECT(full[row] > 0 && moments[row] * sizeof(real) == 2 * full[row], "%s: %zu bytes of %zu",
                   row, moments[row], full[row]);
        for (const char* row : {"master weights", "gradients"})
            EXPECT(full[row] == moments[row], "%s: %zu bytes of %zu", row, moments[row], full[row]);
        const size_t in_use = kMasterIsParam ? 2 : 3;           // slots
        EXPECT(moments["offloaded state in use"] * in_use * sizeof(real) ==
                   full["offloaded state in use"] * (4 + (in_use - 2) * sizeof(real)), "chunks in use");
    }
}

TEST_IF(kIsBf16, weights_without_masters_take_no_memory_beside_them) {
    for (const bool offload : {false, true}) {
        Config cfg = rounded_config(2, 1, Rounded::Both, OptimizerKind::Adamw);
        if (offload) cfg.memory.offload = "optimizer";
        const auto mesh = described_mesh(cfg.parallel, 2, 0);
        const Model model(cfg, mesh->mesh, 2, false);
        size_t state = 0, in_use = 0;
        for (const Arena* arena : {&model.arena, &model.host})
            for (const auto& row : arena->plan()) {
                EXPECT(row.name != "master weights");
                if (row.purpose != Purpose::Optimizer) continue;
                (row.name == "offloaded state in use" ? in_use : state) += row.bytes;
            }
        const size_t elements = model.shards.state[0].at.back();
        EXPECT(state == 4 * elements && (in_use > 0) == offload, "%zu bytes for %zu elements", state,
               elements);
    }
}

// Small updates are lost in bf16 but for the chance of rounding. In the mean, weights go where masters go.
TEST_IF(kIsBf16, weights_without_masters_move_by_chance) {
    const auto weights_of = [](Rounded r) {
        Config cfg = rounded_config(1, 0, r, OptimizerKind::Adamw);
        cfg.optimizer.lr = 1e-4, cfg.optimizer.warmup = 0, cfg.optimizer.schedule = "constant";
        Tiny t(cfg);
        t.shake(1);
        const std::vector<real> before = all_weights(t);
        train_steps(t, 8);
        std::vector<real> moved = all_weights(t);
        for (size_t i = 0; i < moved.size(); i++) moved[i] -= before[i];
        return moved;
    };
    const std::vector<real> exact = weights_of(Rounded::Nothing), rounded = weights_of(Rounded::Weights);
    double both = 0, squares = 0;
    size_t still = 0;
    for (size_t i = 0; i < exact.size(); i++) {
        both += double(exact[i]) * double(rounded[i]), squares += double(exact[i]) * double(exact[i]);
        still += rounded[i] == 0;
    }
    EXPECT(still > exact.size() / 4, "%zu of %zu stand still", still, exact.size());
    EXPECT_NEAR(both / squares, 1, 0.1);
}

}  // namespace PRECISION
