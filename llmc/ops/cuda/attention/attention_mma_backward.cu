// Gradients of attention by tensor cores, BF16 (Dao 2023, "FlashAttention-2", arXiv 2307.08691).
//
//     S = Q K^T    P = exp(S - lse)    dP = dO V^T    dS = P (dP - delta)    delta = rowsum(dO * O)
//     dQ = dS K    dK = dS^T Q    dV = P^T dO
//
// Two passes compute S and dP: for dQ, blocks own queries; for dK and dV, blocks own keys. Every sum has a
// fixed order and stays in registers. Adding up dQ in memory instead would save 2 of 7 products and cost the
// fixed order, or a wait of block for block.
#include "llmc/ops/cuda/attention/attention_mma.h"

namespace PRECISION {
namespace cuda {

template <int D, int M> static constexpr bool kHold = M * D <= 64;
// Whether dQ's kernel also sums its columns: in the widest blocks it spills on sm_90, and dQ is read again.
static constexpr bool sums_queries(int D, int M) { return M * D < 256; }

// dQ, and delta for the other pass
// FLOOR bytes = (4 B Tq + 2 keys) NH D sizeof(floatX) + 8 B NH Tq + 4 sums, mma flops = 6 D pairs NH B,
// for the pairs in tiles that are not skipped, and the keys that blocks read for them, mostly from L2
template <int D, int M, int N, bool Bounded>
__global__ void __launch_bounds__(kThreads, (D == 32 && M <= 2 - Bounded) || (M == 1 && D == 128) ? 3 : 2)
attention_mma_queries_kernel(AttentionBackward x, float* deltas, PartialSums sums, AttentionDims d,
                             HeadOrder order, float scale) {
    DYN_SHARED(floatX, shared);
    constexpr int pitch = kPitch<D>, rows = 16 * M * kWarps, tile = N * pitch;
    floatX *sQ = shared, *sdO = sQ + rows * pitch, *sK = sdO + rows * pitch, *sV = sK + 2 * tile;
    int* const bounds = reinterpret_cast<int*>(sV + 2 * tile);
    const QueryHead at(order);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, start = at.tile * rows;
    const int first = start + warp * 16 * M, row = first + lane / 4;       // row: and each eighth after it
    const int offset = d.q_offset - d.k_offset, tiles = div_up(seen_before(d, start + rows), N);
    const int seen = first < d.Tq ? seen_before(d, first + 16 * M) : 0;    // by this warp
    const int from = Bounded ? d.first_key(start, at.sequence(order)) / N : 0;
    if (Bounded) first_keys<rows>(bounds, d, start, at.sequence(order));
    const size_t out_stride = size_t(d.NH) * D;
    const auto fetch = [&](int j) {
        fetch_rows<D, N>(sK + j % 2 * tile, {x.k + at.keys(d, order), d.kv_stride}, 2 * tile,
                         {x.v + at.keys(d, order), d.kv_stride}, j * N, d.Tk);
    };
    fetch_rows<D, rows>(sQ, {x.q + at.queries(d, order), d.q_stride}, rows * pitch,
                        {x.dout + at.outputs(d, order), out_stride}, start, d.Tq);
    ptx::cp_async_commit();
    fetch(from);
    ptx::cp_async_commit();
    ptx::cp_async_wait<1>();
    __syncthreads();

    floatX* own = sQ + warp * 16 * M * pitch;
    const int* lowest = bounds + warp * 16 * M;
    const Left<D, M, kHold<D, M>> Q(own), dO(sdO + warp * 16 * M * pitch);
    float lse[M][2], delta[M][2];               // lse in units of the exponent of 2
    #pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        const int t = row + 8 * i;
        float sum = 0;
        for (int c = lane % 4 * Pack::size; t < d.Tq && c < D; c += 4 * Pack::size) {
            const Pack o = Pack::load(x.out + at.outputs(d, order) + t * out_stride + c);
            const Pack g = Pack::load(sdO + (t - start) * pitch + c);
            #pragma unroll
            for (int k = 0; k < Pack::size; k++) sum += float(o[k]) * float(g[k]);
        }
        delta[i / 2][i % 2] = quad_sum(sum);
        if (lane % 4 == 0 && t < d.Tq) deltas[at.statistics(d, order) + t] = delta[i / 2][i % 2];
        lse[i / 2][i % 2] = t < d.Tq ? x.lse[at.statistics(d, order) + t] * kLog2e : INFINITY;
    }

