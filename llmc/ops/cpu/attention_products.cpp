// Attention in BF16 by oneDNN's products of blocks, on CPUs that multiply BF16 faster than FP32. Products sum
// in FP32; P and dS are rounded between them, as on GPUs.
//
//     forward, a block of queries over blocks of keys:      S = Q K^T     P = exp(c S - max)     O += P V
//     backward, a block of keys over blocks of queries:
//         S^T = K Q^T      P^T = exp(c S^T - lse)           dV += P^T dO
//         dP^T = V dO^T    dS^T = P^T (dP^T - delta)        dK += c dS^T Q      dQ += c dS K
//
// c = scale, delta = rowsum(dO * O). Blocks above the diagonal, before the window or of other documents are
// skipped. Every sum runs in the order of the blocks, and depends neither on threads nor on other sequences.
// Rows of a head are packed first: where rows lie apart, oneDNN takes three times as long (2.6.3, AMX, Q K^T
// of 128 and 256 rows: 53 against 19 us).
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/numbers/math.h"
#include "llmc/base/numbers/simd.h"
#include "llmc/ops/cpu/attention.h"
#include "llmc/ops/cpu/products/dnnl.h"

namespace PRECISION {
namespace cpu {

using namespace simd;
static constexpr int kQueries = 128, kKeys = 256;       // of a block
// So few queries occur in passes over a prompt, whose number of keys differs from pass to pass: oneDNN would
// prepare a product for each.
static constexpr int kFewQueries = 64;
static constexpr size_t kLibrary = 1 << 20;             // bytes that a product of blocks may want
// Narrower heads use the loops of attention.cpp. With few columns, the keys with high scores for a query are
// much alike, and dS sums to 0 over these keys: the rounding error of dS is then large beside dQ (D = 5: 2.2
// times the error of rounding dQ once).
static constexpr int kNarrow = 16;

static bool fast_here(int D) {
    return dtype_of<floatX> == DType::BF16 && dnnl_computes(DType::BF16) && D >= kNarrow;
}
bool attention_by_products(int Tq, int Tk, int D) { return fast_here(D) && Tq > kFewQueries && Tq <= Tk; }

// One thread's slice of context.scratch.
struct Room {
    std::byte* next;
    template <class T> T* take(size_t count) {
        T* p = reinterpret_cast<T*>(next);
        next += (count * sizeof(T) + 63) / 64 * 64;
        return p;
    }
};

// Rows of dk and dv that backward keeps: of a block of keys, or of all keys where several heads of queries
// add to them, each from its first block to its last.
static int kept_rows(int T, int group) { return group > 1 ? T : kKeys; }

size_t attention_products_scratch(int T, int D, int group) {
    if (!fast_here(D)) return 0;
    const size_t block = size_t(kQueries) * kKeys, kept = size_t(kept_rows(T, group));
    const size_t rows = size_t(T) + 2 * kept + kQueries;
    return kLibrary + block * (2 * sizeof(real) + 2 * sizeof(floatX)) + rows * D * sizeof(real) +
           4 * size_t(T) * D * sizeof(floatX) + (size_t(T) + 2 * kQueries) * sizeof(real) + 20 * 64;
}

// Rows (rows, D) of a head, or their transpose.
struct BlockOf {
    const floatX* p;
    bool transposed = false;
};
static Product block_product(bool add, bool a_transposed, bool b_transposed, int m, int n, int k) {
    return {.m = m, .n = n, .k = k, .in = dtype_of<floatX>, .out = dtype_of<real>,
            .a_transposed = a_transposed, .b_transposed = b_transposed, .bias = false, .accumulate = add};
}
// c (m, n) = [c +] a (m, k) b (k, n)
static void multiply(real* c, bool add, const BlockOf& a, const BlockOf& b, int m, int n, int k,
                     std::byte* library) {
    const Product p = block_product(add, a.transposed, b.transposed, m, n, k);
    CHECK(dnnl_scratch(p, 1) <= kLibrary, "attention: a product of {}, {}, {} wants {} bytes", m, n, k,
          dnnl_scratch(p, 1));
    dnnl_product(p, {.c = c, .a = a.p, .b = b.p, .bias = nullptr}, library, 1);
}

static const floatX* pack(Room& room, const floatX* from, size_t stride, int rows, int D) {
    floatX* packed = room.take<floatX>(size_t(rows) * D);
    const size_t bytes = size_t(D) * sizeof(floatX);
    for (int i = 0; i < rows; i++) memcpy(packed + size_t(i) * D, from + i * stride, bytes);
    return packed;
}
static void store_rows(floatX* out, size_t stride, const real* from, int rows, int D, real scale) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < D; j += width<real>)
            store(out + i * stride + j, load(from + size_t(i) * D + j, D - j) * scale, D - j);
}

