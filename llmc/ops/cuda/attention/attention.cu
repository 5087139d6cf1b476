// Each pass of attention runs a variant by tensor cores (choices.h), or a plain kernel for other head sizes.
#include "llmc/ops/cuda/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/tuning/workload.h"

namespace PRECISION {
namespace cuda {

// Variants by wgmma, then by mma.sync.
template <class Variants> static auto joined(const Variants& wgmma, const Variants& mma) {
    std::vector<typename Variants::value_type> all(wgmma.begin(), wgmma.end());
    all.insert(all.end(), mma.begin(), mma.end());
    return all;
}
AttentionForwardVariants attention_forward_variants() {
    static const auto all = joined(attention_wgmma_forward_variants(), attention_mma_forward_variants());
    return all;
}
AttentionBackwardVariants attention_queries_variants() {
    static const auto all = joined(attention_wgmma_queries_variants(), attention_mma_queries_variants());
    return all;
}
AttentionBackwardVariants attention_keys_variants() {
    static const auto all = joined(attention_wgmma_keys_variants(), attention_mma_keys_variants());
    return all;
}

// The time that a launch cannot do without on an A100, the GPU with the most bandwidth for its products.
static double seconds_of(const Floor& f) { return std::max(f.bytes / 2.0e12, f.mma_flops / 312e12); }

// The variants for heads of d.D channels: those by wgmma, then the others, each the lowest floor first.
template <class Variants>
static std::vector<const typename Variants::element_type*> fitting(const Variants& variants,
                                                                   const AttentionDims& d) {
    std::vector<const typename Variants::element_type*> fit;
    for (const auto& v : variants)
        if (v.supports(d.D)) fit.push_back(&v);
    const auto rank = [&](const auto* v) { return std::pair(!v->wgmma, seconds_of(v->floor(d))); };
    std::stable_sort(fit.begin(), fit.end(), [&](auto* a, auto* b) { return rank(a) < rank(b); });
    return fit;
}

// The candidate's variant, by default the first that fits; null: no variant for such heads.
template <class Variants>
static auto variant_of(const Variants& variants, const Candidate* candidate, const AttentionDims& d) {
    if (candidate)
        for (const auto& v : variants)
            if (v.name == candidate->kernel && v.supports(d.D)) return &v;
    const auto fit = fitting(variants, d);
    return fit.empty() ? nullptr : fit[0];
}

// Choices are for whole sequences, timed with keys for each head of queries; generating text, with Tq < Tk,
// takes the default.
template <class Variants>
static auto chosen_variant(Op op, const Variants& variants, const AttentionDims& d) {
    return variant_of(variants, d.Tq == d.Tk ? chosen_for({op, {d.B, d.Tq, d.NH, d.D}}) : nullptr, d);
}

void attention_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                       const AttentionDims& d) {
    attention_check(d);
    if (walked(attention_forward_cost, d)) return;
    const auto* variant = chosen_variant(Op::AttentionForward, attention_forward_variants(), d);
    if (!variant) return attention_plain_forward(out, lse, q, k, v, d);
    variant->run({out, lse, q, k, v}, d);
}

void attention_backward(const AttentionBackward& t, const AttentionDims& d) {
    attention_check(d);
    if (walked(attention_backward_cost, d, t.dbias != nullptr)) return;
    const auto* queries = chosen_variant(Op::AttentionQueries, attention_queries_variants(), d);
    const auto* keys = chosen_variant(Op::AttentionKeys, attention_keys_variants(), d);
    if (!queries || !keys) return attention_plain_backward(t, d);
    size_t used = 0;
    float* const deltas = scratch<float>(size_t(d.B) * d.NH * d.Tq, used);
    float* const sums = t.dbias ? scratch<float>(attention_sums(d) / sizeof(float), used) : nullptr;
    const AttentionGradients gradients = {t, deltas, sums};
    queries->run(gradients, d);
    keys->run(gradients, d);
}

// ---------------------------------------------------------------------------------------------------------
// tuning

// As the model has them: rows of q, k and v side by side.
static AttentionDims dims_of(const Task& task) {
    const auto [B, T, NH, D] = task.sizes;
    const size_t stride = 3 * size_t(NH) * size_t(D);
    return {.B = B, .Tq = T, .Tk = T, .NH = NH, .D = D, .q_stride = stride, .kv_stride = stride,
            .q_offset = 0, .k_offset = 0};
}

std::vector<Candidate> attention_candidates(const Task& task) {
    std::vector<Candidate> candidates;
    const auto add = [&](const auto& variants) {
        for (const auto* v : fitting(variants, dims_of(task))) candidates.push_back({v->name});
    };
    if (task.op == Op::AttentionForward) add(attention_forward_variants());
    if (task.op == Op::AttentionQueries) add(attention_queries_variants());
    if (task.op == Op::AttentionKeys) add(attention_keys_variants());
    return candidates;
}

std::string attention_kernels() {
    std::string names;
    for (const auto& v : attention_forward_variants()) names += fmt::format(" {}", v.name);
    for (const auto& v : attention_queries_variants()) names += fmt::format(" {}", v.name);
    for (const auto& v : attention_keys_variants()) names += fmt::format(" {}", v.name);
    return names;
}

Workload attention_workload(const Task& task, void* memory, bool compares) {
    const AttentionDims d = dims_of(task);
    const size_t C = size_t(d.NH) * d.D, rows = size_t(d.B) * d.Tq, count = rows * C;
    const bool forward = task.op == Op::AttentionForward, keys = task.op == Op::AttentionKeys;
    floatX *qkv, *out, *dout, *result, *expected = nullptr;
    float *lse, *expected_lse = nullptr, *deltas;
    Workload w;
    w.take(memory, qkv, 3 * count), w.take(memory, out, count), w.take(memory, dout, count);
    w.take(memory, result, 3 * count), w.take(memory, lse, rows * d.NH), w.take(memory, deltas, rows * d.NH);
    if (compares) w.take(memory, expected, 3 * count), w.take(memory, expected_lse, rows * d.NH);

    const AttentionForward inputs = {result, lse, qkv, qkv + C, qkv + 2 * C};
    const auto gradients = [=](floatX* to) -> AttentionBackward {
        return {.dq = to, .dk = to + C, .dv = to + 2 * C, .dout = dout, .out = out, .lse = lse, .q = qkv,
                .k = qkv + C, .v = qkv + 2 * C};
    };
    const auto run_queries = [=](const Candidate* c) {
        variant_of(attention_queries_variants(), c, d)->run({gradients(result), deltas}, d);
    };
    w.fill = [=] {
        fill_with_normals(qkv, 3 * count), fill_with_normals(out, count), fill_with_normals(dout, count);
        fill_with_normals(lse, rows * d.NH, 0.5f, std::log(float(d.Tq)));
        if (keys) run_queries(nullptr);                 // deltas
    };
    w.run = [=](const Candidate& c) {
        if (forward) variant_of(attention_forward_variants(), &c, d)->run(inputs, d);
        else if (keys) variant_of(attention_keys_variants(), &c, d)->run({gradients(result), deltas}, d);
        else run_queries(&c);
    };
    w.run_simplest = [=] {
        if (forward) attention_plain_forward(expected, expected_lse, qkv, qkv + C, qkv + 2 * C, d);
        else attention_plain_backward(gradients(expected), d);
    };
    const auto compare = [&](const char* tensor, size_t from, size_t columns, size_t stride) {
        // BF16 is off by some 2^-9 at each of a few roundings
        w.comparisons.push_back({tensor, result + from, expected + from, dtype_of<floatX>, rows, columns,
                                 stride, 0.03});
    };
    if (forward) compare("out", 0, C, C);
    else if (keys) compare("dk and dv", C, 2 * C, 3 * C);
    else compare("dq", 0, C, 3 * C);
    return w;
}

}  // namespace cuda
}  // namespace PRECISION
