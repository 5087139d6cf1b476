// Scores stand transposed, s[key][query]: the online softmax then works on vectors of queries, without a sum
// across lanes, and K and V are read in place. Only Q, O, dO and dQ are transposed, once per block of
// queries.
//
//     S = K Q^T     P = exp(S - lse)    O^T += V^T P
//     dP = V dO^T   dS = P (dP - delta)   dV += P dO   dK += dS Q   dQ^T += K^T dS
//     delta = rowsum(dO * O)
//
// Q carries the factor scale from its tile on. K and V of a head are packed once: rows of a packed qkv
// matrix lie far apart and share a few sets of the cache. Blocks above the diagonal, before the window or of
// other documents are skipped. Every sum runs in the order of the keys or of the queries, and depends neither
// on threads nor on other sequences. On CPUs with fast BF16 products attention_products.cpp computes.
#include "llmc/ops/cpu/attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/numbers/math.h"
#include "llmc/ops/cpu/products/tile.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

static constexpr int kQueries = 64, kKeys = 64;     // of a block
static constexpr real kNever = -std::numeric_limits<real>::infinity();

static int round_up(int n, int step) { return (n + step - 1) / step * step; }
static int padded(int D) { return round_up(D, kTileStep); }

// One thread's slice of context.scratch, in elements. `slice` counts on from there.
struct Slice {
    real* next;
    real* take(size_t count) { real* p = next; next += (count + 15) / 16 * 16; return p; }
};

// Four matrices of keys (K, V and their gradients), and the tiles of a block.
static size_t slice_elements(int T, int D) {
    const size_t Dp = size_t(padded(D)), tiles = 5 * Dp * kQueries + 2 * kKeys * kQueries + 4 * kQueries;
    return 4 * Dp * round_up(T, kKeys) + tiles + 16 * 16;
}

static Slice slice_of(std::byte* scratch, int thread, size_t elements) {
    return {reinterpret_cast<real*>(scratch) + size_t(thread) * elements};
}

// K and V of a head, (keys, Dp) in `real`, rows of zeros up to a whole block.
struct Keys { real *k, *v; };

static Keys pack(const floatX* k, const floatX* v, size_t stride, int keys, int D, Slice& slice) {
    const int rows = round_up(keys, kKeys), Dp = padded(D);
    const Keys packed = {slice.take(size_t(rows) * Dp), slice.take(size_t(rows) * Dp)};
    copy_tile(packed.k, Dp, k, stride, keys, D, rows, 1);
    copy_tile(packed.v, Dp, v, stride, keys, D, rows, 1);
    return packed;
}

// Queries [q0, q0 + nq) of a head of a sequence.
struct Queries {
    int nq, nqp;                // number, and number of columns in tiles
    size_t q, o, stats;         // offsets: of query row q0, of its output, of it in (B, NH, Tq)
    int first;                  // position of query q0, counted from the first key
    int keys;                   // that the last query sees
    int from;                   // the first block of keys that the first query sees
    int b, q0;
    const AttentionDims& d;
};

static Queries queries_of(const AttentionDims& d, int head, int q0) {
    const int b = head / d.NH, h = head % d.NH, nq = std::min(kQueries, d.Tq - q0);
    const int first = d.q_offset + q0 - d.k_offset;
    const size_t row = size_t(b) * d.Tq + q0;
    return {.nq = nq, .nqp = round_up(nq, W), .q = row * d.q_stride + size_t(h) * d.D,
            .o = (row * d.NH + h) * d.D, .stats = size_t(head) * d.Tq + q0,
            .first = first, .keys = std::min(first + nq, d.Tk),
            .from = d.first_key(q0, b) / kKeys * kKeys, .b = b, .q0 = q0, .d = d};
}

// head: of keys, over all sequences
static size_t key_offset(const AttentionDims& d, int head) {
    return size_t(head / d.KV()) * d.Tk * d.kv_stride + size_t(head % d.KV()) * d.D;
}

// A block of scores: queries against keys [k0, k0 + nk).
struct Pair {
    const Queries& q;
    int k0, nk;

    int first_query(int u) const { return std::clamp(k0 + u - q.first, 0, q.nq); }     // that sees key u
    int end_query(int u) const {                            // after the last that sees key u
        return q.d.bounded() ? std::clamp(q.d.end_query(k0 + u, q.b) - q.q0, 0, q.nqp) : q.nqp;
    }
    int keys_below(int j) const { return std::clamp(q.first + j - k0, 0, nk); }  // that queries before j see
};

static Pair pair_of(const Queries& q, int k0) { return {q, k0, std::min(kKeys, q.keys - k0)}; }