// ---------------------------------------------------------------------------------------------------------
// forward

// p = exp(c s - max) over keys from .. seen - 1 of n, rounded, and 0 over the others. Returns the factor of
// the earlier sums after the larger maximum.
static real online_softmax(floatX* p, real* s, int from, int seen, int n, real c, real& max,
                           real& sum_so_far) {
    real larger = max;
    #pragma omp simd reduction(max : larger)
    for (int u = from; u < seen; u++) larger = c * s[u] > larger ? c * s[u] : larger;
    for (int u = 0; u < from; u++) s[u] = 0;
    #pragma omp simd
    for (int u = from; u < seen; u++) s[u] = vexp_negative(c * s[u] - larger);
    for (int u = seen; u < n; u++) s[u] = 0;
    for (int u = 0; u < n; u += width<real>) store(p + u, load(s + u), n - u);
    const real scale = vexp(max - larger);
    sum_so_far = sum_so_far * scale + sum<real>(n, [&](int u, int left) { return load(s + u, left); });
    max = larger;
    return scale;
}

// What a head's queries see, packed.
struct HeadKeys { const floatX *k, *v; };

static void forward_block(floatX* out, real* lse, const floatX* q, const HeadKeys& t, const AttentionDims& d,
                          int head, int q0, Room room) {
    const int b = head / d.NH, h = head % d.NH, D = d.D, nq = std::min(kQueries, d.Tq - q0);
    const int first = d.apart() + q0, keys = std::min(first + nq, d.Tk);
    const int begin = d.first_key(q0, b) / kKeys * kKeys;
    const size_t row = size_t(b) * d.Tq + q0;
    const real c = attention_scale(d);
    std::byte* library = room.take<std::byte>(kLibrary);
    real *s = room.take<real>(kQueries * kKeys), *o = room.take<real>(size_t(kQueries) * D);
    real *max = room.take<real>(kQueries), *total = room.take<real>(kQueries);
    floatX* p = room.take<floatX>(kQueries * kKeys);
    const floatX* block = pack(room, q + row * d.q_stride + size_t(h) * D, d.q_stride, nq, D);
    std::fill(max, max + nq, std::numeric_limits<real>::lowest());
    std::fill(total, total + nq, real(0));
    for (int k0 = begin; k0 < keys; k0 += kKeys) {
        const int nk = std::min(kKeys, keys - k0);
        multiply(s, false, {block}, {t.k + size_t(k0) * D, true}, nq, nk, D, library);
        for (int i = 0; i < nq; i++) {
            const int seen = std::clamp(first + i + 1 - k0, 0, nk);
            const int from = std::clamp(d.first_key(q0 + i, b) - k0, 0, nk);
            const real scale = online_softmax(p + i * nk, s + i * nk, from, seen, nk, c, max[i], total[i]);
            if (k0 == begin || scale == 1) continue;
            #pragma omp simd
            for (int j = 0; j < D; j++) o[i * D + j] *= scale;
        }
        multiply(o, k0 > begin, {p}, {t.v + size_t(k0) * D}, nq, D, nk, library);
    }
    for (int i = 0; i < nq; i++) {
        store_rows(out + (row + i) * d.NH * D + size_t(h) * D, 0, o + size_t(i) * D, 1, D, 1 / total[i]);
        lse[size_t(head) * d.Tq + q0 + i] = max[i] + std::log(total[i]);
    }
}

static Room room_of(std::byte* scratch, const AttentionDims& d) {
    const size_t bytes = attention_products_scratch(d.Tk, d.D, d.group()) / 64 * 64;
    return {scratch + size_t(omp_get_thread_num()) * bytes};
}
static void use_rooms(const AttentionDims& d) {
    use_scratch("attention", attention_products_scratch(d.Tk, d.D, d.group()) * size_t(context.threads));
}

