// Attention by tensor cores, BF16 (Dao 2023, "FlashAttention-2", arXiv 2307.08691).
//
//     S = Q K^T    P = exp(S - max)    O = sum of P V, shrunk as the maximum grows    lse = max + log(sum)
//
// Scores, their softmax and O stay in registers. Tiles above the diagonal are skipped; blocks with many tiles
// start first.
#include "llmc/ops/cuda/attention/attention_mma.h"

namespace PRECISION {
namespace cuda {

[[maybe_unused]] static constexpr float kLn2 = 0.6931471805599453f, kLowest = -3.4028234663852886e38f;

// The softmax of a row so far, in units of the scaled exponent of 2: of the rows of accumulators.
template <int M> struct RunningSoftmax { float max[M][2], sum[M][2]; };

// Scores become weights; earlier sums shrink by the same factor.
template <int D, int M, int N>
static __device__ __forceinline__ void soften(float (&s)[M][N / 8][4], float (&O)[M][D / 8][4],
                                              RunningSoftmax<M>& rows, float scale) {
    #pragma unroll
    for (int m = 0; m < M; m++) {
        float larger[2] = {-INFINITY, -INFINITY};
        #pragma unroll
        for (int i = 0; i < N / 2; i++) larger[i % 4 / 2] = fmaxf(larger[i % 4 / 2], s[m][i / 4][i % 4]);
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            larger[r] = fmaxf(rows.max[m][r], quad_max(larger[r]) * scale);
            const float shrink = ptx::exp2_approx(rows.max[m][r] - larger[r]);
            rows.max[m][r] = larger[r], rows.sum[m][r] *= shrink;
            #pragma unroll
            for (int c = 0; c < D / 8; c++) O[m][c][2 * r] *= shrink, O[m][c][2 * r + 1] *= shrink;
        }
        #pragma unroll
        for (int i = 0; i < N / 2; i++) {
            s[m][i / 4][i % 4] = ptx::exp2_approx(s[m][i / 4][i % 4] * scale - larger[i % 4 / 2]);
            rows.sum[m][i % 4 / 2] += s[m][i / 4][i % 4];
        }
    }
}

template <int D, int M> static constexpr bool kHoldQ = M * D <= 128;

// FLOOR bytes = (2 B Tq + 2 keys) NH D sizeof(floatX) + 4 B NH Tq, mma flops = 4 D pairs NH B,
// for the pairs in tiles that are not skipped, and the keys that blocks read for them, mostly from L2
template <int D, int M, int N, bool Bounded>
__global__ void __launch_bounds__(kThreads, M == 1 && D <= 96 ? 3 : 2)
attention_mma_forward_kernel(AttentionForward x, AttentionDims d, HeadOrder order, float scale) {
    DYN_SHARED(floatX, shared);
    constexpr int pitch = kPitch<D>, rows = 16 * M * kWarps, tile = N * pitch;
    floatX *sQ = shared, *sK = sQ + rows * pitch, *sV = sK + 2 * tile;     // K and V: one used, one to come
    int* const bounds = reinterpret_cast<int*>(sV + 2 * tile);
    const QueryHead at(order);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, start = at.tile * rows;
    const int first = start + warp * 16 * M, row = first + lane / 4;       // row: and each eighth after it
    const int offset = d.q_offset - d.k_offset, tiles = div_up(seen_before(d, start + rows), N);
    const int seen = first < d.Tq ? seen_before(d, first + 16 * M) : 0;    // by this warp
    const int from = Bounded ? d.first_key(start, at.sequence(order)) / N : 0;
    if (Bounded) first_keys<rows>(bounds, d, start, at.sequence(order));
    const auto fetch = [&](int j) {
        fetch_rows<D, N>(sK + j % 2 * tile, {x.k + at.keys(d, order), d.kv_stride}, 2 * tile,
                         {x.v + at.keys(d, order), d.kv_stride}, j * N, d.Tk);
    };
    fetch_rows<D, rows>(sQ, {x.q + at.queries(d, order), d.q_stride}, 0, {}, start, d.Tq);
    ptx::cp_async_commit();
    fetch(from);
    ptx::cp_async_commit();
    ptx::cp_async_wait<1>();
    __syncthreads();
    floatX* own = sQ + warp * 16 * M * pitch;
    const int* lowest = bounds + warp * 16 * M;
    const Left<D, M, kHoldQ<D, M>> Q(own);

    float O[M][D / 8][4] = {};
    RunningSoftmax<M> softmax;
    #pragma unroll
    for (int i = 0; i < 2 * M; i++) softmax.max[i / 2][i % 2] = kLowest, softmax.sum[i / 2][i % 2] = 0;
    for (int j = from; j < tiles; j++) {
        if (j + 1 < tiles) fetch(j + 1);
        ptx::cp_async_commit();
        ptx::cp_async_wait<1>();
        __syncthreads();
        if (j * N < seen && (!Bounded || (j + 1) * N > lowest[0])) {
            float s[M][N / 8][4];
            products<D, M, N>(s, Q, sK + j % 2 * tile);
            if ((j + 1) * N > d.Tk || (j + 1) * N > offset + first + 1)
                hide<M, N>(s, [&](int r, int c) { return j * N + c > min(offset + first + r, d.Tk - 1); });
            if (Bounded && j * N < lowest[16 * M - 1])
                hide<M, N>(s, [&](int r, int c) { return j * N + c < lowest[r]; });
            soften<D, M, N>(s, O, softmax, scale);
            add_weighted<D, M, N>(O, s, sV + j % 2 * tile);
        }
        __syncthreads();                        // the next fetch writes over this tile
    }

    const QueryHead end(order, ptx::block_again());
    float factor[M][2];
    #pragma unroll
    for (int m = 0; m < M; m++)
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const int t = row + 16 * m + 8 * r;
            const float sum = quad_sum(softmax.sum[m][r]);
            if (lane % 4 == 0 && t < d.Tq)
                x.lse[end.statistics(d, order) + t] = (softmax.max[m][r] + log2f(sum)) * kLn2;
            factor[m][r] = 1 / sum;
        }
    const size_t stride = size_t(d.NH) * D;
    if (first < d.Tq)
        store_rows<D, M>(x.out + end.outputs(d, order) + first * stride, stride, d.Tq - first, own, O,
                         factor);
}