// (keys, queries) = A (keys, D) B (D, queries), as far as it is seen
static void scores(real* s, const real* a, const real* b, const Pair& p, int D) {
    for (int j = 0; j < p.q.nqp; j += 2 * W)
        multiply_add<false>(s + j, kQueries, {a, padded(D), 1}, b + j, kQueries,
                            round_up(p.keys_below(j + 2 * W), kTileRows), std::min(2 * W, p.q.nqp - j), D);
}

// (D, queries) += A^T (D, keys) S (keys, queries)
static void add_over_keys(real* c, const real* a, const real* s, const Pair& p, int D) {
    for (int j = 0; j < p.q.nqp; j += 2 * W)
        multiply_add(c + j, kQueries, {a, 1, padded(D)}, s + j, kQueries, round_up(D, kTileRows),
                     std::min(2 * W, p.q.nqp - j), p.keys_below(j + 2 * W));
}

// (keys, D) += S (keys, queries) B (queries, D)
static void add_over_queries(real* c, const real* s, const real* b, const Pair& p, int D) {
    const int Dp = padded(D), step = p.first_query(p.nk - 1) > 0 ? kTileRows : round_up(p.nk, kTileRows);
    for (int u = 0; u < p.nk; u += step) {
        const int q = p.first_query(u);
        multiply_add(c + u * Dp, Dp, {s + u * kQueries + q, kQueries, 1}, b + q * Dp, Dp, step, Dp,
                     p.q.nq - q);
    }
}

// Masks the vector that holds the first query to see key u: earlier queries get -inf, as do the queries whose
// window begins later. Returns the vector's start.
static int mask_row(real* s, const Pair& p, int u) {
    const int seen = p.first_query(u), start = seen / W * W;
    for (int q = start; q < seen; q++) s[u * kQueries + q] = kNever;
    for (int q = p.end_query(u); q < p.q.nqp; q++) s[u * kQueries + q] = kNever;
    return start;
}

// Per query, over the blocks so far. scale: factor of the earlier sums after the last block's larger maximum.
struct Softmaxes { real *max, *sum, *scale; };

// max[q] = max(max[q], s[u][q]) over the keys of q. Rows that every query sees go by fours, with a quarter of
// the reads and writes of max.
static void raise_max(real* max, const real* s, const int* start, const Pair& p) {
    const int nq = p.q.nqp, all = p.keys_below(1) / 4 * 4;
    for (int u = 0; u < all; u += 4)
        #pragma omp simd
        for (int q = 0; q < nq; q++) {
            const real *x = s + u * kQueries + q, a = x[0], b = x[kQueries], c = x[2 * kQueries],
                       d = x[3 * kQueries], ab = a > b ? a : b, cd = c > d ? c : d, abcd = ab > cd ? ab : cd;
            max[q] = abcd > max[q] ? abcd : max[q];
        }
    for (int u = all; u < p.nk; u++)
        for (int j = start[u]; j < nq; j += W)
            #pragma omp simd
            for (int q = j; q < j + W; q++)
                max[q] = s[u * kQueries + q] > max[q] ? s[u * kQueries + q] : max[q];
}

// s becomes exp(s - max). Returns whether a maximum has grown, that is whether a scale is not 1.
static bool online_softmax(real* s, const Softmaxes& state, const Pair& p) {
    const int nq = p.q.nqp;
    alignas(64) real max[kQueries], sum[kQueries];
    int start[kKeys];
    for (int u = 0; u < p.nk; u++) start[u] = mask_row(s, p, u);
    std::copy(state.max, state.max + nq, max);
    raise_max(max, s, start, p);
    bool grown = false;
    for (int q = 0; q < nq; q++) grown |= max[q] != state.max[q];
    #pragma omp simd
    for (int q = 0; q < nq; q++) {
        state.scale[q] = vexp(state.max[q] - max[q]);
        state.max[q] = max[q];
        sum[q] = state.sum[q] * state.scale[q];
    }
    for (int u = 0; u < p.nk; u++) {
        std::fill(s + u * kQueries, s + u * kQueries + start[u], real(0));
        for (int j = start[u]; j < nq; j += W)
            #pragma omp simd
            for (int q = j; q < j + W; q++) {
                const real e = vexp_negative(s[u * kQueries + q] - max[q]);
                s[u * kQueries + q] = e;
                sum[q] += e;
            }
    }
    std::copy(sum, sum + nq, state.sum);
    return grown;
}

static void scale_columns(real* tile, const real* scale, int rows, int nq) {
    for (int i = 0; i < rows; i++)
        #pragma omp simd
        for (int q = 0; q < nq; q++) tile[i * kQueries + q] *= scale[q];
}