// A task is a head, or, where there are few heads for the threads, one of `per_head` tasks: each takes every
// per_head-th block of queries.
void attention_products_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                                const AttentionDims& d) {
    use_rooms(d);
    const int threads = context.threads, heads = d.B * d.NH, blocks = (d.Tq + kQueries - 1) / kQueries;
    const int per_head = std::clamp(4 * threads / heads, 1, blocks);
    std::byte* scratch = context.scratch;
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int task = 0; task < heads * per_head; task++) {
        const int head = task / per_head, h = head % d.NH / d.group();
        const size_t at = size_t(head / d.NH) * d.Tk * d.kv_stride + size_t(h) * d.D;
        Room room = room_of(scratch, d);
        const HeadKeys keys = {pack(room, k + at, d.kv_stride, d.Tk, d.D),
                               pack(room, v + at, d.kv_stride, d.Tk, d.D)};
        for (int block = task % per_head; block < blocks; block += per_head)
            forward_block(out, lse, q, keys, d, head, block * kQueries, room);
    }
}

// ---------------------------------------------------------------------------------------------------------
// backward

// Rows of keys, columns of queries: p = exp(c s - lse), ds = p (dp - delta), rounded; 0 for the queries that
// do not see the key, before `unseen` and from `end` on.
static void softmax_backward(floatX* p, floatX* ds, real* s, real* dp, const real* lse, const real* delta,
                             int unseen, int end, int n, real c) {
    for (int j = 0; j < unseen; j++) s[j] = dp[j] = 0;
    for (int j = end; j < n; j++) s[j] = dp[j] = 0;
    #pragma omp simd
    for (int j = unseen; j < end; j++) {
        const real e = vexp_negative(c * s[j] - lse[j]);
        s[j] = e;
        dp[j] = e * (dp[j] - delta[j]);
    }
    for (int j = 0; j < n; j += width<real>) {
        store(p + j, load(s + j), n - j);
        store(ds + j, load(dp + j), n - j);
    }
}

// A head of keys, packed, and the sums of its gradients.
struct HeadGradients {
    const floatX *k, *v;
    real *dk, *dv;              // (kept_rows(), D)
};

static void store_gradients(const HeadGradients& t, const AttentionBackward& to, size_t at, int rows,
                            const AttentionDims& d) {
    store_rows(to.dk + at, d.kv_stride, t.dk, rows, d.D, attention_scale(d));
    store_rows(to.dv + at, d.kv_stride, t.dv, rows, d.D, 1);
}

// What head `head` of queries adds: key block after key block, each over the queries that see the block.
// at_k: offset of the first key. A block's sums are stored at once where no other head adds to them.
static void backward_head(const AttentionBackward& t, const AttentionDims& d, int head,
                          const HeadGradients& keys, size_t at_k, Room room) {
    const int b = head / d.NH, h = head % d.NH, D = d.D, apart = d.apart();
    const bool alone = d.group() == 1;
    const size_t o_stride = size_t(d.NH) * D, at_q = size_t(b) * d.Tq * d.q_stride + size_t(h) * D,
                 at_o = size_t(b) * d.Tq * o_stride + size_t(h) * D;
    const real c = attention_scale(d), *lse = t.lse + size_t(head) * d.Tq;
    std::byte* library = room.take<std::byte>(kLibrary);
    real *s = room.take<real>(kKeys * kQueries), *dp = room.take<real>(kKeys * kQueries);
    floatX *p = room.take<floatX>(kKeys * kQueries), *ds = room.take<floatX>(kKeys * kQueries);
    real *dq = room.take<real>(size_t(d.Tq) * D), *delta = room.take<real>(size_t(d.Tq));
    const floatX* q = pack(room, t.q + at_q, d.q_stride, d.Tq, D);
    const floatX* dout = pack(room, t.dout + at_o, o_stride, d.Tq, D);
    for (int i = 0; i < d.Tq; i++) {
        const floatX *x = dout + size_t(i) * D, *y = t.out + at_o + i * o_stride;
        delta[i] = sum<real>(D, [&](int j, int left) { return load(x + j, left) * load(y + j, left); });
    }
    for (int k0 = 0; k0 < d.Tk; k0 += kKeys) {
        const int nk = std::min(kKeys, d.Tk - k0), start = std::max(0, k0 - apart) / kQueries * kQueries;
        const size_t row = size_t(k0) * D;
        const HeadGradients block = {keys.k + row, keys.v + row, keys.dk + (alone ? 0 : row),
                                     keys.dv + (alone ? 0 : row)};
        if (alone)
            for (real* sum : {block.dk, block.dv}) std::fill(sum, sum + size_t(nk) * D, real(0));
        const int end = d.end_query(k0 + nk - 1, b);
        for (int q0 = start; q0 < end; q0 += kQueries) {
            const int nq = std::min(kQueries, d.Tq - q0), seen = std::min(nk, q0 + nq + apart - k0);
            if (seen <= 0) continue;
            const floatX *queries = q + size_t(q0) * D, *grads = dout + size_t(q0) * D;
            multiply(s, false, {block.k}, {queries, true}, seen, nq, D, library);
            multiply(dp, false, {block.v}, {grads, true}, seen, nq, D, library);
            for (int u = 0; u < seen; u++)
                softmax_backward(p + u * nq, ds + u * nq, s + u * nq, dp + u * nq, lse + q0, delta + q0,
                                 std::clamp(k0 + u - apart - q0, 0, nq),
                                 std::clamp(d.end_query(k0 + u, b) - q0, 0, nq), nq, c);
            multiply(block.dv, true, {p}, {grads}, seen, D, nq, library);
            multiply(block.dk, true, {ds}, {queries}, seen, D, nq, library);
            const bool adds = k0 > d.first_key(q0, b) / kKeys * kKeys;
            multiply(dq + size_t(q0) * D, adds, {ds, true}, {block.k}, nq, D, seen, library);
        }
        if (alone) store_gradients(block, t, at_k + size_t(k0) * d.kv_stride, nk, d);
    }
    store_rows(t.dq + at_q, d.q_stride, dq, d.Tq, D, c);
}

