// A point of the lattice: a mesh, and what runs on it.
#pragma once
#include "test/rounded_state.h"
#include "test/tiny.h"

namespace PRECISION {

inline constexpr int kSteps = 5, kRows = 12;
inline constexpr double kRate = 1e-2;
inline constexpr int kDivided = 24;         // tokens of a row that cp = 2, 3, 4 and 6 divide

// Awkward sizes: 7 layers on 2 or 4 stages, V % 8 = 3, odd T, sequences that tp does not divide.
inline Config lattice_config() {
    Config cfg;
    cfg.model = {.layers = 7, .heads = 4, .channels = 16, .context = 13, .vocab = 67, .init = "random"};
    cfg.train = {.steps = kSteps, .batch_tokens = kRows * 13, .micro_batch = 1, .max_skips = 0};
    cfg.optimizer.lr = kRate, cfg.optimizer.warmup = 2;
    cfg.optimizer.eps = 1e-7;       // a key's bias has a gradient of rounding alone, 1e-18, over this
    cfg.run.threads = 1;
    return cfg;
}

struct Point {
    int dp, tp, pp, zero = 0;
    const char* recompute = "none";
    int virtual_stages = 1, micro_batch = 1, zero_group = 0;
    int native = 0;             // parallel.reduce
    bool overlap = true, bf16_wire = false;
    int delay_us = 0;           // each call of a collective waits up to this long, at random
    size_t kind = 0;            // of kKinds
    int muon = 0;               // 2: cautious
    int offload = 0;            // memory.offload; 1: optimizer, 2: weights, 3: activations
    const char* order = "tp,cp,pp,dp";
    bool clips = true;          // false: optimizer.grad_clip is 0
    bool elastic = false;       // ranks may have unequal shares of a step
    int cp = 1;
    bool heads = false;         // parallel.cp_kind
    bool documents = false;     // model.document_mask
    bool divided = false;       // rows of kDivided tokens without cp, too
    Rounded rounded = Rounded::Nothing;

    int ranks() const { return dp * tp * pp * cp; }
    std::string text() const {
        static const char* const offloads[] = {"", ", optimizer offloaded", ", blocks on the host",
                                                ", blocks and streams on the host"};
        return fmt::format("dp {} tp {} pp {} cp {}{} zero {} recompute {}, {} virtual stages, batch {}, "
                           "group {}{}, kind {}{}{}{}{}, order {}",
                           dp, tp, pp, cp, heads ? " by heads" : "", zero, recompute, virtual_stages,
                           micro_batch, zero_group,
                           native ? ", native" : bf16_wire ? ", bf16 on the wire" : "", kind,
                           muon == 2 ? ", cautious Muon" : muon ? ", Muon" : "",
                           offloads[offload], documents ? ", documents" : "", name_of(rounded), order);
    }
    Config config() const {
        Config cfg = lattice_config();
        cfg.model = of_kind(kKinds[kind], cfg.model);
        cfg.parallel.ranks = ranks(), cfg.parallel.tp = tp, cfg.parallel.pp = pp;
        cfg.parallel.cp = cp, cfg.parallel.cp_kind = heads ? CpKind::Heads : CpKind::Gather;
        cfg.model.document_mask = documents;
        if (cp > 1 || divided) cfg.model.context = kDivided, cfg.train.batch_tokens = kRows * kDivided;
        cfg.parallel.zero = zero, cfg.parallel.zero_group = zero_group;
        cfg.parallel.virtual_stages = virtual_stages;
        cfg.parallel.schedule = virtual_stages > 1 ? "interleaved" : "1f1b";
        cfg.parallel.order = order;
        cfg.parallel.overlap = overlap;
        if (!clips) cfg.optimizer.grad_clip = 0;
        cfg.parallel.reduce = native ? "native" : "ordered";
        cfg.parallel.reduce_dtype = bf16_wire ? "bf16" : "fp32";
        cfg.memory.recompute = recompute;
        cfg.train.micro_batch = micro_batch;
        if (muon) cfg.optimizer.kind = OptimizerKind::Muon, cfg.optimizer.momentum_warmup = 3;
        cfg.optimizer.cautious = muon == 2;
        cfg.memory.offload = Offload(offload);
        cfg.run.elastic = elastic;
        round_state(cfg.optimizer, rounded);
        return cfg;
    }
};

}  // namespace PRECISION
