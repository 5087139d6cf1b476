// Attention in FP32, in tiles of 32 queries by 32 keys, with an online softmax (decl/attention.h). Heads of
// more than 128 channels have tiles of 16 by 16, which fit in the shared memory of every GPU.
//
//     S = Q K^T    P = exp(S - lse)    dP = dO V^T    dS = P (dP - delta)    delta = rowsum(dO * O)
//     O = P V      dV = P^T dO         dQ = dS K      dK = dS^T Q
//
// Q carries the factor of the scores. Eight threads share a row of the tile: each computes every eighth score
// and four in 32 of the row's channels. Each output summed over tiles has a kernel (O; dQ; dK and dV) and so
// a fixed order of sums. Tiles above the diagonal are skipped, and Bounded those before the window or of
// other documents.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/attention/attention.h"
#include "llmc/ops/cuda/attention/attention_head.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

static constexpr int rows_of(int D) { return D <= 128 ? 32 : 16; }

// Of kernels for heads of at most MaxD channels.
template <int MaxD> static constexpr int kRows = rows_of(MaxD);
template <int MaxD> static constexpr int kThreads = 8 * kRows<MaxD>;
template <int MaxD> static constexpr int kPitch = kRows<MaxD> + 4;      // of weights

// Rows [start, start + kRows<MaxD>) of a head, in shared memory as floats, a row every D + 4: eight rows
// side by side are then in different banks. Zeros behind row `rows`.
template <int MaxD>
static __device__ __forceinline__ void load_tile(float* to, const floatX* from, size_t stride, int start,
                                                 int rows, int D, float factor) {
    const int packs = D / Pack::size;
    for (int i = threadIdx.x; i < kRows<MaxD> * packs; i += kThreads<MaxD>) {
        const int r = i / packs, c = i % packs * Pack::size;
        const Pack p = start + r < rows ? Pack::load_cached(from + size_t(start + r) * stride + c)
                                        : Pack::filled(floatX(0.f));
        float values[Pack::size];
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) values[k] = float(p[k]) * factor;
        store_floats(to + r * (D + 4) + c, values);
    }
}

template <int MaxD>
static __device__ __forceinline__ void store_tile(floatX* to, size_t stride, int start, int rows, int D,
                                                  const float* from) {
    const int packs = D / Pack::size;
    for (int i = threadIdx.x; i < kRows<MaxD> * packs; i += kThreads<MaxD>) {
        const int r = i / packs, c = i % packs * Pack::size;
        if (start + r >= rows) break;
        Pack p;
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) p[k] = floatX(from[r * (D + 4) + c + k]);
        p.store(to + size_t(start + r) * stride + c);
    }
}

// s[i] = row . tile[lane + 8 i]
template <int N>
static __device__ __forceinline__ void products(float (&s)[N], const float* row, const float* tile, int lane,
                                                int D) {
    #pragma unroll
    for (int i = 0; i < N; i++) s[i] = 0;
    for (int c = 0; c < D; c += 4) {
        const PackF a = PackF::load(row + c);
        #pragma unroll
        for (int i = 0; i < N; i++) {
            const PackF b = PackF::load(tile + (lane + 8 * i) * (D + 4) + c);
            s[i] += (a[0] * b[0] + a[1] * b[1]) + (a[2] * b[2] + a[3] * b[3]);
        }
    }
}

// The channels of a row that a thread owns: 4 lane + 32 i and the next three, below D.
template <int MaxD> struct Channels {
    float sum[MaxD / 32][4] = {};

    // += sum over j of weights[j] tile[j]
    __device__ __forceinline__ void add(const float* weights, const float* tile, int lane, int D) {
        for (int j = 0; j < kRows<MaxD>; j++) {
            const float w = weights[j];
            #pragma unroll
            for (int i = 0; i < MaxD / 32; i++) {
                if (4 * lane + 32 * i >= D) continue;
                const PackF x = PackF::load(tile + j * (D + 4) + 4 * lane + 32 * i);
                #pragma unroll
                for (int k = 0; k < 4; k++) sum[i][k] += w * x[k];
            }
        }
    }
    __device__ __forceinline__ void store(float* row, int lane, int D, float factor) const {
        #pragma unroll
        for (int i = 0; i < MaxD / 32; i++) {
            if (4 * lane + 32 * i >= D) continue;
            PackF x;
            #pragma unroll
            for (int k = 0; k < 4; k++) x[k] = sum[i][k] * factor;
            x.store(row + 4 * lane + 32 * i);
        }
    }
};