// ---------------------------------------------------------------------------------------------------------
// variants

template <int M, int N, class Heads> struct Forward {
    static size_t shared(int D) { return size_t(16 * M * kWarps + 4 * N) * (D + 8) * sizeof(floatX); }
    static bool supports(int D) {
        return Heads::has(D) && shared(D) + kBoundsBytes<M> <= shared_limit();
    }
    static Floor floor(const AttentionDims& d) {
        const double heads = double(d.B) * d.NH;
        const Work work = work_on_queries(d, 16 * M * kWarps, 16 * M, N);
        return {.bytes = heads * (2 * (d.Tq + work.rows) * d.D * sizeof(floatX) + 4. * d.Tq),
                .mma_flops = heads * work.pairs * 4 * d.D,
                .at_most = d.documents.positions != nullptr};
    }
    static void run(const AttentionForward& t, const AttentionDims& d) {
        const HeadOrder order = blocks_of_queries(d, 16 * M * kWarps);
        Heads::with(d.D, [&](auto D) {
            with_bounds(d, [&](auto bounded) {
                launch(attention_mma_forward_kernel<D, M, N, bounded>, dim3(order.blocks), dim3(kThreads),
                       shared(D) + bounds_bytes<M>(d), floor(d), t, d, order,
                       float(kLog2e * attention_scale(d)));
            });
        });
    }
};
template <int M, int N, class Heads>
static constexpr AttentionVariant<AttentionForward> variant(const char* name) {
    using V = Forward<M, N, Heads>;
    return {name, V::supports, V::floor, V::run};
}

AttentionForwardVariants attention_mma_forward_variants() {
    static constexpr AttentionVariant<AttentionForward> all[] = {
        variant<1, 64, HeadSizes<32, 64, 80, 96, 128>>("64x64"),
        variant<2, 64, HeadSizes<32, 64, 80, 96>>("128x64"),
        variant<2, 32, HeadSizes<128>>("128x32"),
        variant<1, 32, HeadSizes<160>>("64x32"),
    };
    return all;
}

}  // namespace cuda
}  // namespace PRECISION
