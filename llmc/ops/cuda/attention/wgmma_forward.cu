// Attention by wgmma and TMA, BF16 (Shah and others 2024, "FlashAttention-3", arXiv 2407.08608).
//
//     S = Q K^T    P = exp(S - max)    O = sum of P V, shrunk as the maximum grows    lse = max + log(sum)
//
// A consumer starts the scores of tile j + 1 before the sum over tile j, and computes a softmax while the
// other consumer's products run: the two take turns to start products. With heads of 64 a tile's exponentials
// take as long as its products: a variant computes a quarter of them by exp2_by_fma().
#include "llmc/base/numbers/exp2.h"
#include "llmc/ops/cuda/attention/wgmma.h"

namespace PRECISION {
namespace cuda {

[[maybe_unused]] static constexpr float kLn2 = 0.6931471805599453f;

struct ForwardMaps { CUtensorMap q, k, v; };

// Shared memory: the block's queries, then keys and values of two tiles of N rows.
template <int D> struct ForwardTiles {
    static constexpr int N = 128, stages = 2;
    static constexpr int queries = kOwned * D, tile = N * D;       // elements
    struct Barriers { Ring<1> queries; Ring<stages> keys, values; };
    static constexpr size_t bytes = (queries + 2 * stages * tile) * sizeof(floatX) + sizeof(Barriers);
};

// The softmax of this thread's two rows so far, in units of the scaled exponent of 2.
struct RowSoftmax {
    float max[2] = {kLowest, kLowest}, sum[2] = {0, 0};
};

// Scores become weights; shrink: what earlier sums are to be multiplied by.
template <bool ByFma, int R>
static __device__ __forceinline__ void soften(float (&s)[R], RowSoftmax& rows, float (&shrink)[2],
                                              float scale) {
    float larger[2] = {-INFINITY, -INFINITY};
    #pragma unroll
    for (int i = 0; i < R; i++) larger[i / 2 % 2] = fmaxf(larger[i / 2 % 2], s[i]);
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        larger[r] = fmaxf(rows.max[r], quad_max(larger[r]) * scale);
        shrink[r] = ptx::exp2_approx(rows.max[r] - larger[r]);
        rows.max[r] = larger[r], rows.sum[r] *= shrink[r];
    }
    #pragma unroll
    for (int i = 0; i < R; i++) {
        const float exponent = s[i] * scale - larger[i / 2 % 2];
        s[i] = ByFma && i / 4 % 4 == 3 ? exp2_by_fma(exponent) : ptx::exp2_approx(exponent);
        rows.sum[i / 2 % 2] += s[i];
    }
}

// FLOOR bytes = (2 B Tq + 2 keys) NH D sizeof(floatX) + 4 B NH Tq, mma flops = 4 D pairs NH B,
// for the pairs in tiles that are not skipped, and the keys that blocks read for them, mostly from L2
template <int D, bool Bounded, bool ByFma>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
attention_wgmma_forward_kernel(const __grid_constant__ ForwardMaps maps, AttentionForward x, AttentionDims d,
                               HeadOrder order, float scale) {
    DYN_SHARED(floatX, shared);
    using Tiles = ForwardTiles<D>;
    constexpr int N = Tiles::N, tile = Tiles::tile, stages = Tiles::stages;
    floatX *const sQ = first_tile(shared), *const sK = sQ + Tiles::queries, *const sV = sK + stages * tile;
    auto& barriers = *reinterpret_cast<typename Tiles::Barriers*>(sV + stages * tile);
    if (threadIdx.x == 0) {
        barriers.queries.init(1), barriers.keys.init(1), barriers.values.init(1);
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
            const int sequence = at.sequence(order), start = at.tile * kOwned, head = at.of_keys(order);
            const KeyTiles keys = tiles_of<N, Bounded>(d, start, kOwned, sequence);
            barriers.queries.wait_empty(turn);
            ptx::mbarrier_arrive_expect(barriers.queries.tile(turn), Tiles::queries * sizeof(floatX));
            load_rows<D, kOwned>(sQ, &maps.q, barriers.queries.tile(turn), at.of_queries(order, 0), start,
                                 sequence);
            for (int j = keys.from; j < keys.end; j++, loaded++) {
                const int to = loaded % stages * tile;
                barriers.keys.wait_empty(loaded);
                ptx::mbarrier_arrive_expect(barriers.keys.tile(loaded), tile * sizeof(floatX));
                load_rows<D, N>(sK + to, &maps.k, barriers.keys.tile(loaded), head, j * N, sequence);
                barriers.values.wait_empty(loaded);
                ptx::mbarrier_arrive_expect(barriers.values.tile(loaded), tile * sizeof(floatX));
                load_rows<D, N>(sV + to, &maps.v, barriers.values.tile(loaded), head, j * N, sequence);
            }
        }
        return;
    }
    ptx::registers_more<kConsumerRegisters>();
    const int consumer = threadIdx.x / kGroup - 1;
    const floatX* const Q = sQ + consumer * kOwn * kBoxColumns;
    if (consumer == 1) pass_turn_to(0);         // whose turn it is to start products
    for (int turn = 0; (block = block_of_turn(turn)) < order.blocks; turn++) {
        const QueryHead at(order, block);
        const int sequence = at.sequence(order), start = at.tile * kOwned;
        const int first = start + consumer * kOwn, row = first + row_of_group();
        const KeyTiles keys = tiles_of<N, Bounded>(d, start, kOwned, sequence);
        const KeysSeen<Bounded> seen(d, first, sequence);

        float O[D / 2] = {}, s[N / 2], shrink[2];
        RowSoftmax softmax;
        Weights<N> P;
        barriers.queries.wait_full(turn);
        barriers.keys.wait_full(loaded);
        ptx::wgmma_fence(s);
        products<D, kOwned, N>(s, Q, sK + loaded % stages * tile);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(s);
        barriers.keys.release(loaded);
        seen.hide_others(s, keys.from);
        soften<ByFma>(s, softmax, shrink, scale);
        P.round(s);
        for (int j = keys.from + 1; j < keys.end; j++, loaded++) {
            barriers.keys.wait_full(loaded + 1);
            wait_for_turn(consumer);
            ptx::wgmma_fence(s);
            products<D, kOwned, N>(s, Q, sK + (loaded + 1) % stages * tile);
            ptx::wgmma_commit();
            barriers.values.wait_full(loaded);
            ptx::wgmma_fence(O, P.of);
            add_weighted<D, N>(O, P, sV + loaded % stages * tile);
            ptx::wgmma_commit();
            pass_turn_to(1 - consumer);
            ptx::wgmma_wait<1>(s);
            barriers.keys.release(loaded + 1);
            seen.hide_others(s, j);
            soften<ByFma>(s, softmax, shrink, scale);
            ptx::wgmma_wait<0>(O);
            barriers.values.release(loaded);
            #pragma unroll
            for (int i = 0; i < D / 2; i++) O[i] *= shrink[i / 2 % 2];
            P.round(s);
        }
        barriers.queries.release(turn);
        barriers.values.wait_full(loaded);
        ptx::wgmma_fence(O, P.of);
        add_weighted<D, N>(O, P, sV + loaded % stages * tile);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(O);
        barriers.values.release(loaded++);

        const float sum[2] = {quad_sum(softmax.sum[0]), quad_sum(softmax.sum[1])};
        #pragma unroll
        for (int r = 0; r < 2; r++)
            if (threadIdx.x % 4 == 0 && row + 8 * r < d.Tq)
                x.lse[at.statistics(d, order) + row + 8 * r] = (softmax.max[r] + log2f(sum[r])) * kLn2;
        const size_t stride = size_t(d.NH) * D;
        store_rows<D>(x.out + at.outputs(d, order) + first * stride, stride, d.Tq - first, O, 1 / sum[0],
                      1 / sum[1]);
    }
    if (consumer == 0) wait_for_turn(0);        // the other's last arrival
}