// A task is a head of keys.
void attention_products_backward(const AttentionBackward& t, const AttentionDims& d) {
    use_rooms(d);
    std::byte* scratch = context.scratch;
    const int group = d.group();
    const size_t kept = size_t(kept_rows(d.Tk, group)) * d.D;
    #pragma omp parallel for schedule(dynamic) num_threads(context.threads)
    for (int head = 0; head < d.B * d.KV(); head++) {
        const size_t at = size_t(head / d.KV()) * d.Tk * d.kv_stride + size_t(head % d.KV()) * d.D;
        Room room = room_of(scratch, d);
        const HeadGradients keys = {pack(room, t.k + at, d.kv_stride, d.Tk, d.D),
                                    pack(room, t.v + at, d.kv_stride, d.Tk, d.D),
                                    room.take<real>(kept), room.take<real>(kept)};
        if (group > 1)
            for (real* sum : {keys.dk, keys.dv}) std::fill(sum, sum + kept, real(0));
        for (int h = head * group; h < (head + 1) * group; h++) backward_head(t, d, h, keys, at, room);
        if (group > 1) store_gradients(keys, t, at, d.Tk, d);
    }
}

// ---------------------------------------------------------------------------------------------------------

// The products of the loops above. Where a document begins in any block of keys, any block may be the first
// that a sum has.
void attention_products_warm_up(const AttentionShape& s) {
    if (!fast_here(s.D) || s.Tq <= kFewQueries) return;
    const AttentionDims d = {.B = 1, .Tq = s.Tq, .Tk = s.Tk, .NH = 1, .D = s.D, .q_stride = 0, .kv_stride = 0,
                             .q_offset = s.apart, .k_offset = 0, .window = s.window};
    const auto begin = [&](int q0) { return d.first_key(q0) / kKeys * kKeys; };
    const auto build = [](bool add, bool a_transposed, bool b_transposed, int m, int n, int k) {
        dnnl_scratch(block_product(add, a_transposed, b_transposed, m, n, k), 1);
    };
    for (int q0 = 0; q0 < s.Tq; q0 += kQueries) {
        const int nq = std::min(kQueries, s.Tq - q0), keys = std::min(s.apart + q0 + nq, s.Tk);
        for (int k0 = begin(q0); k0 < keys; k0 += kKeys) {
            const int nk = std::min(kKeys, keys - k0);
            build(false, false, true, nq, nk, s.D);
            build(k0 > begin(q0), false, false, nq, s.D, nk);
            if (s.documents) build(false, false, false, nq, s.D, nk);
        }
    }
    for (int k0 = 0; s.backward && k0 < s.Tk; k0 += kKeys) {
        const int nk = std::min(kKeys, s.Tk - k0), start = std::max(0, k0 - s.apart) / kQueries * kQueries;
        for (int q0 = start; q0 < d.end_query(k0 + nk - 1); q0 += kQueries) {
            const int nq = std::min(kQueries, s.Tq - q0), seen = std::min(nk, q0 + nq + s.apart - k0);
            if (seen <= 0) continue;
            build(false, false, true, seen, nq, s.D);
            build(true, false, false, seen, s.D, nq);
            build(k0 > begin(q0), true, false, nq, s.D, seen);
            if (s.documents) build(false, true, false, nq, s.D, seen);
        }
    }
}

}  // namespace cpu
}  // namespace PRECISION
