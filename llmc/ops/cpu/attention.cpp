// Scores stand transposed, s[key][query]: the online softmax then works on vectors of queries, without a sum across
// lanes, and K and V are read as they lie. Only Q, O, dO and dQ are transposed, once per block of queries.
//
//     S = K Q^T     P = exp(S - lse)    O^T += V^T P
//     dP = V dO^T   dS = P (dP - delta)   dV += P dO   dK += dS Q   dQ^T += K^T dS      delta = rowsum(dO * O)
//
// Q carries the factor 1 / sqrt(D) from its tile on. Blocks of keys above the diagonal are skipped. Every sum runs in
// the order of the keys or of the queries, so nothing depends on threads or on the other sequences.
#include "llmc/ops/cpu/attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/math.h"
#include "llmc/ops/cpu/tile.h"

namespace PRECISION {
namespace cpu {

using namespace simd;
static constexpr int W = width<real>;
static constexpr int kQueries = 64, kKeys = 64;     // of a block
static constexpr real kNever = -std::numeric_limits<real>::infinity();

static int round_up(int n, int step) { return (n + step - 1) / step * step; }
static int padded(int D) { return round_up(D, kTileStep); }

// One thread's part of context.scratch, in elements. `slice` counts on from there.
struct Slice {
    real* next;
    real* take(size_t count) { real* p = next; next += (count + 15) / 16 * 16; return p; }
};

static size_t slice_elements(int T, int D) {
    const size_t Dp = size_t(padded(D));
    return Dp * (2 * kKeys + 5 * kQueries) + 2 * kKeys * kQueries + 4 * kQueries + 2 * Dp * round_up(T, kKeys) + 16 * 16;
}

size_t attention_scratch(int T, int D) { return slice_elements(T, D) * sizeof(real) * size_t(context.threads); }

static Slice slice_of(std::byte* scratch, int thread, size_t elements) {
    return {reinterpret_cast<real*>(scratch) + size_t(thread) * elements};
}

// What a task works on: one head of one sequence, and of its queries the block [q0, q0 + nq).
struct Block {
    int b, h, q0, nq;
    size_t q, kv, o, stats;     // offsets: of query row q0, of key row 0, of output row q0, of query q0 in (B, NH, Tq)
    int first;                  // position of query q0, counted from the first key
    int keys;                   // that its last query sees
};

static Block block_of(const AttentionDims& d, int b, int h, int q0) {
    const int nq = std::min(kQueries, d.Tq - q0), first = d.q_offset + q0 - d.k_offset;
    const size_t row = size_t(b) * d.Tq + q0, channel = size_t(h) * d.D;
    return {.b = b, .h = h, .q0 = q0, .nq = nq,
            .q = row * d.q_stride + channel, .kv = size_t(b) * d.Tk * d.kv_stride + channel,
            .o = row * d.NH * d.D + channel, .stats = (size_t(b) * d.NH + h) * d.Tq + q0,
            .first = first, .keys = std::min(first + nq, d.Tk)};
}

// Rows of s are keys k0.. , columns queries from `first`: what a query does not see becomes `value`.
static void mask(real* s, real value, int k0, int nk, int first, int nq) {
    for (int u = std::max(0, first + 1 - k0); u < nk; u++)
        std::fill(s + u * kQueries, s + u * kQueries + std::min(nq, k0 + u - first), value);
}

struct Softmax { real *max, *sum, *scale; };    // of each query, so far; scale: what the last block changed the maximum by

// p = exp(s - max) over the block's keys, in place. Below kTiny an exp is 0: subnormal numbers are slow.
static void online_softmax(real* s, const Softmax& state, int nk, int nq) {
    constexpr real kTiny = sizeof(real) == 8 ? -700 : -87;
    alignas(64) real max[kQueries], sum[kQueries];
    for (int q = 0; q < nq; q++) max[q] = state.max[q];
    for (int u = 0; u < nk; u++)
        #pragma omp simd
        for (int q = 0; q < nq; q++) max[q] = s[u * kQueries + q] > max[q] ? s[u * kQueries + q] : max[q];
    #pragma omp simd
    for (int q = 0; q < nq; q++) {
        state.scale[q] = vexp(state.max[q] - max[q]);
        state.max[q] = max[q];
        sum[q] = state.sum[q] * state.scale[q];
    }
    for (int u = 0; u < nk; u++)
        #pragma omp simd
        for (int q = 0; q < nq; q++) {
            const real x = s[u * kQueries + q] - max[q];
            const real p = x < kTiny ? 0 : vexp(x < kTiny ? kTiny : x);
            s[u * kQueries + q] = p;
            sum[q] += p;
        }
    for (int q = 0; q < nq; q++) state.sum[q] = sum[q];
}

static void scale_columns(real* tile, const real* scale, int rows, int nq) {
    for (int i = 0; i < rows; i++)
        #pragma omp simd
        for (int q = 0; q < nq; q++) tile[i * kQueries + q] *= scale[q];
}

static void forward_block(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                          const AttentionDims& d, const Block& t, Slice slice) {
    const int D = d.D, Dp = padded(D), nqp = round_up(t.nq, W);
    real *qT = slice.take(size_t(Dp) * kQueries), *oT = slice.take(size_t(Dp) * kQueries);
    real *kt = slice.take(size_t(Dp) * kKeys), *vt = slice.take(size_t(Dp) * kKeys), *s = slice.take(kKeys * kQueries);
    const Softmax state = {.max = slice.take(kQueries), .sum = slice.take(kQueries), .scale = slice.take(kQueries)};
    std::fill(state.max, state.max + kQueries, std::numeric_limits<real>::lowest());
    std::fill(state.sum, state.sum + kQueries, real(0));
    std::fill(oT, oT + size_t(Dp) * kQueries, real(0));
    transpose<true>(qT, kQueries, q + t.q, d.q_stride, t.nq, D, 1 / std::sqrt(real(D)));

    for (int k0 = 0; k0 < t.keys; k0 += kKeys) {
        const int nk = std::min(kKeys, t.keys - k0), nkp = round_up(nk, kTileRows);
        copy_tile(kt, Dp, k + t.kv + k0 * d.kv_stride, d.kv_stride, nk, D, nkp, 1);
        copy_tile(vt, Dp, v + t.kv + k0 * d.kv_stride, d.kv_stride, nk, D, nk, 1);
        std::fill(s, s + nkp * kQueries, real(0));
        multiply_add(s, kQueries, {kt, Dp, 1}, qT, kQueries, nkp, nqp, D);
        mask(s, kNever, k0, nk, t.first, nqp);
        online_softmax(s, state, nk, nqp);
        scale_columns(oT, state.scale, D, nqp);
        multiply_add(oT, kQueries, {vt, 1, Dp}, s, kQueries, round_up(D, kTileRows), nqp, nk);
    }
    for (int i = 0; i < nqp; i++) state.scale[i] = 1 / state.sum[i];
    scale_columns(oT, state.scale, D, nqp);
    transpose<false>(out + t.o, size_t(d.NH) * D, oT, kQueries, D, t.nq, 1);
    for (int i = 0; i < t.nq; i++) lse[t.stats + i] = state.max[i] + std::log(state.sum[i]);
}

void attention_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v, const AttentionDims& d) {
    const size_t elements = slice_elements(0, d.D);
    const int threads = context.threads, heads = d.B * d.NH, blocks = (d.Tq + kQueries - 1) / kQueries;
    std::byte* scratch = context.scratch;
    CHECK(context.scratch_bytes >= elements * sizeof(real) * threads, "attention: %zu bytes of scratch, %zu needed",
          context.scratch_bytes, elements * sizeof(real) * threads);
    CHECK(d.q_offset >= d.k_offset, "attention: a query at position %d sees no key, the first is at %d", d.q_offset, d.k_offset);
    // the late blocks see the most keys: they go first, so that threads finish together
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t task = 0; task < int64_t(heads) * blocks; task++) {
        const int head = int(task % heads), q0 = (blocks - 1 - int(task / heads)) * kQueries;
        forward_block(out, lse, q, k, v, d, block_of(d, head / d.NH, head % d.NH, q0),
                      slice_of(scratch, omp_get_thread_num(), elements));
    }
}

