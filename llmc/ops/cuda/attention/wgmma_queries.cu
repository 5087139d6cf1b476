// Gradients of queries by wgmma and TMA, BF16; delta for wgmma_keys.cu.
//
//     S = Q K^T    P = exp(S - lse)    dP = dO V^T    dS = P (dP - delta)    delta = rowsum(dO * O)
//     dQ = dS K
//
// The products of a tile start while dQ of the tile before is added up.
#include "llmc/ops/cuda/attention/wgmma.h"

namespace PRECISION {
namespace cuda {

struct QueriesMaps { CUtensorMap q, dout, k, v; };

// Shared memory: the block's queries and gradients, then tiles of N keys and values.
template <int D> struct QueriesTiles {
    static constexpr int N = D == 64 ? 128 : 64, stages = 3;
    static constexpr int owned = kOwned * D, tile = N * D;         // elements
    struct Barriers { Ring<1> queries; Ring<stages> keys; };
    static constexpr int sums = 4 * D;                              // floats of each consumer
    static constexpr size_t bytes = 2 * (owned + stages * tile) * sizeof(floatX) + 2 * sums * sizeof(float) +
                                    sizeof(Barriers);
};

// Of a row of dO (in shared memory, swizzled) and O, over the four lanes that share it; 0 where !real. Odd
// rows begin with the other half of 64 channels: then eight lanes read from all banks.
template <int D>
static __device__ __forceinline__ float delta_of(const floatX* dO, int row, const floatX* O, bool real) {
    float sum = 0;
    #pragma unroll
    for (int i = threadIdx.x % 4; real && i < D / Pack::size; i += 4) {
        const int c = (i ^ row % 2 * 4) * Pack::size;
        const Pack o = Pack::load(O + c), g = Pack::load(swizzled<kOwned>(dO, row, c));
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) sum += float(o[k]) * float(g[k]);
    }
    return quad_sum(sum);
}

// FLOOR bytes = (4 B Tq + 2 keys) NH D sizeof(floatX) + 8 B NH Tq + 4 sums, mma flops = 6 D pairs NH B,
// for the pairs in tiles that are not skipped, and the keys that blocks read for them, mostly from L2
template <int D, bool Bounded>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
attention_wgmma_queries_kernel(const __grid_constant__ QueriesMaps maps, AttentionBackward x, float* deltas,
                               PartialSums partial, AttentionDims d, HeadOrder order, float scale) {
    DYN_SHARED(floatX, shared);
    using Tiles = QueriesTiles<D>;
    constexpr int N = Tiles::N, tile = Tiles::tile, stages = Tiles::stages;
    floatX *const sQ = first_tile(shared), *const sdO = sQ + Tiles::owned;
    floatX *const sK = sdO + Tiles::owned, *const sV = sK + stages * tile;
    float* const sums = reinterpret_cast<float*>(sV + stages * tile);
    auto& barriers = *reinterpret_cast<typename Tiles::Barriers*>(sums + 2 * Tiles::sums);
    if (threadIdx.x == 0) {
        barriers.queries.init(1), barriers.keys.init(1);
        ptx::mbarrier_fence_init();
    }
    __syncthreads();
    int loaded = 0;                             // tiles of keys before this turn
    unsigned block;
    if (threadIdx.x < kGroup) {
        ptx::registers_less<kProducerRegisters>();
        if (threadIdx.x > 0) return;
        for (int turn = 0; (block = block_of_turn(turn)) < order.blocks; turn++) {
            const QueryHead at(order, block);
            const int sequence = at.sequence(order), start = at.tile * kOwned, h = at.of_queries(order, 0);
            const KeyTiles keys = tiles_of<N, Bounded>(d, start, kOwned, sequence);
            uint64_t* const arrives = barriers.queries.tile(turn);
            barriers.queries.wait_empty(turn);
            ptx::mbarrier_arrive_expect(arrives, 2 * Tiles::owned * sizeof(floatX));
            load_rows<D, kOwned>(sQ, &maps.q, arrives, h, start, sequence);
            load_rows<D, kOwned>(sdO, &maps.dout, arrives, h, start, sequence);
            for (int j = keys.from; j < keys.end; j++, loaded++) {
                uint64_t* const arrives = barriers.keys.tile(loaded);
                const int to = loaded % stages * tile;
                barriers.keys.wait_empty(loaded);
                ptx::mbarrier_arrive_expect(arrives, 2 * tile * sizeof(floatX));
                load_rows<D, N>(sK + to, &maps.k, arrives, at.of_keys(order), j * N, sequence);
                load_rows<D, N>(sV + to, &maps.v, arrives, at.of_keys(order), j * N, sequence);
            }
        }
        return;
    }
    ptx::registers_more<kConsumerRegisters>();
    const int consumer = threadIdx.x / kGroup - 1;
    const floatX* const Q = sQ + consumer * kOwn * kBoxColumns;
    const floatX* const dO = sdO + consumer * kOwn * kBoxColumns;
    const float exponent = scale * kLog2e;
    for (int turn = 0; (block = block_of_turn(turn)) < order.blocks; turn++) {
        const QueryHead at(order, block);
        const int sequence = at.sequence(order), start = at.tile * kOwned;
        const int first = start + consumer * kOwn, row = first + row_of_group();
        const KeyTiles keys = tiles_of<N, Bounded>(d, start, kOwned, sequence);
        const KeysSeen<Bounded> seen(d, first, sequence);
        KeyTiles own = {keys.end, keys.end};    // that this consumer's rows see
        if (first < d.Tq) own = tiles_of<N, Bounded>(d, first, kOwn, sequence);
        const auto skip = [&](int tiles) {
            for (int i = 0; i < tiles; i++, loaded++) {
                barriers.keys.wait_full(loaded);
                barriers.keys.release(loaded);
            }
        };

        float lse[2], delta[2];                 // lse in units of the exponent of 2
        barriers.queries.wait_full(turn);
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const int t = row + 8 * r;
            const size_t query = at.statistics(d, order) + t;
            delta[r] = delta_of<D>(dO, row_of_group() + 8 * r,
                                   x.out + at.outputs(d, order) + t * size_t(d.NH) * D, t < d.Tq);
            if (threadIdx.x % 4 == 0 && t < d.Tq) deltas[query] = delta[r];
            lse[r] = t < d.Tq ? x.lse[query] * kLog2e : INFINITY;
        }
        ptx::fence_proxy_async();               // dO is read; TMA writes the next turn's there

        float dQ[D / 2] = {};
        Weights<N> dS;
        skip(own.from - keys.from);
        for (int j = own.from; j < own.end; j++, loaded++) {
            const floatX *const K = sK + loaded % stages * tile, *const V = sV + loaded % stages * tile;
            float s[N / 2], dp[N / 2];
            barriers.keys.wait_full(loaded);
            ptx::wgmma_fence(s, dp);
            products<D, kOwned, N>(s, Q, K);
            ptx::wgmma_commit();
            products<D, kOwned, N>(dp, dO, V);
            ptx::wgmma_commit();
            ptx::wgmma_wait<2>(dQ);
            if (j > own.from) barriers.keys.release(loaded - 1);
            ptx::wgmma_wait<1>(s);
            seen.hide_others(s, j);
            #pragma unroll
            for (int i = 0; i < N / 2; i++) s[i] = ptx::exp2_approx(s[i] * exponent - lse[i / 2 % 2]);
            ptx::wgmma_wait<0>(dp);
            #pragma unroll
            for (int i = 0; i < N / 2; i++) s[i] *= dp[i] - delta[i / 2 % 2];
            dS.round(s);
            ptx::wgmma_fence(dQ, dS.of);
            add_weighted<D, N>(dQ, dS, K);
            ptx::wgmma_commit();
        }
        ptx::wgmma_wait<0>(dQ);
        if (own.from < own.end) barriers.keys.release(loaded - 1);
        barriers.queries.release(turn);
        skip(keys.end - own.end);
        float* const own_sums = partial.rows ? sums + consumer * Tiles::sums : nullptr;
        store_rows<D>(x.dq + at.queries(d, order) + first * d.q_stride, d.q_stride, d.Tq - first, dQ, scale,
                      scale, own_sums);
        if (!own_sums) continue;
        group_sync(consumer);
        store_sums_of_group<D>(partial.at(order, sequence, at.tile, consumer, at.of_queries(order, 0), D),
                               own_sums);
        group_sync(consumer);                   // before the next turn's sums
    }
}