// ---------------------------------------------------------------------------------------------------------
// variants

template <int D, bool ByFma> struct WgmmaForward {
    using Tiles = ForwardTiles<D>;
    static Floor floor(const AttentionDims& d) {
        const double heads = double(d.B) * d.NH;
        const Work work = work_on_queries(d, kOwned, kOwned, Tiles::N);
        return {.bytes = heads * (2 * (d.Tq + work.rows) * D * sizeof(floatX) + 4. * d.Tq),
                .mma_flops = heads * work.pairs * 4 * D,
                .at_most = d.documents.positions != nullptr};
    }
    static void run(const AttentionForward& t, const AttentionDims& d) {
        const HeadOrder order = blocks_of_queries(d, kOwned);
        const ForwardMaps maps = {tensor_map({t.q, D, d.NH, d.Tq, d.B, d.q_stride}, kOwned),
                                  tensor_map({t.k, D, d.KV(), d.Tk, d.B, d.kv_stride}, Tiles::N),
                                  tensor_map({t.v, D, d.KV(), d.Tk, d.B, d.kv_stride}, Tiles::N)};
        with_bounds(d, [&](auto bounded) {
            if constexpr (sizeof(floatX) == 2)
                launch(attention_wgmma_forward_kernel<D, bounded, ByFma>, dim3(grid_of(order)),
                       dim3(kWgmmaThreads), Tiles::bytes + kAlignBytes, floor(d), maps, t, d, order,
                       float(kLog2e * attention_scale(d)));
        });
    }
};

template <int D> using WgmmaForwardByUnits = WgmmaForward<D, false>;
template <int D> using WgmmaForwardByFma = WgmmaForward<D, true>;

AttentionForwardVariants attention_wgmma_forward_variants() {
    static constexpr AttentionVariant<AttentionForward> all[] = {
        wgmma_variant<AttentionForward, WgmmaForwardByUnits, 64>("wgmma_128x128"),
        wgmma_variant<AttentionForward, WgmmaForwardByFma, 64>("wgmma_128x128_fma"),
        wgmma_variant<AttentionForward, WgmmaForwardByUnits, 128>("wgmma_128x128")};
    return all;
}

}  // namespace cuda
}  // namespace PRECISION