// p = exp(s - lse), ds = p (dp - delta) in place of dp. Queries that pad the block have lse = inf, so p = 0.
static void softmax_backward(real* s, real* dp, const real* lse, const real* delta, int nk, int nq) {
    constexpr real kTiny = sizeof(real) == 8 ? -700 : -87;
    for (int u = 0; u < nk; u++)
        #pragma omp simd
        for (int q = 0; q < nq; q++) {
            const real x = s[u * kQueries + q] - lse[q];
            const real p = x < kTiny ? 0 : vexp(x < kTiny ? kTiny : x);
            s[u * kQueries + q] = p;
            dp[u * kQueries + q] = p * (dp[u * kQueries + q] - delta[q]);
        }
}

// Adds the block's part to dk and dv, (Tk, Dp) in `real`, and sets its rows of dq.
static void backward_block(real* dk, real* dv, const AttentionBackward& t, const AttentionDims& d, const Block& at, Slice slice) {
    const int D = d.D, Dp = padded(D), nqp = round_up(at.nq, W);
    const size_t o_stride = size_t(d.NH) * D;
    const real scale = 1 / std::sqrt(real(D));
    real *qT = slice.take(size_t(Dp) * kQueries), *doT = slice.take(size_t(Dp) * kQueries), *dqT = slice.take(size_t(Dp) * kQueries);
    real *q = slice.take(size_t(Dp) * kQueries), *dout = slice.take(size_t(Dp) * kQueries);
    real *k = slice.take(size_t(Dp) * kKeys), *v = slice.take(size_t(Dp) * kKeys);
    real *s = slice.take(kKeys * kQueries), *dp = slice.take(kKeys * kQueries);
    real *lse = slice.take(kQueries), *delta = slice.take(kQueries);
    transpose<true>(qT, kQueries, t.q + at.q, d.q_stride, at.nq, D, scale);
    transpose<true>(doT, kQueries, t.dout + at.o, o_stride, at.nq, D, 1);
    copy_tile(q, Dp, t.q + at.q, d.q_stride, at.nq, D, nqp, scale);
    copy_tile(dout, Dp, t.dout + at.o, o_stride, at.nq, D, nqp, 1);
    std::fill(dqT, dqT + size_t(Dp) * kQueries, real(0));
    for (int i = 0; i < nqp; i++) {
        const floatX *a = t.dout + at.o + i * o_stride, *b = t.out + at.o + i * o_stride;
        lse[i] = i < at.nq ? t.lse[at.stats + i] : -kNever;
        delta[i] = i < at.nq ? sum<real>(D, [&](int j, int left) { return load(a + j, left) * load(b + j, left); }) : 0;
    }
    for (int k0 = 0; k0 < at.keys; k0 += kKeys) {
        const int nk = std::min(kKeys, at.keys - k0), nkp = round_up(nk, kTileRows);
        copy_tile(k, Dp, t.k + at.kv + k0 * d.kv_stride, d.kv_stride, nk, D, nkp, 1);
        copy_tile(v, Dp, t.v + at.kv + k0 * d.kv_stride, d.kv_stride, nk, D, nkp, 1);
        std::fill(s, s + nkp * kQueries, real(0));
        std::fill(dp, dp + nkp * kQueries, real(0));
        multiply_add(s, kQueries, {k, Dp, 1}, qT, kQueries, nkp, nqp, D);
        multiply_add(dp, kQueries, {v, Dp, 1}, doT, kQueries, nkp, nqp, D);
        mask(s, kNever, k0, nk, at.first, nqp);
        softmax_backward(s, dp, lse, delta, nk, nqp);
        multiply_add(dv + size_t(k0) * Dp, Dp, {s, kQueries, 1}, dout, Dp, nkp, Dp, at.nq);
        multiply_add(dk + size_t(k0) * Dp, Dp, {dp, kQueries, 1}, q, Dp, nkp, Dp, at.nq);
        multiply_add(dqT, kQueries, {k, 1, Dp}, dp, kQueries, round_up(D, kTileRows), nqp, nk);
    }
    transpose<false>(t.dq + at.q, d.q_stride, dqT, kQueries, D, at.nq, scale);
}

