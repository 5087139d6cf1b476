// Gradients of keys and values by wgmma and TMA, BF16.
//
//     S = K Q^T    P = exp(S - lse)    dP = V dO^T    dS = P (dP - delta)    dK = dS Q    dV = P dO
//
// The rows of a block are keys: all scores are transposed. It goes through the queries of each head that
// shares its keys, in order, and every sum stays in registers.
#include "llmc/ops/cuda/attention/wgmma.h"

namespace PRECISION {
namespace cuda {

struct KeysMaps { CUtensorMap k, v, q, dout; };

// Shared memory: the block's keys and values, then tiles of N queries and their gradients, and of each tile
// lse (N) in units of the exponent of 2 and delta (N).
template <int D> struct KeysTiles {
    static constexpr int N = D == 64 ? 128 : 64, stages = 3;
    static constexpr int owned = kOwned * D, tile = N * D;         // elements
    struct Barriers { Ring<1> keys; Ring<stages> queries; };
    static constexpr int sums_of_one = 4 * D;                      // floats of each consumer
    static constexpr size_t bytes = 2 * (owned + stages * tile) * sizeof(floatX) +
                                    (2 * stages * N + 4 * sums_of_one) * sizeof(float) + sizeof(Barriers);
    floatX *K, *V, *Q, *dO;
    float *statistics, *sums;
    Barriers& barriers;

    __device__ __forceinline__ explicit KeysTiles(floatX* first)
        : K(first), V(K + owned), Q(V + owned), dO(Q + stages * tile),
          statistics(reinterpret_cast<float*>(dO + stages * tile)), sums(statistics + 2 * stages * N),
          barriers(*reinterpret_cast<Barriers*>(sums + 4 * sums_of_one)) {}
};
using TwoFloats = PackOf<float, 2>;

// The tiles of queries that a block of keys reads, of each head.
struct QueryTiles { int from, count; };
template <int N, bool Bounded>
static __device__ __forceinline__ QueryTiles queries_of(const AttentionDims& d, int start, int sequence) {
    const int sees = first_to_see(d, start), from = sees / N;
    const int last = Bounded ? d.end_query(min(start + kOwned, d.Tk) - 1, sequence) : d.Tq;
    return {from, sees < d.Tq ? tiles_from(from, N, last) : 0};
}

// By one thread: keys and values of each turn, tiles of queries and their gradients.
template <int D, bool Bounded>
static __device__ __forceinline__ void produce_tiles(KeysTiles<D>& at_block, const KeysMaps& maps,
                                                     const AttentionDims& d, const HeadOrder& order) {
    using Tiles = KeysTiles<D>;
    constexpr int N = Tiles::N;
    auto& barriers = at_block.barriers;
    unsigned block;
    for (int turn = 0, loaded = 0; (block = block_of_turn(turn)) < order.blocks; turn++) {
        const KeyHead at(order, block);
        const int sequence = at.sequence(order), start = at.tile * kOwned;
        const QueryTiles queries = queries_of<N, Bounded>(d, start, sequence);
        uint64_t* const owned = barriers.keys.tile(turn);
        barriers.keys.wait_empty(turn);
        ptx::mbarrier_arrive_expect(owned, 2 * Tiles::owned * sizeof(floatX));
        load_rows<D, kOwned>(at_block.K, &maps.k, owned, at.of_keys(order), start, sequence);
        load_rows<D, kOwned>(at_block.V, &maps.v, owned, at.of_keys(order), start, sequence);
        for (int step = 0; step < queries.count * order.sharing; step++, loaded++) {
            const int i = step / queries.count, j = queries.from + step % queries.count;
            const int to = loaded % Tiles::stages * Tiles::tile, h = at.of_queries(order, i);
            uint64_t* const tile = barriers.queries.tile(loaded);
            barriers.queries.wait_empty(loaded);
            ptx::mbarrier_arrive_expect(tile, 2 * Tiles::tile * sizeof(floatX));
            load_rows<D, N>(at_block.Q + to, &maps.q, tile, h, j * N, sequence);
            load_rows<D, N>(at_block.dO + to, &maps.dout, tile, h, j * N, sequence);
        }
    }
}

// By a warp: lse and delta of the same queries. Behind the last query rows are zeros, whatever the weight.
template <int D, bool Bounded>
static __device__ __forceinline__ void produce_statistics(KeysTiles<D>& at_block, const float* lse,
                                                          const float* deltas, const AttentionDims& d,
                                                          const HeadOrder& order) {
    constexpr int N = KeysTiles<D>::N;
    auto& ring = at_block.barriers.queries;
    unsigned block;
    for (int turn = 0, loaded = 0; (block = block_of_turn(turn)) < order.blocks; turn++) {
        const KeyHead at(order, block);
        const QueryTiles queries = queries_of<N, Bounded>(d, at.tile * kOwned, at.sequence(order));
        for (int step = 0; step < queries.count * order.sharing; step++, loaded++) {
            const int i = step / queries.count, j = queries.from + step % queries.count;
            float* const to = at_block.statistics + loaded % KeysTiles<D>::stages * 2 * N;
            ring.wait_empty(loaded);
            for (int t = threadIdx.x % 32; t < N; t += 32) {
                const size_t query = at.statistics(d, order, i) + j * N + t;
                const bool real = j * N + t < d.Tq;
                to[t] = real ? lse[query] * kLog2e : 0;
                to[N + t] = real ? deltas[query] : 0;
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ring.tile(loaded));
        }
    }
}

// FLOOR bytes = B (4 Tk KV + 2 queries NH) D sizeof(floatX) + 8 B queries NH + 4 sums,
// mma flops = 8 D pairs NH B,
// for the pairs in tiles that are not skipped, and the queries that blocks read for them, mostly from L2
template <int D, bool Bounded>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
attention_wgmma_keys_kernel(const __grid_constant__ KeysMaps maps, AttentionBackward x, const float* deltas,
                            PartialSums partial, AttentionDims d, HeadOrder order, float scale) {
    DYN_SHARED(floatX, shared);
    using Tiles = KeysTiles<D>;
    constexpr int N = Tiles::N, tile = Tiles::tile;
    Tiles at_block(first_tile(shared));
    auto& barriers = at_block.barriers;
    if (threadIdx.x == 0) {
        barriers.keys.init(1), barriers.queries.init(2);
        ptx::mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x < kGroup) {
        ptx::registers_less<kProducerRegisters>();
        if (threadIdx.x == 0) produce_tiles<D, Bounded>(at_block, maps, d, order);
        else if (threadIdx.x / 32 == 1) produce_statistics<D, Bounded>(at_block, x.lse, deltas, d, order);
        return;
    }
    ptx::registers_more<kConsumerRegisters>();
    const int consumer = threadIdx.x / kGroup - 1, offset = d.apart();
    const floatX* const K = at_block.K + consumer * kOwn * kBoxColumns;
    const floatX* const V = at_block.V + consumer * kOwn * kBoxColumns;
    const float exponent = scale * kLog2e;
    unsigned block;
    for (int turn = 0, loaded = 0; (block = block_of_turn(turn)) < order.blocks; turn++) {
        const KeyHead at(order, block);
        const int sequence = at.sequence(order), start = at.tile * kOwned;
        const int first = start + consumer * kOwn, row = first + row_of_group();
        const QueryTiles queries = queries_of<N, Bounded>(d, start, sequence);
        const int sees = first_to_see(d, first);        // the first query to see a key of this consumer
        // queries: one past the last that sees each row, the consumer's first key, its last
        int ends[2] = {}, some_end = 0, all_end = d.Tq;
        if constexpr (Bounded) {
            for (int r = 0; r < 2; r++) ends[r] = d.end_query(min(row + 8 * r, d.Tk - 1), sequence);
            some_end = d.end_query(min(first, d.Tk - 1), sequence);
            all_end = d.end_query(min(first + kOwn, d.Tk) - 1, sequence);
        }
        float dK[D / 2] = {}, dV[D / 2] = {};
        barriers.keys.wait_full(turn);
        for (int step = 0; step < queries.count * order.sharing; step++, loaded++) {
            const int j = queries.from + step % queries.count, stage = loaded % Tiles::stages;
            barriers.queries.wait_full(loaded);
            if ((j + 1) * N > sees && sees < d.Tq && j * N < all_end) {
                const floatX *const Q = at_block.Q + stage * tile, *const dO = at_block.dO + stage * tile;
                const float* const of_query = at_block.statistics + stage * 2 * N + first_column();
                float s[N / 2], dp[N / 2];
                Weights<N> P, dS;
                ptx::wgmma_fence(s, dp);
                products<D, kOwned, N>(s, K, Q);
                ptx::wgmma_commit();
                products<D, kOwned, N>(dp, V, dO);
                ptx::wgmma_commit();
                ptx::wgmma_wait<1>(s);
                const int column = j * N + first_column();
                if (first + kOwn - 1 > offset + j * N)
                    hide(s, [&](int r, int c) { return c < row + 8 * r - offset - column; });
                if (Bounded && (j + 1) * N > some_end)
                    hide(s, [&](int r, int c) { return c >= ends[r] - column; });
                #pragma unroll
                for (int i = 0; i < N / 2; i += 4) {
                    TwoFloats lse = TwoFloats::load(of_query + column_of(i));
                    #pragma unroll
                    for (int k = i; k < i + 4; k++) s[k] = ptx::exp2_approx(s[k] * exponent - lse[k % 2]);
                }
                ptx::wgmma_wait<0>(dp);
                #pragma unroll
                for (int i = 0; i < N / 2; i += 4) {
                    TwoFloats delta = TwoFloats::load(of_query + N + column_of(i));
                    #pragma unroll
                    for (int k = i; k < i + 4; k++) dp[k] = s[k] * (dp[k] - delta[k % 2]);
                }
                P.round(s), dS.round(dp);
                ptx::wgmma_fence(dV, dK, P.of, dS.of);
                add_weighted<D, N>(dV, P, dO);
                add_weighted<D, N>(dK, dS, Q);
                ptx::wgmma_commit();
                ptx::wgmma_wait<0>(dV, dK);
            }
            barriers.queries.release(loaded);
        }
        barriers.keys.release(turn);
        const size_t to = at.keys(d, order) + first * d.kv_stride;
        float *of_k = nullptr, *of_v = nullptr;
        if (partial.rows) {
            of_k = at_block.sums + 2 * consumer * Tiles::sums_of_one;
            of_v = of_k + Tiles::sums_of_one;
        }
        store_rows<D>(x.dk + to, d.kv_stride, d.Tk - first, dK, scale, scale, of_k);
        store_rows<D>(x.dv + to, d.kv_stride, d.Tk - first, dV, 1, 1, of_v);
        if (!of_k) continue;
        group_sync(consumer);
        float* const sums_of_k = partial.at(order, sequence, at.tile, consumer, at.of_keys(order), D);
        store_sums_of_group<D>(sums_of_k, of_k);
        store_sums_of_group<D>(sums_of_k + partial.width / 2, of_v);
        group_sync(consumer);                   // before the next turn's sums
    }
}

// ---------------------------------------------------------------------------------------------------------
// variants

template <int D> struct WgmmaKeys {
    using Tiles = KeysTiles<D>;
    static Floor floor(const AttentionDims& d) {
        const double heads = double(d.B) * d.NH, row = double(D) * sizeof(floatX);
        const Work work = work_on_keys(d, kOwned, kOwn, Tiles::N);
        return {.bytes = 4. * d.B * d.KV() * d.Tk * row + heads * work.rows * (2 * row + 8),
                .mma_flops = heads * work.pairs * 8 * D,
                .at_most = d.documents.positions != nullptr};
    }
    static void run(const AttentionGradients& g, const AttentionDims& d) {
        const HeadOrder order = blocks_of_keys(d, kOwned);
        const PartialSums sums = sums_of_keys(g, d, 2);
        const AttentionBackward& t = g.t;
        const KeysMaps maps = {tensor_map({t.k, D, d.KV(), d.Tk, d.B, d.kv_stride}, kOwned),
                               tensor_map({t.v, D, d.KV(), d.Tk, d.B, d.kv_stride}, kOwned),
                               tensor_map({t.q, D, d.NH, d.Tq, d.B, d.q_stride}, Tiles::N),
                               tensor_map({t.dout, D, d.NH, d.Tq, d.B, size_t(d.NH) * D}, Tiles::N)};
        with_bounds(d, [&](auto bounded) {
            if constexpr (sizeof(floatX) == 2)
                launch(attention_wgmma_keys_kernel<D, bounded>, dim3(grid_of(order)), dim3(kWgmmaThreads),
                       Tiles::bytes + kAlignBytes, sums.with(floor(d), order), maps, t, g.deltas, sums, d,
                       order, float(attention_scale(d)));
        });
        add_keys(sums, g, d, order);
    }
};

AttentionBackwardVariants attention_wgmma_keys_variants() {
    static constexpr AttentionVariant<AttentionGradients> all[] = {
        wgmma_variant<AttentionGradients, WgmmaKeys, 64>("wgmma_128x128"),
        wgmma_variant<AttentionGradients, WgmmaKeys, 128>("wgmma_128x64")};
    return all;
}

}  // namespace cuda
}  // namespace PRECISION