    const float exponent = scale * kLog2e;
    float dQ[M][D / 8][4] = {};
    for (int j = from; j < tiles; j++) {
        if (j + 1 < tiles) fetch(j + 1);
        ptx::cp_async_commit();
        ptx::cp_async_wait<1>();
        __syncthreads();
        if (j * N < seen && (!Bounded || (j + 1) * N > lowest[0])) {
            float s[M][N / 8][4], dp[M][N / 8][4];
            products<D, M, N>(s, Q, sK + j % 2 * tile);
            products<D, M, N>(dp, dO, sV + j % 2 * tile);
            const bool last = (j + 1) * N > d.Tk || (j + 1) * N > offset + first + 1;
            if constexpr (Bounded) {            // both ends at once: apart, they spill
                if (last || j * N < lowest[16 * M - 1])
                    hide<M, N>(s, [&](int r, int c) {
                        const int u = j * N + c;
                        return u > min(offset + first + r, d.Tk - 1) || u < lowest[r];
                    });
            } else if (last) {
                hide<M, N>(s, [&](int r, int c) { return j * N + c > min(offset + first + r, d.Tk - 1); });
            }
            #pragma unroll
            for (int i = 0; i < M * N / 2; i++) {
                const int m = i / (N / 2), c = i / 4 % (N / 8), r = i % 4 / 2;
                const float p = ptx::exp2_approx(s[m][c][i % 4] * exponent - lse[m][r]);
                s[m][c][i % 4] = p * (dp[m][c][i % 4] - delta[m][r]);
            }
            add_weighted<D, M, N>(dQ, s, sK + j % 2 * tile);
        }
        __syncthreads();                        // the next fetch writes over this tile
    }
    float factor[M][2];
    #pragma unroll
    for (int i = 0; i < 2 * M; i++) factor[i / 2][i % 2] = scale;
    const QueryHead end(order, ptx::block_again());
    if (first < d.Tq)
        store_rows<D, M>(x.dq + end.queries(d, order) + first * d.q_stride, d.q_stride, d.Tq - first, own, dQ,
                         factor);
    if (!sums_queries(D, M) || !sums.rows) return;
    float* const warps = reinterpret_cast<float*>(sK);          // all tiles have been read
    sum_rows<D, M>(warps + warp * D, own, d.Tq - first);
    __syncthreads();
    store_sums<D>(sums.at(order, end.sequence(order), end.tile, 0, end.of_queries(order, 0), D), warps,
                  threadIdx.x, kThreads);
}

// dK and dV: the rows of a block are keys, the products transposed
// FLOOR bytes = B (4 Tk KV + 2 queries NH) D sizeof(floatX) + 8 B queries NH + 4 sums,
// mma flops = 8 D pairs NH B,
// for the pairs in tiles that are not skipped, and the queries that blocks read for them, mostly from L2
template <int D, int M, int N, bool Bounded>
__global__ void __launch_bounds__(kThreads, M == 1 && D == 32 ? 3 : 2)
attention_mma_keys_kernel(AttentionBackward x, const float* deltas, PartialSums sums, AttentionDims d,
                          HeadOrder order, float scale) {
    static_assert(2 * N <= kThreads);
    DYN_SHARED(floatX, shared);
    constexpr int pitch = kPitch<D>, rows = 16 * M * kWarps, tile = N * pitch;
    floatX *sK = shared, *sV = sK + rows * pitch, *sQ = sV + rows * pitch, *sdO = sQ + 2 * tile;
    float* statistics = reinterpret_cast<float*>(sdO + 2 * tile);          // lse and delta (N) of two tiles
    int* const bounds = reinterpret_cast<int*>(statistics + 4 * N);
    const KeyHead at(order);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, start = at.tile * rows;
    const int first = start + warp * 16 * M, offset = d.q_offset - d.k_offset;
    const int block_sees = first_to_see(d, start), sees = first_to_see(d, first);   // queries: the first to
    const int sequence = Bounded ? at.sequence(order) : 0, from = block_sees / N;   // see a key; to this end
    const int last = Bounded ? d.end_query(min(start + rows, d.Tk) - 1, sequence) : d.Tq;
    if (Bounded) end_queries<rows>(bounds, d, start, sequence);
    const int tiles = block_sees < d.Tq ? tiles_from(from, N, last) : 0;
    const int steps = tiles * order.sharing;            // the tiles of each head of queries in turn
    const size_t out_stride = size_t(d.NH) * D;
    const auto head_of = [&](int step) { return order.sharing == 1 ? 0 : step / tiles; };
    const auto fetch = [&](int step) {
        const int i = head_of(step), j = from + step - i * tiles;       // tile j of head i of queries
        fetch_rows<D, N>(sQ + step % 2 * tile, {x.q + at.queries(d, order, i), d.q_stride}, 2 * tile,
                         {x.dout + at.outputs(d, order, i), out_stride}, j * N, d.Tq);
    };
    // Of a tile, for this thread to store. Queries behind the last get weights of exp2(-inf).
    const auto statistic = [&](int step) {
        const int i = head_of(step), t = (from + step - i * tiles) * N + threadIdx.x % N;
        if (threadIdx.x < N) return t < d.Tq ? x.lse[at.statistics(d, order, i) + t] * kLog2e : INFINITY;
        return t < d.Tq && threadIdx.x < 2 * N ? deltas[at.statistics(d, order, i) + t] : 0;
    };
    const auto store_statistic = [&](int step, float value) {
        if (threadIdx.x < 2 * N) statistics[step % 2 * 2 * N + threadIdx.x] = value;
    };
    fetch_rows<D, rows>(sK, {x.k + at.keys(d, order), d.kv_stride}, rows * pitch,
                        {x.v + at.keys(d, order), d.kv_stride}, start, d.Tk);
    ptx::cp_async_commit();
    if (steps > 0) fetch(0), store_statistic(0, statistic(0));
    ptx::cp_async_commit();
    ptx::cp_async_wait<1>();
    __syncthreads();
    floatX *own_K = sK + warp * 16 * M * pitch, *own_V = sV + warp * 16 * M * pitch;
    const int* ends = bounds + warp * 16 * M;
    const Left<D, M, kHold<D, M>> K(own_K), V(own_V);

    const float exponent = scale * kLog2e;
    float dK[M][D / 8][4] = {}, dV[M][D / 8][4] = {};
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) fetch(step + 1);
        ptx::cp_async_commit();
        const float next = step + 1 < steps ? statistic(step + 1) : 0;
        const int j = from + step - head_of(step) * tiles;
        ptx::cp_async_wait<1>();
        __syncthreads();
        if ((j + 1) * N > sees && sees < d.Tq && (!Bounded || j * N < ends[16 * M - 1])) {
            float s[M][N / 8][4], dp[M][N / 8][4];
            products<D, M, N>(s, K, sQ + step % 2 * tile);
            products<D, M, N>(dp, V, sdO + step % 2 * tile);
            if (first + 16 * M - 1 > offset + j * N)
                hide<M, N>(s, [&](int r, int c) { return first + r > offset + j * N + c; });
            if (Bounded && (j + 1) * N > ends[0])
                hide<M, N>(s, [&](int r, int c) { return j * N + c >= ends[r]; });
            #pragma unroll
            for (int e = 0; e < M * N / 2; e++) {
                const int c = e / M % (N / 8), k = e / M / (N / 8), m = e % M;
                const float* of_query = statistics + step % 2 * 2 * N + 8 * c + 2 * (lane % 4) + k % 2;
                const float p = ptx::exp2_approx(s[m][c][k] * exponent - of_query[0]);
                s[m][c][k] = p, dp[m][c][k] = p * (dp[m][c][k] - of_query[N]);
            }
            add_weighted<D, M, N>(dV, s, sdO + step % 2 * tile);
            add_weighted<D, M, N>(dK, dp, sQ + step % 2 * tile);
        }
        if (step + 1 < steps) store_statistic(step + 1, next);
        __syncthreads();                        // the next fetch writes over this tile
    }
    float scales[M][2], ones[M][2];
    #pragma unroll
    for (int i = 0; i < 2 * M; i++) scales[i / 2][i % 2] = scale, ones[i / 2][i % 2] = 1;
    if (first < d.Tk) {
        const size_t to = at.keys(d, order) + first * d.kv_stride;
        store_rows<D, M>(x.dk + to, d.kv_stride, d.Tk - first, own_K, dK, scales);
        store_rows<D, M>(x.dv + to, d.kv_stride, d.Tk - first, own_V, dV, ones);
    }
    if (!sums.rows) return;
    float* const of_k = reinterpret_cast<float*>(sQ), *const of_v = of_k + kWarps * D;     // tiles are read
    sum_rows<D, M>(of_k + warp * D, own_K, d.Tk - first);
    sum_rows<D, M>(of_v + warp * D, own_V, d.Tk - first);
    __syncthreads();
    float* const to = sums.at(order, at.sequence(order), at.tile, 0, at.of_keys(order), D);
    store_sums<D>(to, of_k, threadIdx.x, kThreads);
    store_sums<D>(to + sums.width / 2, of_v, threadIdx.x, kThreads);
}

