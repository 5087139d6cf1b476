// A small GPT with awkward sizes (V % 8 = 2, odd T), for tests of the trainer.
#pragma once
#include <omp.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "llmc/base/context.h"
#include "llmc/train/step/learning_rate.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/save/state_source.h"
#include "llmc/comm/votes.h"
#include "test/kinds.h"
#include "test/shards.h"

namespace PRECISION {

inline constexpr bool kIsFp64 = sizeof(floatX) == 8, kIsBf16 = sizeof(floatX) == 2;

inline void set_threads(int threads) {
    context.threads = threads;
    omp_set_num_threads(threads);
}

inline Config tiny_config() {
    Config cfg;
    cfg.model = {.layers = 2, .heads = 3, .channels = 48, .context = 37, .vocab = 66, .init = "random"};
    cfg.train = {.steps = 100, .batch_tokens = 8 * 37, .micro_batch = 8, .max_skips = 0};
    cfg.optimizer.lr = 1e-3, cfg.optimizer.warmup = 2;
    return cfg;
}

inline std::vector<real> values_of(const StateSlot& slot) {
    const auto widened = [&](const auto* p) { return std::vector<real>(p, p + slot.at.back()); };
    if (slot.dtype == DType::BF16) return widened(reinterpret_cast<const bfloat16*>(slot.memory));
    return widened(reinterpret_cast<const real*>(slot.memory));
}

// A rank's part of a model in memory. The newest model has the scratch of ops: call use() before going back
// to an older model.
struct Tiny {
    Config cfg;
    Model model;
    const Dims& d = model.shards.d;
    Dataset set;

    explicit Tiny(const Config& c, bool generates = false, const Mesh& mesh = Mesh())
        : cfg(c), model(cfg, mesh, c.train.micro_batch, generates) {
        model.allocate();
        restore(model.shards, random_weights(d, uint64_t(cfg.run.seed)));
        const std::string path = test::temporary_directory() + "/tiny" + std::to_string(mesh.rank) + ".bin";
        test::write_shard(path, test::learnable_ids(3000, cfg.model.vocab));
        set = open_dataset("data.train", {{path}}, cfg.model.context, 1, true);
        if (cfg.model.document_mask) set.mask_eot = 3;
        validate_ids(set, cfg.model.vocab);
    }
    void use() { ops::lend_scratch(model.scratch, model.scratch_bytes); }

    // Fewer rows of logits, to have several chunks in a small batch.
    void set_logit_rows(int n) { model.gpt.logit_rows = std::min(n, model.gpt.logit_rows); }

    real* masters() {
        const StateSlot* const masters = model.shards.masters();
        return masters ? reinterpret_cast<real*>(masters->memory)
                       : reinterpret_cast<real*>(model.shards.params);
    }
    real* state(const std::string& name) const {
        for (const StateSlot& slot : model.shards.state)
            if (slot.name == name) return reinterpret_cast<real*>(slot.memory);
        fatal(kExitInternal, __FILE__, __LINE__, "no slot {}", name);
    }
    std::vector<real> values(const std::string& name) const {
        for (const StateSlot& slot : model.shards.state)
            if (slot.name == name) return values_of(slot);
        fatal(kExitInternal, __FILE__, __LINE__, "no slot {}", name);
    }
    size_t size() const { return model.shards.layout.size(); }
    const Tensor& tensor(const std::string& name) const {
        for (const Tensor& t : model.shards.layout.tensors)
            if (t.name == name) return t;
        fatal(kExitInternal, __FILE__, __LINE__, "no tensor {}", name);
    }

    // A tensor of the whole model. Every rank calls this together.
    std::vector<real> whole(const Tensor& t) const { return whole_tensor(model.shards, t); }

    // Reads a tensor, for exports.
    auto reads() const {
        return [this](const Tensor& t) { return whole_in_fp32(model.shards, t); };
    }

    // Weights far from the initialisation: attention and activation have an effect.
    void shake(double scale = 0.2) {
        for (const Tensor& t : whole_tensors(d)) {
            std::vector<real> values = whole(t);
            for (size_t i = 0; i < values.size(); i++) values[i] += real(scale * normal(99, 7, t.global + i));
            set_tensor(model.shards, t, values);
        }
    }
};

// Results of a few steps, compared bit for bit.
struct Trace {
    std::vector<double> losses, norms;
    std::vector<floatX> params;
    std::vector<real> masters, m, v;

    bool operator==(const Trace& o) const {
        const auto same = [](const auto& a, const auto& b) {
            return a.size() == b.size() &&
                   (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
        };
        return same(losses, o.losses) && same(norms, o.norms) && same(params, o.params) &&
               same(masters, o.masters) && same(m, o.m) && same(v, o.v);
    }
    void keep_state(Tiny& t) {
        const size_t n = t.size();
        params.assign(t.model.shards.params, t.model.shards.params + n);
        if (kMasterIsParam || t.model.shards.masters()) masters.assign(t.masters(), t.masters() + n);
        m = t.values("m"), v = t.values("v");
    }
};

// An optimizer step, as in the main loop.
inline bool train_step(Tiny& t, Loader& data, int64_t step, Trace& trace) {
    t.model.pipeline.run(data);
    enqueue_update(t.model, learning_rate(t.cfg.optimizer, t.cfg.train.steps, step), step);
    const StepResult f = t.model.statistics->read();
    trace.losses.push_back(f.loss);
    trace.norms.push_back(f.norm);
    return f.finite;
}

inline Trace train_steps(Tiny& t, int steps) {
    Trace trace;
    const Position& dp = t.model.mesh.dp;
    Loader data(t.set, t.cfg.train.micro_batch, 0, dp.index, dp.size);
    for (int s = 0; s < steps; s++) train_step(t, data, s, trace);
    if (t.model.mesh.world.size == 1) trace.keep_state(t);
    return trace;
}

inline Trace train_steps(const Config& cfg, int steps, int logit_rows = 1 << 20) {
    Tiny t(cfg);
    t.set_logit_rows(logit_rows);
    return train_steps(t, steps);
}

}  // namespace PRECISION
