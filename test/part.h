// A rank's part of a small GPT without train/: weights are a function of their place in the whole model, and
// gradients are gathered by place, to compare a mesh with one rank.
#pragma once
#include <cmath>
#include <mutex>

#include "llmc/base/context.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/model/infer/decoder.h"
#include "llmc/model/rotary_table.h"
#include "test/compare.h"

namespace PRECISION {

// The provider of weights, whole on this rank.
struct Whole {
    Dims d;
    Layout layout;
    std::vector<floatX> params;
    std::vector<real> grads;

    Whole(const Dims& d, const Part& part)
        : d(d), layout(make_layout(d, part)), params(layout.size()), grads(layout.size()) {
        for (const Tensor& t : layout.tensors)
            for_each_run(t, {0, t.param.count()}, [&](size_t local, size_t global, size_t n) {
                for (size_t i = 0; i < n; i++) params[t.start + local + i] = weight(t, global + i);
            });
    }
    static floatX weight(const Tensor& t, size_t i) {
        const bool gain = t.param.init == Init::Ones || t.param.init == Init::Keep;
        const double size = t.name == "wte" ? 0.3 : 0.2;
        return floatX(real(gain + size * normal(5, 6, t.global + i)));
    }

    // A model without positions or an embed_norm has no bucket `embed`.
    size_t start(int bucket) const { return bucket < 0 ? 0 : layout.start(bucket); }
    floatX* at(int bucket) { return params.data() + start(bucket); }
    real* grad(int bucket) { return grads.data() + start(bucket); }
    EmbedTensors<floatX> embed() { return bind_embed(at(layout.wte), at(layout.embed), layout); }
    BlockTensors<floatX> block(int l) { return bind_block(at(layout.block(l)), l, layout); }
    FinalTensors<floatX> final() { return bind_final(at(layout.final), layout); }
    HeadTensors<floatX> head() { return {at(layout.wte), nullptr}; }
    EmbedTensors<real> embed_grads() { return bind_embed(grad(layout.wte), grad(layout.embed), layout); }
    BlockTensors<real> block_grads(int l) { return bind_block(grad(layout.block(l)), l, layout); }
    FinalTensors<real> final_grads() { return bind_final(grad(layout.final), layout); }
    HeadTensors<real> head_grads() { return {grad(layout.wte), nullptr}; }
    uint64_t version() const { return 1; }
    const BlockCodes* block_codes(int) const { return nullptr; }
    BlockTensors<real> vector_grads(int l, int) { return block_grads(l); }
    void add_vector_grads(int, int) {}
    void done_embed() {}
    void done_block(int) {}
    void done_final() {}
    void done_head() {}
};

// mixes: with the shortcut and value embeddings. rotary: rotary positions, norms of queries and keys, a
// window, and heads of queries that share one of keys
struct Sizes {
    int L = 2, heads = 4, C = 32, T = 7, V = 301, B = 3, logit_rows = 1 << 20;
    bool mixes = false, rotary = false;
};

inline Dims dims_of(const Sizes& s, const Axis& tp = {}) {
    ModelConfig m = {.layers = s.L, .heads = s.heads, .channels = s.C, .context = s.T, .vocab = s.V};
    if (s.mixes) m.shortcut = Shortcut::X0, m.value_embeddings = ValueEmbeddings::Alternate;
    if (s.rotary) {
        m.heads = 2 * s.heads, m.kv_heads = s.heads, m.head_channels = 6, m.window = {3, 0};
        m.position = PositionKind::Rope, m.rope_theta = 100, m.qk_norm = QkNorm::Before;
    }
    return make_dims(m, tp);
}

// A rank's Gpt in memory.
struct Rank {
    Sizes s;
    Dims d;
    Axis tp;
    Whole weights;
    Gpt gpt;
    Decoder decoder;
    Arena arena;
    std::byte* scratch;
    size_t scratch_bytes;