// Over the eight threads of a row; each gets the result.
static __device__ __forceinline__ float row_sum(float v) {
    #pragma unroll
    for (int lanes = 4; lanes > 0; lanes /= 2) v += __shfl_xor_sync(kFullWarp, v, lanes);
    return v;
}
static __device__ __forceinline__ float row_max(float v) {
    #pragma unroll
    for (int lanes = 4; lanes > 0; lanes /= 2) v = fmaxf(v, __shfl_xor_sync(kFullWarp, v, lanes));
    return v;
}

// Where a block works: a head of a sequence, a tile of its rows, and a row of that for each thread.
template <class Head, int MaxD> struct Place {
    Head head;
    int start, row, lane;
    __device__ __forceinline__ explicit Place(const HeadOrder& order)
        : head(order), start(head.tile * kRows<MaxD>), row(threadIdx.x / 8), lane(threadIdx.x % 8) {}
};

// Keys that the queries of a tile see: [0, seen)
template <int MaxD>
static __device__ __forceinline__ int seen_by(const AttentionDims& d, int start) {
    const int queries = start + kRows<MaxD> < d.Tq ? start + kRows<MaxD> : d.Tq;
    const int seen = d.q_offset + queries - d.k_offset;
    return seen < d.Tk ? seen : d.Tk;
}

// ---------------------------------------------------------------------------------------------------------
// kernels

// FLOOR bytes = 2 B (Tq NH + Tk KV) D sizeof(floatX) + 4 B NH Tq         K and V from L2 but once
template <int MaxD, bool Bounded>
__global__ void __launch_bounds__(kThreads<MaxD>, Bounded ? 2 : 0)     // for more blocks, bounds spill
attention_plain_forward_kernel(floatX* out, float* lse, const floatX* q, const floatX* k, const floatX* v,
                               AttentionDims d, HeadOrder order, float scale) {
    DYN_SHARED(float, shared);
    constexpr int rows = kRows<MaxD>, pitch = kPitch<MaxD>;
    const int D = d.D, tile = rows * (D + 4);
    float *Q = shared, *K = Q + tile, *V = K + tile, *P = V + tile;
    const Place<QueryHead, MaxD> at(order);
    const int t = at.start + at.row, last = d.q_offset + t - d.k_offset, seen = seen_by<MaxD>(d, at.start);
    const int sequence = Bounded ? at.head.sequence(order) : 0;
    const int lowest = Bounded ? d.first_key(t < d.Tq ? t : d.Tq - 1, sequence) : 0;    // key of this row
    load_tile<MaxD>(Q, q + at.head.queries(d, order), d.q_stride, at.start, d.Tq, D, scale);

    float max = kLowest, sum = 0;
    Channels<MaxD> O;
    for (int key = Bounded ? d.first_key(at.start, sequence) / rows * rows : 0; key < seen; key += rows) {
        __syncthreads();                        // the tiles of the last round have been read
        load_tile<MaxD>(K, k + at.head.keys(d, order), d.kv_stride, key, d.Tk, D, 1);
        load_tile<MaxD>(V, v + at.head.keys(d, order), d.kv_stride, key, d.Tk, D, 1);
        __syncthreads();
        float s[rows / 8];
        products(s, Q + at.row * (D + 4), K, at.lane, D);
        float larger = max;
        #pragma unroll
        for (int i = 0; i < rows / 8; i++) {
            const int u = key + at.lane + 8 * i;
            if (u > last || u >= d.Tk || (Bounded && u < lowest)) s[i] = -INFINITY;
            larger = fmaxf(larger, s[i]);
        }
        larger = row_max(larger);
        const float shrink = exp2f((max - larger) * kLog2e);
        max = larger, sum *= shrink;
        #pragma unroll
        for (int i = 0; i < rows / 8; i++) {
            const float p = exp2f((s[i] - max) * kLog2e);
            sum += p;
            P[at.row * pitch + at.lane + 8 * i] = p;
        }
        __syncwarp();
        #pragma unroll
        for (int i = 0; i < MaxD / 32 * 4; i++) O.sum[i / 4][i % 4] *= shrink;
        O.add(P + at.row * pitch, V, at.lane, D);
    }
    sum = row_sum(sum);
    const QueryHead end(order, ptx::block_again());
    if (at.lane == 0 && t < d.Tq) lse[end.statistics(d, order) + t] = max + logf(sum);
    __syncthreads();
    O.store(Q + at.row * (D + 4), at.lane, D, 1 / sum);
    __syncthreads();
    store_tile<MaxD>(out + end.outputs(d, order), size_t(d.NH) * D, at.start, d.Tq, D, Q);
}