// ---------------------------------------------------------------------------------------------------------
// variants

template <int M, int N> static size_t tiles_bytes(int D) {
    return size_t(32 * M * kWarps + 4 * N) * (D + 8) * sizeof(floatX);
}

template <int M, int N, class Heads> struct Queries {
    static bool supports(int D) {
        return Heads::has(D) && tiles_bytes<M, N>(D) + kBoundsBytes<M> <= shared_limit();
    }
    static Floor floor(const AttentionDims& d) {
        const double heads = double(d.B) * d.NH;
        const Work work = work_on_queries(d, 16 * M * kWarps, 16 * M, N);
        return {.bytes = heads * ((4. * d.Tq + 2 * work.rows) * d.D * sizeof(floatX) + 8. * d.Tq),
                .mma_flops = heads * work.pairs * 6 * d.D,
                .at_most = d.documents.positions != nullptr};
    }
    static void run(const AttentionGradients& g, const AttentionDims& d) {
        const HeadOrder order = blocks_of_queries(d, 16 * M * kWarps);
        const PartialSums sums = sums_of_queries(g, d, 1, sums_queries(d.D, M));
        Heads::with(d.D, [&](auto D) {
            with_bounds(d, [&](auto bounded) {
                launch(attention_mma_queries_kernel<D, M, N, bounded>, dim3(order.blocks), dim3(kThreads),
                       tiles_bytes<M, N>(D) + bounds_bytes<M>(d), sums.with(floor(d), order), g.t,
                       g.deltas, sums, d, order, float(attention_scale(d)));
            });
        });
        add_queries(sums, g, d, order);
    }
};