static void store_rows(floatX* out, size_t stride, const real* tile, int rows, int D) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < D; j += W) store(out + i * stride + j, load(tile + size_t(i) * padded(D) + j), D - j);
}

// A head of a sequence is one task: its dk and dv sum over its blocks of queries, in order.
void attention_backward(const AttentionBackward& t, const AttentionDims& d) {
    const size_t elements = slice_elements(d.Tk, d.D), keys = size_t(round_up(d.Tk, kKeys)) * padded(d.D);
    const int threads = context.threads;
    std::byte* scratch = context.scratch;
    CHECK(context.scratch_bytes >= elements * sizeof(real) * threads, "attention: %zu bytes of scratch, %zu needed",
          context.scratch_bytes, elements * sizeof(real) * threads);
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int head = 0; head < d.B * d.NH; head++) {
        Slice slice = slice_of(scratch, omp_get_thread_num(), elements);
        real *dk = slice.take(keys), *dv = slice.take(keys);
        std::fill(dk, dk + keys, real(0));
        std::fill(dv, dv + keys, real(0));
        Block block = {};
        for (int q0 = 0; q0 < d.Tq; q0 += kQueries) {
            block = block_of(d, head / d.NH, head % d.NH, q0);
            backward_block(dk, dv, t, d, block, slice);
        }
        store_rows(t.dk + block.kv, d.kv_stride, dk, d.Tk, d.D);
        store_rows(t.dv + block.kv, d.kv_stride, dv, d.Tk, d.D);
    }
}

}  // namespace cpu
}  // namespace PRECISION