    Rank(const Sizes& s, const Axis& tp, const Part& part, const std::vector<int>& buffers,
         Recompute level = Recompute::None)
        : s(s), d(dims_of(s, tp)), tp(tp), weights(d, part),
          gpt({.d = d, .B = s.B, .T = s.T, .level = level, .backward = true, .apart = false}, tp, part,
              buffers),
          decoder(d, tp, part) {
        gpt.add_to(arena.of(Purpose::Activations));
        decoder.add_to(arena.of(Purpose::Activations));
        gpt.logit_rows = std::min(s.logit_rows, gpt.logit_rows);
        scratch_bytes = walked_scratch();
        arena.add("scratch", &scratch, scratch_bytes);
        arena.allocate(ops::device_allocate, ops::device_free);
        gpt.ready();
        fill_rotary_table(gpt.block.rotary_table, d), decoder.own.ready();
        gpt.clear_loss();
        use();
    }
    Rank(const Sizes& s, Recompute level = Recompute::None) : Rank(s, Axis(), whole_model(s.L), {1}, level) {}
    size_t walked_scratch() {
        arena.describe();
        gpt.ready();
        const Batch b{.tokens = nullptr, .targets = nullptr, .B = s.B, .T = s.T};
        return ops::needs_of([&] {
            for (int c = 0; c < int(gpt.part.chunks.size()); c++) {
                gpt.forward(weights, b, c);
                gpt.backward(weights, b, 1, c);
                decoder.forward(weights, nullptr, decoder.own.rows, d.maxT - decoder.own.rows, c);
            }
        }).scratch;
    }
    void use() { ops::lend_scratch(scratch, scratch_bytes); }

    // What memory holds by chance must not matter: the tests' is NaN.
    void poison() {
        const real nan = real(NAN);
        for (BlockActs& a : gpt.acts)
            for (const ActRow& row : block_acts(d, size_t(s.B * s.T), size_t(Slice(tp, s.B * s.T).n)))
                if (row.x) std::fill_n(a.*row.x, row.count, floatX(nan));
                else std::fill_n(a.*row.s, row.count, nan);
        std::fill_n(gpt.dx, gpt.message_count(s.B * s.T), floatX(nan));
    }
};

// Tokens and targets of a few micro-batches.
struct Data {
    Sizes s;
    std::vector<int32_t> ids;
    explicit Data(const Sizes& s) : s(s) {
        for (int i = 0; i < 64 * s.T * s.B; i++) ids.push_back(int32_t(uniform(3, 4, uint64_t(i)) * s.V));
    }
    Batch batch(int micro, int rows) const {
        const int32_t* first = ids.data() + 2 * micro * s.T * s.B;
        return {.tokens = first, .targets = first + s.T * s.B, .B = rows, .T = s.T};
    }
    Batch batch(int micro) const { return batch(micro, s.B); }
};

// Values of the whole model, by index; ranks add theirs.
struct Global {
    std::vector<double> sum;
    std::vector<int> times;     // that an element was added
    std::mutex writing;

    explicit Global(const Sizes& s)
        : sum(make_layout(dims_of(s), whole_model(s.L)).parameters), times(sum.size()) {}

    // Gradients of a rank. What tp does not cut is partial there: its sum is the gradient.
    void add(Rank& r) {
        std::lock_guard lock(writing);
        for (const Tensor& t : r.weights.layout.tensors)
            for_each_run(t, {0, t.param.count()}, [&](size_t local, size_t global, size_t n) {
                for (size_t i = 0; i < n; i++) {
                    sum[t.global + global + i] += double(r.weights.grads[t.start + local + i]);
                    times[t.global + global + i]++;
                }
            });
    }
};

// Gradients of a mesh against one rank's, tensor by tensor, relative to the tensor's largest element. The
// true gradient of a key bias is zero: its relative error has no meaning.
inline void expect_gradients(const Sizes& s, const Global& got, const Global& want, const char* what) {
    const double allowed = sizeof(floatX) == 8 ? 1e-12 : sizeof(floatX) == 4 ? 2e-5 : 0.06;
    double all = 0;
    for (double g : want.sum) all = std::max(all, std::fabs(g));
    for (const Tensor& t : whole_tensors(dims_of(s))) {
        double largest = 1e-2 * all, error = 0;
        for (size_t i = t.global; i < t.global + t.param.whole(); i++) {
            largest = std::max(largest, std::fabs(want.sum[i]));
            const double e = std::fabs(got.sum[i] - want.sum[i]);
            if (!(e <= error)) error = e;
        }
        // a sum over all tokens and channels, whose terms cancel
        const double room = sizeof(floatX) == 2 && t.param.whole() == 1 ? 5 : 1;
        EXPECT(error <= room * allowed * largest, "%s: gradient of %s: %.3g off, its largest is %.3g", what,
               t.name.c_str(), error, largest);
    }
}

// Ranks as threads: body(mesh) on each.
inline void on_mesh(int tp, int pp, const std::function<void(const Mesh&)>& body) {
    const Context before = context;
    context.throw_on_fatal = true;
    Config cfg;
    cfg.parallel.tp = tp, cfg.parallel.pp = pp, cfg.parallel.ranks = tp * pp;
    cfg.run.threads = 1;
    run_threads(cfg, [&](Config, const Mesh& mesh) { return body(mesh), 0; });
    context = before;
}

}  // namespace PRECISION