static void forward_block(floatX* out, real* lse, const floatX* q, const Keys& keys, const AttentionDims& d,
                          const Queries& t, Slice slice) {
    const int D = d.D, Dp = padded(D);
    real *qT = slice.take(size_t(Dp) * kQueries), *oT = slice.take(size_t(Dp) * kQueries);
    real* s = slice.take(kKeys * kQueries);
    const Softmaxes state = {slice.take(kQueries), slice.take(kQueries), slice.take(kQueries)};
    std::fill(state.max, state.max + kQueries, std::numeric_limits<real>::lowest());
    std::fill(state.sum, state.sum + kQueries, real(0));
    std::fill(oT, oT + size_t(Dp) * kQueries, real(0));
    transpose<true>(qT, kQueries, q + t.q, d.q_stride, t.nq, D, attention_scale(d));

    for (int k0 = t.from; k0 < t.keys; k0 += kKeys) {
        const Pair p = pair_of(t, k0);
        scores(s, keys.k + size_t(k0) * Dp, qT, p, D);
        if (online_softmax(s, state, p)) scale_columns(oT, state.scale, D, t.nqp);
        add_over_keys(oT, keys.v + size_t(k0) * Dp, s, p, D);
    }
    for (int i = 0; i < t.nqp; i++) state.scale[i] = 1 / state.sum[i];
    scale_columns(oT, state.scale, D, t.nqp);
    transpose<false>(out + t.o, size_t(d.NH) * D, oT, kQueries, D, t.nq, 1);
    for (int i = 0; i < t.nq; i++) lse[t.stats + i] = state.max[i] + std::log(state.sum[i]);
}

static size_t checked_slice(const AttentionDims& d, int threads) {
    const size_t elements = slice_elements(d.Tk, d.D);
    use_scratch("attention", elements * sizeof(real) * size_t(threads));
    CHECK(d.q_offset >= d.k_offset, "attention: the query at {} sees no key, the first is at {}", d.q_offset,
          d.k_offset);
    return elements;
}

// A task is a head, or, where there are few heads for the threads, one of `per_head` tasks: each takes every
// per_head-th block of queries.
void attention_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                       const AttentionDims& d) {
    if (walked(attention_forward_cost, d)) return;
    if (d.B == 0 || d.NH == 0 || d.Tq == 0) return;
    CHECK(d.fits_documents(), "attention: one table of documents of two");
    if (attention_by_products(d.Tq, d.Tk, d.D)) return attention_products_forward(out, lse, q, k, v, d);
    const int threads = context.threads, heads = d.B * d.NH, blocks = (d.Tq + kQueries - 1) / kQueries;
    const int per_head = std::clamp(4 * threads / heads, 1, blocks);
    const size_t elements = checked_slice(d, threads);
    std::byte* scratch = context.scratch;
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int task = 0; task < heads * per_head; task++) {
        const int head = task / per_head;
        const size_t at = key_offset(d, head / d.group());
        Slice slice = slice_of(scratch, omp_get_thread_num(), elements);
        const Keys keys = pack(k + at, v + at, d.kv_stride, d.Tk, d.D, slice);
        for (int block = task % per_head; block < blocks; block += per_head)
            forward_block(out, lse, q, keys, d, queries_of(d, head, block * kQueries), slice);
    }
}

// p = exp(s - lse), in place of s; ds = p (dp - delta), in place of dp. Queries that pad the block have
// lse = inf, and so p = 0.
static void softmax_backward(real* s, real* dp, const real* lse, const real* delta, const Pair& p) {
    for (int u = 0; u < p.nk; u++) {
        const int start = mask_row(s, p, u);
        real *su = s + u * kQueries, *du = dp + u * kQueries;
        std::fill(su, su + start, real(0));
        std::fill(du, du + start, real(0));
        for (int j = start; j < p.q.nqp; j += W)
            #pragma omp simd
            for (int q = j; q < j + W; q++) {
                const real e = vexp_negative(su[q] - lse[q]);
                su[q] = e;
                du[q] = e * (du[q] - delta[q]);
            }
    }
    // keys that pad the last rows of a tile: no query sees them
    const size_t rest = size_t(round_up(p.nk, kTileRows) - p.nk) * kQueries;
    std::fill_n(s + size_t(p.nk) * kQueries, rest, real(0));
    std::fill_n(dp + size_t(p.nk) * kQueries, rest, real(0));
}

