// Which way each part of attention goes: a variant by tensor cores, chosen as variants.h has it,
// or the plain kernels for what these do not take.
#include "llmc/ops/cuda/attention.h"

#include <algorithm>

#include "llmc/ops/cuda/scratch.h"

namespace PRECISION {
namespace cuda {

// Sequences of T tokens, each of which sees all before it. Others, as when text is generated, take a default.
static Sized work_of(Part part, const AttentionDims& d) {
    if (d.Tq != d.Tk) return {part, {0, 0, 0, d.D}};
    return {part, {d.B, d.Tq, d.NH, d.D}};
}

// The time that a launch cannot do without on an A100, the GPU with the most bandwidth for its products.
static double seconds_of(const Floor& f) { return std::max(f.bytes / 2.0e12, f.mma_flops / 312e12); }

// Those that take these heads, that with the lowest floor first.
template <class Variants>
static std::vector<const typename Variants::element_type*> fitting(const Variants& variants,
                                                                   const AttentionDims& d) {
    std::vector<const typename Variants::element_type*> fit;
    for (const auto& v : variants)
        if (v.supports(d.D)) fit.push_back(&v);
    std::stable_sort(fit.begin(), fit.end(), [&](const auto* a, const auto* b) {
        return seconds_of(a->floor(d)) < seconds_of(b->floor(d));
    });
    return fit;
}
template <class Fitting> static std::vector<const char*> names_of(const Fitting& fit) {
    std::vector<const char*> names;
    for (const auto* v : fit) names.push_back(v->name);
    return names;
}

// Null where none takes these heads.
template <class Variants> static auto route_of(Part part, const Variants& variants, const AttentionDims& d) {
    const auto fit = fitting(variants, d);
    const int i = variant_of(work_of(part, d), names_of(fit));
    return i < 0 ? nullptr : fit[size_t(i)];
}

void attention_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                       const AttentionDims& d) {
    const auto* variant = route_of(Part::AttentionForward, attention_forward_variants(), d);
    if (!variant) return attention_plain_forward(out, lse, q, k, v, d);
    attention_check(d);
    variant->run({out, lse, q, k, v}, d);
}

void attention_backward(const AttentionBackward& t, const AttentionDims& d) {
    const auto* queries = route_of(Part::AttentionQueries, attention_queries_variants(), d);
    const auto* keys = route_of(Part::AttentionKeys, attention_keys_variants(), d);
    if (!queries || !keys) return attention_plain_backward(t, d);
    attention_check(d);
    const AttentionGradients gradients = {t, scratch<float>(size_t(d.B) * d.NH * d.Tq)};
    queries->run(gradients, d);
    keys->run(gradients, d);
}

// ---------------------------------------------------------------------------------------------------------
// tuning

// Channels of the heads here: all of the model's, or this rank's of them.
static size_t channels_of(const ScratchSizes& s) { return size_t(s.NH) * size_t(s.D); }

// The tensors of a layer: rows of q, k and v side by side, as the model has them, and the gradients of those.
namespace {
struct Layer {
    floatX *qkv, *out, *dqkv, *dout;
    float *lse, *deltas;
    size_t bytes = 0;