// dQ, and delta for the next kernel
// FLOOR bytes = B (4 Tq NH + 2 Tk KV) D sizeof(floatX) + 8 B NH Tq
template <int MaxD, bool Bounded>
__global__ void __launch_bounds__(kThreads<MaxD>, Bounded ? 2 : 0)     // for more blocks, bounds spill
attention_plain_queries_kernel(AttentionBackward x, float* deltas, AttentionDims d, HeadOrder order,
                               float scale) {
    DYN_SHARED(float, shared);
    constexpr int rows = kRows<MaxD>, pitch = kPitch<MaxD>;
    const int D = d.D, tile = rows * (D + 4);
    float *Q = shared, *dO = Q + tile, *K = dO + tile, *V = K + tile, *dS = V + tile;
    const Place<QueryHead, MaxD> at(order);
    const int t = at.start + at.row, last = d.q_offset + t - d.k_offset, seen = seen_by<MaxD>(d, at.start);
    const int sequence = Bounded ? at.head.sequence(order) : 0;
    const int lowest = Bounded ? d.first_key(t < d.Tq ? t : d.Tq - 1, sequence) : 0;    // key of this row
    const float* own_dO = dO + at.row * (D + 4);
    load_tile<MaxD>(Q, x.q + at.head.queries(d, order), d.q_stride, at.start, d.Tq, D, scale);
    load_tile<MaxD>(dO, x.dout + at.head.outputs(d, order), size_t(d.NH) * D, at.start, d.Tq, D, 1);
    load_tile<MaxD>(K, x.out + at.head.outputs(d, order), size_t(d.NH) * D, at.start, d.Tq, D, 1);
    __syncthreads();
    float delta = 0;
    for (int c = at.lane; c < D; c += 8) delta += own_dO[c] * K[at.row * (D + 4) + c];
    delta = row_sum(delta);
    if (at.lane == 0 && t < d.Tq) deltas[at.head.statistics(d, order) + t] = delta;
    const float lse = t < d.Tq ? x.lse[at.head.statistics(d, order) + t] : 0;

    Channels<MaxD> dQ;
    for (int key = Bounded ? d.first_key(at.start, sequence) / rows * rows : 0; key < seen; key += rows) {
        __syncthreads();
        load_tile<MaxD>(K, x.k + at.head.keys(d, order), d.kv_stride, key, d.Tk, D, 1);
        load_tile<MaxD>(V, x.v + at.head.keys(d, order), d.kv_stride, key, d.Tk, D, 1);
        __syncthreads();
        float s[rows / 8], dp[rows / 8];
        products(s, Q + at.row * (D + 4), K, at.lane, D);
        products(dp, own_dO, V, at.lane, D);
        #pragma unroll
        for (int i = 0; i < rows / 8; i++) {
            const int u = key + at.lane + 8 * i;
            const bool hidden = u > last || u >= d.Tk || (Bounded && u < lowest);
            const float p = hidden ? 0 : exp2f((s[i] - lse) * kLog2e);
            dS[at.row * pitch + at.lane + 8 * i] = p * (dp[i] - delta);
        }
        __syncwarp();
        dQ.add(dS + at.row * pitch, K, at.lane, D);
    }
    __syncthreads();
    dQ.store(Q + at.row * (D + 4), at.lane, D, scale);
    __syncthreads();
    const QueryHead end(order, ptx::block_again());
    store_tile<MaxD>(x.dq + end.queries(d, order), d.q_stride, at.start, d.Tq, D, Q);
}