template <int M, int N, class Heads> struct Keys {
    static size_t shared(int D) { return tiles_bytes<M, N>(D) + 4 * N * sizeof(float); }
    static bool supports(int D) {
        return Heads::has(D) && shared(D) + kBoundsBytes<M> <= shared_limit();
    }
    static Floor floor(const AttentionDims& d) {
        const double heads = double(d.B) * d.NH, row = double(d.D) * sizeof(floatX);
        const Work work = work_on_keys(d, 16 * M * kWarps, 16 * M, N);
        return {.bytes = 4. * d.B * d.KV() * d.Tk * row + heads * work.rows * (2 * row + 8),
                .mma_flops = heads * work.pairs * 8 * d.D,
                .at_most = d.documents.positions != nullptr};
    }
    static void run(const AttentionGradients& g, const AttentionDims& d) {
        const HeadOrder order = blocks_of_keys(d, 16 * M * kWarps);
        const PartialSums sums = sums_of_keys(g, d, 1);
        Heads::with(d.D, [&](auto D) {
            with_bounds(d, [&](auto bounded) {
                launch(attention_mma_keys_kernel<D, M, N, bounded>, dim3(order.blocks), dim3(kThreads),
                       shared(D) + bounds_bytes<M>(d), sums.with(floor(d), order), g.t,
                       g.deltas, sums, d, order, float(attention_scale(d)));
            });
        });
        add_keys(sums, g, d, order);
    }
};

template <class V> static constexpr AttentionVariant<AttentionGradients> variant(const char* name) {
    return {name, V::supports, V::floor, V::run};
}

AttentionBackwardVariants attention_mma_queries_variants() {
    static constexpr AttentionVariant<AttentionGradients> all[] = {
        variant<Queries<1, 64, HeadSizes<32, 64, 80, 96>>>("64x64"),
        variant<Queries<1, 32, HeadSizes<128, 160>>>("64x32"),
        variant<Queries<2, 32, HeadSizes<32, 64, 80, 96, 128>>>("128x32"),
    };
    return all;
}

AttentionBackwardVariants attention_mma_keys_variants() {
    static constexpr AttentionVariant<AttentionGradients> all[] = {
        variant<Keys<1, 64, HeadSizes<32, 64, 80, 96>>>("64x64"),
        variant<Keys<1, 32, HeadSizes<128, 160>>>("64x32"),
        variant<Keys<2, 32, HeadSizes<32, 64>>>("128x32"),
    };
    return all;
}

}  // namespace cuda
}  // namespace PRECISION