// Adds the block's terms to dk and dv, (keys, Dp) in `real`, and sets its rows of dq.
static void backward_block(const Keys& grads, const Keys& keys, const AttentionBackward& t,
                           const AttentionDims& d, const Queries& at, Slice slice) {
    const int D = d.D, Dp = padded(D);
    const size_t tile = size_t(Dp) * kQueries, o_stride = size_t(d.NH) * D;
    const real scale = attention_scale(d);
    real *qT = slice.take(tile), *doutT = slice.take(tile), *dqT = slice.take(tile), *q = slice.take(tile),
         *dout = slice.take(tile);
    real *s = slice.take(kKeys * kQueries), *dp = slice.take(kKeys * kQueries);
    real *lse = slice.take(kQueries), *delta = slice.take(kQueries);
    copy_tile(q, Dp, t.q + at.q, d.q_stride, at.nq, D, at.nqp, scale);
    copy_tile(dout, Dp, t.dout + at.o, o_stride, at.nq, D, at.nqp, 1);
    transpose<true>(qT, kQueries, q, Dp, at.nqp, D, 1);
    transpose<true>(doutT, kQueries, dout, Dp, at.nqp, D, 1);
    std::fill(dqT, dqT + tile, real(0));
    for (int i = 0; i < at.nqp; i++) {
        const floatX *a = t.dout + at.o + i * o_stride, *b = t.out + at.o + i * o_stride;
        lse[i] = i < at.nq ? t.lse[at.stats + i] : -kNever;
        delta[i] = i < at.nq
                       ? sum<real>(D, [&](int j, int left) { return load(a + j, left) * load(b + j, left); })
                       : 0;
    }
    for (int k0 = at.from; k0 < at.keys; k0 += kKeys) {
        const Pair p = pair_of(at, k0);
        const size_t row = size_t(k0) * Dp;
        scores(s, keys.k + row, qT, p, D);
        scores(dp, keys.v + row, doutT, p, D);
        softmax_backward(s, dp, lse, delta, p);
        add_over_queries(grads.v + row, s, dout, p, D);
        add_over_queries(grads.k + row, dp, q, p, D);
        add_over_keys(dqT, keys.k + row, dp, p, D);
    }
    transpose<false>(t.dq + at.q, d.q_stride, dqT, kQueries, D, at.nq, scale);
}

static void store_rows(floatX* out, size_t stride, const real* tile, int rows, int D) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < D; j += W)
            store(out + i * stride + j, load(tile + size_t(i) * padded(D) + j), D - j);
}

// A task is a head of keys: its dk and dv sum over its heads of queries and their blocks, in order.
static void gradients(const AttentionBackward& t, const AttentionDims& d) {
    if (attention_by_products(d.Tq, d.Tk, d.D)) return attention_products_backward(t, d);
    const int threads = context.threads;
    const size_t elements = checked_slice(d, threads), count = size_t(round_up(d.Tk, kKeys)) * padded(d.D);
    std::byte* scratch = context.scratch;
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int head = 0; head < d.B * d.KV(); head++) {
        const size_t at = key_offset(d, head);
        Slice slice = slice_of(scratch, omp_get_thread_num(), elements);
        const Keys keys = pack(t.k + at, t.v + at, d.kv_stride, d.Tk, d.D, slice);
        const Keys grads = {slice.take(count), slice.take(count)};
        std::fill(grads.k, grads.k + count, real(0));
        std::fill(grads.v, grads.v + count, real(0));
        for (int h = head * d.group(); h < (head + 1) * d.group(); h++)
            for (int q0 = 0; q0 < d.Tq; q0 += kQueries)
                backward_block(grads, keys, t, d, queries_of(d, h, q0), slice);
        store_rows(t.dk + at, d.kv_stride, grads.k, d.Tk, d.D);
        store_rows(t.dv + at, d.kv_stride, grads.v, d.Tk, d.D);
    }
}

// A bias's gradient is summed token by token, as bias_backward() does: a task has a head of one sequence, so
// its own sums would run in another order.
void attention_backward(const AttentionBackward& t, const AttentionDims& d) {
    if (walked(attention_backward_cost, d, t.dbias != nullptr)) return;
    CHECK(d.fits_documents(), "attention: one table of documents of two");
    gradients(t, d);
    if (!t.dbias) return;
    const int of_q = d.NH * d.D, of_k = d.KV() * d.D;
    add_rows(t.dbias, t.dq, d.B * d.Tq, of_q, d.q_stride);
    add_rows(t.dbias + of_q, t.dk, d.B * d.Tk, of_k, d.kv_stride);
    add_rows(t.dbias + of_q + of_k, t.dv, d.B * d.Tk, of_k, d.kv_stride);
}

}  // namespace cpu

Needs needs::attention(int threads, int Tq, int Tk, int D, int group) {
    const size_t bytes = cpu::attention_by_products(Tq, Tk, D) ? cpu::attention_products_scratch(Tk, D, group)
                                                               : cpu::slice_elements(Tk, D) * sizeof(real);
    return {.scratch = bytes * size_t(threads), .library = 0};
}

}  // namespace PRECISION