// dK and dV: the rows of a tile are keys here
// FLOOR bytes = B (2 Tq NH + 4 Tk KV) D sizeof(floatX) + 8 B NH Tq
template <int MaxD, bool Bounded>
__global__ void __launch_bounds__(kThreads<MaxD>, 2)
attention_plain_keys_kernel(AttentionBackward x, const float* deltas, AttentionDims d, HeadOrder order,
                            float scale) {
    DYN_SHARED(float, shared);
    constexpr int rows = kRows<MaxD>, pitch = kPitch<MaxD>;
    const int D = d.D, tile = rows * (D + 4);
    float *K = shared, *V = K + tile, *Q = V + tile, *dO = Q + tile, *P = dO + tile, *dS = P + rows * pitch;
    float *lse = dS + rows * pitch, *delta = lse + rows;
    const Place<KeyHead, MaxD> at(order);
    const int u = at.start + at.row,
              first = d.k_offset + at.start - d.q_offset;  // query that sees the first key
    const int last_key = (at.start + rows < d.Tk ? at.start + rows : d.Tk) - 1;
    const int sequence = Bounded ? at.head.sequence(order) : 0;
    const int last_query = Bounded ? d.end_query(last_key, sequence) : d.Tq;
    const int end = Bounded ? d.end_query(u < d.Tk ? u : d.Tk - 1, sequence) : d.Tq;    // of this key
    load_tile<MaxD>(K, x.k + at.head.keys(d, order), d.kv_stride, at.start, d.Tk, D, 1);
    load_tile<MaxD>(V, x.v + at.head.keys(d, order), d.kv_stride, at.start, d.Tk, D, 1);

    Channels<MaxD> dK, dV;
    for (int h = 0; h < order.sharing; h++)
        for (int query = first > 0 ? first / rows * rows : 0; query < last_query; query += rows) {
            __syncthreads();
            load_tile<MaxD>(Q, x.q + at.head.queries(d, order, h), d.q_stride, query, d.Tq, D, scale);
            load_tile<MaxD>(dO, x.dout + at.head.outputs(d, order, h), size_t(d.NH) * D, query, d.Tq, D, 1);
            if (threadIdx.x < rows) {
                const int t = query + threadIdx.x;
                lse[threadIdx.x] = t < d.Tq ? x.lse[at.head.statistics(d, order, h) + t] : 0;
                delta[threadIdx.x] = t < d.Tq ? deltas[at.head.statistics(d, order, h) + t] : 0;
            }
            __syncthreads();
            float s[rows / 8], dp[rows / 8];
            products(s, K + at.row * (D + 4), Q, at.lane, D);
            products(dp, V + at.row * (D + 4), dO, at.lane, D);
            #pragma unroll
            for (int i = 0; i < rows / 8; i++) {
                const int j = at.lane + 8 * i, t = query + j;
                const bool visible = t < d.Tq && d.k_offset + u <= d.q_offset + t &&
                                     (!Bounded || t < end);
                const float p = visible ? exp2f((s[i] - lse[j]) * kLog2e) : 0;
                P[at.row * pitch + j] = p, dS[at.row * pitch + j] = p * (dp[i] - delta[j]);
            }
            __syncwarp();
            dV.add(P + at.row * pitch, dO, at.lane, D);
            dK.add(dS + at.row * pitch, Q, at.lane, D);
        }
    __syncthreads();
    dK.store(K + at.row * (D + 4), at.lane, D, 1);
    dV.store(V + at.row * (D + 4), at.lane, D, 1);
    __syncthreads();
    const KeyHead again(order, ptx::block_again());
    store_tile<MaxD>(x.dk + again.keys(d, order), d.kv_stride, at.start, d.Tk, D, K);
    store_tile<MaxD>(x.dv + again.keys(d, order), d.kv_stride, at.start, d.Tk, D, V);
}

// ---------------------------------------------------------------------------------------------------------
// launchers