    Layer(const ScratchSizes& s, void* memory) {
        const size_t values = size_t(s.N) * channels_of(s), rows = size_t(s.N) * s.NH;
        const auto take = [&]<class T>(T*& p, size_t count) {
            p = reinterpret_cast<T*>(static_cast<std::byte*>(memory) + bytes);
            bytes += scratch_size(count * sizeof(T));
        };
        take(qkv, 3 * values), take(out, values), take(dqkv, 3 * values), take(dout, values);
        take(lse, rows), take(deltas, rows);
    }
};
}  // namespace

size_t attention_tuning_bytes(const ScratchSizes& s) { return Layer(s, nullptr).bytes; }

static AttentionDims dims_of(const ScratchSizes& s) {
    const size_t stride = 3 * channels_of(s);
    return {.B = s.N / s.T, .Tq = s.T, .Tk = s.T, .NH = s.NH, .D = s.D, .q_stride = stride,
            .kv_stride = stride, .q_offset = 0, .k_offset = 0};
}

bool attention_tuned(const ScratchSizes& s) {
    const AttentionDims d = dims_of(s);
    const auto chosen = [&](Part part, const auto& variants) {
        return !route_of(part, variants, d) || is_chosen(work_of(part, d));
    };
    return chosen(Part::AttentionForward, attention_forward_variants()) &&
           chosen(Part::AttentionQueries, attention_queries_variants()) &&
           chosen(Part::AttentionKeys, attention_keys_variants());
}

std::vector<VariantTiming> attention_tune(const ScratchSizes& s, void* memory, int repeats) {
    const Layer x(s, memory);
    const size_t C = channels_of(s);
    const AttentionDims d = dims_of(s);
    std::vector<VariantTiming> timings;
    const auto tune = [&](Part part, const auto& variants, const auto& tensors) {
        tune_variants(timings, work_of(part, d), names_of(fitting(variants, d)), repeats,
                      [&] { route_of(part, variants, d)->run(tensors, d); });
    };
    fill_with_normals(x.qkv, 3 * C * s.N * sizeof(floatX));
    fill_with_normals(x.dout, C * s.N * sizeof(floatX));
    const AttentionBackward backward = {.dq = x.dqkv, .dk = x.dqkv + C, .dv = x.dqkv + 2 * C, .dout = x.dout,
                                        .out = x.out, .lse = x.lse, .q = x.qkv, .k = x.qkv + C,
                                        .v = x.qkv + 2 * C};
    const AttentionGradients gradients = {backward, x.deltas};
    tune(Part::AttentionForward, attention_forward_variants(),
         AttentionForward{x.out, x.lse, x.qkv, x.qkv + C, x.qkv + 2 * C});
    tune(Part::AttentionQueries, attention_queries_variants(), gradients);
    tune(Part::AttentionKeys, attention_keys_variants(), gradients);
    return timings;
}

// ---------------------------------------------------------------------------------------------------------
// trial

static ScratchSizes little(ScratchSizes s) {
    s.T = s.N = std::min(s.T, 256);
    return s;
}

size_t attention_trial_bytes(const ScratchSizes& s) { return 2 * Layer(little(s), nullptr).bytes; }

// Columns [from, from + width) of rows of `stride`.
static Wide columns_of(const Wide& rows, size_t stride, size_t from, size_t width) {
    Wide columns;
    for (size_t at = from; at < rows.size(); at += stride)
        columns.insert(columns.end(), rows.begin() + ptrdiff_t(at), rows.begin() + ptrdiff_t(at + width));
    return columns;
}

void attention_try(const ScratchSizes& sizes, void* memory) {
    const AttentionDims whole = dims_of(sizes), d = dims_of(little(sizes));
    const auto* forward = route_of(Part::AttentionForward, attention_forward_variants(), whole);
    const auto* queries = route_of(Part::AttentionQueries, attention_queries_variants(), whole);
    const auto* keys = route_of(Part::AttentionKeys, attention_keys_variants(), whole);
    if (!forward || !queries || !keys) return;
    const size_t C = channels_of(sizes), count = C * size_t(d.Tq);
    const Layer x(little(sizes), memory);
    const Layer simple(little(sizes), static_cast<std::byte*>(memory) + x.bytes);
    fill_with_normals(x.qkv, 3 * count * sizeof(floatX));
    fill_with_normals(x.dout, count * sizeof(floatX));
    const floatX *q = x.qkv, *k = x.qkv + C, *v = x.qkv + 2 * C;
    attention_plain_forward(simple.out, simple.lse, q, k, v, d);
    forward->run({x.out, x.lse, q, k, v}, d);
    // BF16 is off by some 2^-9 at each of a few roundings
    constexpr double kMost = 0.03;
    Trial trial;
    trial.expect(text_of(work_of(Part::AttentionForward, whole)), "out",
                 apart(wide(x.out, count), wide(simple.out, count)), kMost);
    const auto gradients = [&](floatX* to) -> AttentionBackward {
        return {.dq = to, .dk = to + C, .dv = to + 2 * C, .dout = x.dout, .out = simple.out,
                .lse = simple.lse, .q = q, .k = k, .v = v};
    };
    attention_plain_backward(gradients(simple.dqkv), d);
    queries->run({gradients(x.dqkv), x.deltas}, d);
    keys->run({gradients(x.dqkv), x.deltas}, d);
    const Wide got = wide(x.dqkv, 3 * count), want = wide(simple.dqkv, 3 * count);
    const auto off = [&](size_t from, size_t width) {
        return apart(columns_of(got, 3 * C, from, width), columns_of(want, 3 * C, from, width));
    };
    trial.expect(text_of(work_of(Part::AttentionQueries, whole)), "dq", off(0, C), kMost);
    trial.expect(text_of(work_of(Part::AttentionKeys, whole)), "dk and dv", off(C, 2 * C), kMost);
    trial.end();
}

}  // namespace cuda
}  // namespace PRECISION