// ---------------------------------------------------------------------------------------------------------
// variants

template <int D> struct WgmmaQueries {
    using Tiles = QueriesTiles<D>;
    static Floor floor(const AttentionDims& d) {
        const double heads = double(d.B) * d.NH;
        const Work work = work_on_queries(d, kOwned, kOwn, Tiles::N);
        return {.bytes = heads * ((4. * d.Tq + 2 * work.rows) * D * sizeof(floatX) + 8. * d.Tq),
                .mma_flops = heads * work.pairs * 6 * D,
                .at_most = d.documents.positions != nullptr};
    }
    static void run(const AttentionGradients& g, const AttentionDims& d) {
        const HeadOrder order = blocks_of_queries(d, kOwned);
        const PartialSums sums = sums_of_queries(g, d, 2, true);
        const AttentionBackward& t = g.t;
        const QueriesMaps maps = {tensor_map({t.q, D, d.NH, d.Tq, d.B, d.q_stride}, kOwned),
                                  tensor_map({t.dout, D, d.NH, d.Tq, d.B, size_t(d.NH) * D}, kOwned),
                                  tensor_map({t.k, D, d.KV(), d.Tk, d.B, d.kv_stride}, Tiles::N),
                                  tensor_map({t.v, D, d.KV(), d.Tk, d.B, d.kv_stride}, Tiles::N)};
        with_bounds(d, [&](auto bounded) {
            if constexpr (sizeof(floatX) == 2)
                launch(attention_wgmma_queries_kernel<D, bounded>, dim3(grid_of(order)), dim3(kWgmmaThreads),
                       Tiles::bytes + kAlignBytes, sums.with(floor(d), order), maps, t, g.deltas, sums, d,
                       order, float(attention_scale(d)));
        });
        add_queries(sums, g, d, order);
    }
};

AttentionBackwardVariants attention_wgmma_queries_variants() {
    static constexpr AttentionVariant<AttentionGradients> all[] = {
        wgmma_variant<AttentionGradients, WgmmaQueries, 64>("wgmma_128x128"),
        wgmma_variant<AttentionGradients, WgmmaQueries, 128>("wgmma_128x64")};
    return all;
}

}  // namespace cuda
}  // namespace PRECISION