void attention_check(const AttentionDims& d) {
    CHECK(d.fits_documents(), "attention: one table of documents of two");
    CHECK(d.q_stride % Pack::size == 0 && d.kv_stride % Pack::size == 0,
          "attention: rows {} and {} apart, expected multiples of {}", d.q_stride, d.kv_stride, Pack::size);
    CHECK_INPUT(d.D % kGpuHeadUnit == 0 && d.D <= kGpuHeadMost,
                "attention: heads of {} channels, expected a multiple of {} up to {}", d.D, kGpuHeadUnit,
                kGpuHeadMost);
}

static size_t shared_bytes(int D, int tiles, int weights) {
    const int rows = rows_of(D);
    return size_t(tiles * rows * (D + 4) + weights * rows * (rows + 4) + 2 * rows) * sizeof(float);
}
static double bytes_of(const AttentionDims& d, double of_queries, double of_keys, double statistics) {
    const double head = double(d.B) * d.D * sizeof(floatX);
    return head * (of_queries * d.Tq * d.NH + of_keys * d.Tk * d.KV()) + 4 * statistics * d.B * d.NH * d.Tq;
}

// Documents leave out more.
static Floor floor_of(const AttentionDims& d, double bytes) {
    return {.bytes = bytes, .at_most = d.documents.positions != nullptr};
}

// Without the keys that no query reads.
static AttentionDims of_read_keys(AttentionDims d) {
    d.Tk -= d.first_key(0) / rows_of(d.D) * rows_of(d.D);
    return d;
}

// f(the channels for which kernels are compiled, Bounded)
template <class F> static void with_kernels(const AttentionDims& d, F f) {
    with_bounds(d, [&](auto bounded) {
        if (d.D <= 64) f(std::integral_constant<int, 64>(), bounded);
        else if (d.D <= 128) f(std::integral_constant<int, 128>(), bounded);
        else f(std::integral_constant<int, kGpuHeadMost>(), bounded);
    });
}

void attention_plain_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                             const AttentionDims& d) {
    attention_check(d);
    const HeadOrder order = blocks_of_queries(d, rows_of(d.D));
    with_kernels(d, [&](auto most, auto bounded) {
        launch(attention_plain_forward_kernel<most, bounded>, dim3(order.blocks), dim3(kThreads<most>),
               shared_bytes(d.D, 3, 1), floor_of(d, bytes_of(of_read_keys(d), 2, 2, 1)), out, lse, q, k, v, d,
               order, float(attention_scale(d)));
    });
}

void attention_plain_backward(const AttentionBackward& t, const AttentionDims& d) {
    attention_check(d);
    size_t used = 0;
    float* deltas = scratch<float>(size_t(d.B) * d.NH * d.Tq, used);
    const float scale = float(attention_scale(d));
    const int rows = rows_of(d.D);
    const HeadOrder order = blocks_of_queries(d, rows), order_of_keys = blocks_of_keys(d, rows);
    with_kernels(d, [&](auto most, auto bounded) {
        launch(attention_plain_queries_kernel<most, bounded>, dim3(order.blocks), dim3(kThreads<most>),
               shared_bytes(d.D, 4, 1), floor_of(d, bytes_of(of_read_keys(d), 4, 2, 2)), t, deltas, d, order,
               scale);
        launch(attention_plain_keys_kernel<most, bounded>, dim3(order_of_keys.blocks), dim3(kThreads<most>),
               shared_bytes(d.D, 4, 2), floor_of(d, bytes_of(d, 2, 4, 2)), t, deltas, d, order_of_keys,
               scale);
    });
    if (!t.dbias) return;
    float* const sums = scratch<float>(attention_sums(d) / sizeof(float), used);
    const int of_q = d.NH * d.D, of_k = d.KV() * d.D;
    add_rows(t.dbias, sums, t.dq, d.B * d.Tq, of_q, d.q_stride);
    add_rows(t.dbias + of_q, sums, t.dk, d.B * d.Tk, of_k, d.kv_stride);
    add_rows(t.dbias + of_q + of_k, sums, t.dv, d.B * d.Tk, of_k, d.kv_stride);
}

}  // namespace cuda
}  // namespace PRECISION
