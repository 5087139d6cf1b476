// Forward: a warp takes a token. The row waits in shared memory between the passes, so global memory is read
// and written once. Backward: a thread owns columns and keeps the sums over tokens in registers. A block
// reads R tokens between two barriers; its sums are a row of `partial`, added up by sums.cu in fixed order.
#include "llmc/base/check.h"
#include "llmc/ops/gpu_rows.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/scratch.h"

namespace PRECISION {
namespace cuda {

// ---------------------------------------------------------------------------------------------------------
// forward

static constexpr int kForwardWarps = 4; // of a block
static constexpr int kAhead = 4;        // packs of a lane under way at once

// row[c] = the residual stream of a token, rounded, for the columns of this lane; returns their sum.
static __device__ __forceinline__ float read_row(floatX* row, const Layernorm& t, size_t at, int C) {
    const int first = threadIdx.x % 32 * Pack::size, step = 32 * Pack::size;
    float sum = 0;
    for (int start = first; start < C; start += kAhead * step) {
        Pack x[kAhead], r[kAhead];
        #pragma unroll
        for (int j = 0; j < kAhead; j++) {
            const int c = start + j * step;
            if (c < C) x[j] = Pack::load_streaming(t.x + at + c);
            if (c < C && t.r) r[j] = Pack::load_streaming(t.r + at + c);
        }
        #pragma unroll
        for (int j = 0; j < kAhead; j++) {
            const int c = start + j * step;
            if (c >= C) continue;
            if (t.r) {
                const Pack bias = t.bias ? Pack::load_cached(t.bias + c) : Pack::filled(floatX(0.f));
                #pragma unroll
                for (int k = 0; k < Pack::size; k++)
                    x[j][k] = floatX(float(x[j][k]) + (float(r[j][k]) + float(bias[k])));
                x[j].store(t.x1 + at + c);
            }
            #pragma unroll
            for (int k = 0; k < Pack::size; k++) sum += float(x[j][k]);
            x[j].store(row + c);
        }
    }
    return sum;
}

// FLOOR bytes = (r ? 4 : 2) N C sizeof(floatX) + (mean ? 8 : 4) N + vectors C sizeof(floatX)
// vectors: how many of w, b and bias are not null
template <bool kAmaxes>
__global__ void __launch_bounds__(32 * kForwardWarps) layernorm_forward_kernel(Layernorm t, int N, int C) {
    DYN_SHARED(floatX, rows);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = 32 * Pack::size;
    const int n = blockIdx.x * (blockDim.x / 32) + warp;
    if (n >= N) return;                                   // a whole warp leaves: no barrier below
    floatX* row = rows + warp * C;                        // (C) this warp's token
    const size_t at = size_t(n) * C;

    const float sum = read_row(row, t, at, C), mean = has_mean(t.kind) ? warp_sum(sum) / C : 0;
    float squares = 0;
    for (int c = lane * Pack::size; c < C; c += step) {   // each lane reads back what it wrote: no sync
        const Pack x = Pack::load(row + c);
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) squares += (float(x[k]) - mean) * (float(x[k]) - mean);
    }
    const float rstd = 1 / sqrtf(warp_sum(squares) / C + t.eps);
    Amax most;
    for (int c = lane * Pack::size; c < C; c += step) {
        Pack x = Pack::load(row + c);
        const Pack gain = t.w ? Pack::load_cached(t.w + c) : Pack::filled(floatX(1.f));
        const Pack shift = t.b ? Pack::load_cached(t.b + c) : Pack::filled(floatX(0.f));
        #pragma unroll
        for (int k = 0; k < Pack::size; k++)
            x[k] = floatX((float(x[k]) - mean) * rstd * float(gain[k]) + float(shift[k]));
        x.store(t.y + at + c);
        if constexpr (kAmaxes) most.see(x);
    }
    if constexpr (kAmaxes) {
        const unsigned bits = __reduce_max_sync(kFullWarp, most.bits);
        if (lane == 0) raise_amax(t.amaxes, bits);
    }
    if (lane == 0 && has_mean(t.kind)) store_streaming(t.mean + n, mean);
    if (lane == 0) store_streaming(t.rstd + n, rstd);
}

void layernorm_forward(const Layernorm& t, int N, int C) {
    if (walked(layernorm_forward_cost, t, N, C)) return;
    check_packs("layernorm: C", C);
    const size_t row = size_t(C) * sizeof(floatX);
    const int fit = int(shared_limit() / row), warps = fit < kForwardWarps ? fit : kForwardWarps;
    CHECK_INPUT(warps >= 1, "layernorm: {} channels take {} bytes of shared memory, a block here has {}", C,
                row, shared_limit());
    const double vectors = (t.r && t.bias) + (t.w != nullptr) + (t.b != nullptr);
    clear_amaxes(t.amaxes);
    launch(t.amaxes ? layernorm_forward_kernel<true> : layernorm_forward_kernel<false>,
           dim3(div_up(N, warps)), dim3(32 * warps), warps * row,
           {.bytes = (t.r ? 4. : 2.) * N * row + (has_mean(t.kind) ? 8. : 4.) * N + vectors * row}, t, N, C);
}

static constexpr int kResidualThreads = 256;

// A block takes columns of a row.
// FLOOR bytes = 3 N C sizeof(floatX) + (bias ? C : 0) sizeof(floatX)
__global__ void __launch_bounds__(kResidualThreads)
    add_residual_kernel(floatX* out, const floatX* x, const floatX* r, const floatX* bias, int C) {
    const int c = (blockIdx.y * blockDim.x + threadIdx.x) * Pack::size;
    if (c >= C) return;
    const size_t at = size_t(blockIdx.x) * C + c;
    Pack sum = Pack::load_streaming(x + at);
    const Pack add = Pack::load_streaming(r + at);
    const Pack b = bias ? Pack::load_cached(bias + c) : Pack::filled(floatX(0.f));
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) sum[k] = floatX(float(sum[k]) + (float(add[k]) + float(b[k])));
    sum.store(out + at);
}

void add_residual(floatX* out, const floatX* x, const floatX* r, const floatX* bias, int N, int C) {
    if (walked(add_residual_cost, bias != nullptr, N, C)) return;
    check_packs("layernorm: C", C);
    const int packs = C / Pack::size, warps = div_up(packs, 32);
    const int threads = 32 * warps < kResidualThreads ? 32 * warps : kResidualThreads;
    launch(add_residual_kernel, dim3(N, div_up(packs, threads)), dim3(threads), 0,
           {.bytes = (3. * N + (bias ? 1 : 0)) * C * sizeof(floatX)}, out, x, r, bias, C);
}

// ---------------------------------------------------------------------------------------------------------
// backward

static constexpr int kBackwardThreads = 512;
static_assert(kGpuDbiasBytes == 2 * kBackwardThreads * sizeof(Pack) &&
              kGpuLayernormBytes == 3 * kBackwardThreads * sizeof(Pack) &&
              kGpuRmsnormBytes == 4 * kBackwardThreads * sizeof(Pack));

// Sums each of 8 values over the lanes of a warp; lane l returns the sum of value l / 4.
static __device__ __forceinline__ float warp_sum_of_8(const float (&v)[8]) {
    float sum = sum_of_8(v);
    sum += __shfl_xor_sync(kFullWarp, sum, 2);
    return sum + __shfl_xor_sync(kFullWarp, sum, 1);
}

// Sums of 8 values over the block, in the order of the warps, for every thread. sums: 8 floats per warp,
// which nobody may still be reading from.
static __device__ __forceinline__ void block_sum_of_8(float (&v)[8], float* sums) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float mine = warp_sum_of_8(v);
    if (lane % 4 == 0) sums[warp * 8 + lane / 4] = mine;
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 8; i++) v[i] = 0;
    for (int w = 0; w < int(blockDim.x) / 32; w++) {
        const PackF low = PackF::load(sums + w * 8), high = PackF::load(sums + w * 8 + 4);
        #pragma unroll
        for (int i = 0; i < 4; i++) v[i] += low[i], v[i + 4] += high[i];
    }
}

// Which sums over the tokens a block leaves in `partial`.
struct Sums {
    bool dw, db, dbias;
    HOST_DEVICE int count() const { return dw + db + dbias; }
};

// dx += rstd (w dy - mean(w dy) - xhat mean(w dy xhat)),  xhat = (x1 - mean) rstd;  RMSNorm: mean(w dy) is
// left out, as x1's mean is
// partial[block] = (sum of dy xhat, sum of dy, with Dbias of the rounded dx) over the block's tokens,
// (outputs, C)
// FLOOR bytes = 4 N C sizeof(floatX) + (mean ? 8 : 4) N + (w ? C : 0) sizeof(floatX) + 4 outputs groups C
template <int P, int R, bool Rms, bool Dbias>
__global__ void __launch_bounds__(kBackwardThreads)
layernorm_backward_kernel(floatX* dx, float* partial, const floatX* dy, const floatX* x1, const floatX* w,
                          const float* mean, const float* rstd, int N, int C, int rows, Sums kept) {
    SMEM(float[2][8 * kBackwardThreads / 32], sums);
    const auto column = [](int p) { return int(p * blockDim.x + threadIdx.x) * Pack::size; };
    const uint4 zero = {0, 0, 0, 0};
    // the widest tokens leave no registers for sums of a shift, and read the gain again for each token
    constexpr bool kRoom = P < 4;
    float dw[P][Pack::size] = {}, db[kRoom ? P : 1][Pack::size] = {}, dbias[Dbias ? P : 1][Pack::size] = {};
    Held gain[kRoom ? P : 1];
    const auto load_gain = [&](int p) -> uint4 {
        if (column(p) >= C) return zero;
        return w ? ptx::load16_cached(w + column(p)) : std::bit_cast<uint4>(Pack::filled(floatX(1.f)));
    };
    const auto gain_at = [&](int p) {
        return kRoom ? gain[kRoom ? p : 0].pack() : Held{load_gain(p)}.pack();
    };
    const auto keep_gain = [&](int p) {
        if (kRoom) gain[kRoom ? p : 0].keep();
    };
    #pragma unroll
    for (int p = 0; kRoom && p < P; p++) gain[p] = {load_gain(p)};

    const int first = blockIdx.x * rows, end = first + rows < N ? first + rows : N;
    int buffer = 0;
    for (int start = first; start < end; start += R, buffer ^= 1) {
        Held g[R][P], x[R][P], d[R][P];
        float m[R], s[R], mine[8] = {};         // mine: of token r, the sums of w dy and of w dy xhat
        #pragma unroll
        for (int r = 0; r < R; r++) {
            const int n = start + r;
            m[r] = n < end && !Rms ? load_cached(mean + n) : 0;
            s[r] = n < end ? load_cached(rstd + n) : 0;
            #pragma unroll
            for (int p = 0; p < P; p++) {
                const bool here = n < end && column(p) < C;
                const size_t at = size_t(n) * C + column(p);
                g[r][p] = {here ? ptx::load16_streaming(dy + at) : zero};
                x[r][p] = {here ? ptx::load16_streaming(x1 + at) : zero};
                d[r][p] = {here ? ptx::load16(dx + at) : zero};
            }
        }
        #pragma unroll
        for (int r = 0; r < R; r++)
            #pragma unroll
            for (int p = 0; p < P; p++) {
                const Pack w_p = gain_at(p), g_p = g[r][p].pack(), x_p = x[r][p].pack();
                #pragma unroll
                for (int k = 0; k < Pack::size; k++) {
                    const float dyk = float(g_p[k]), xhat = (float(x_p[k]) - m[r]) * s[r];
                    const float wdy = float(w_p[k]) * dyk;
                    mine[2 * r] += wdy, mine[2 * r + 1] += wdy * xhat;
                    dw[p][k] += dyk * xhat;
                    if constexpr (kRoom) db[p][k] += dyk;
                }
                g[r][p].keep(), x[r][p].keep(), keep_gain(p);
            }
        block_sum_of_8(mine, sums[buffer]);
        #pragma unroll
        for (int r = 0; r < R; r++)
            #pragma unroll
            for (int p = 0; p < P; p++) {
                if (start + r >= end || column(p) >= C) continue;
                const float a = Rms ? 0 : mine[2 * r] / C, b = mine[2 * r + 1] / C;
                const Pack w_p = gain_at(p), g_p = g[r][p].pack(), x_p = x[r][p].pack();
                Pack d_p = d[r][p].pack();
                #pragma unroll
                for (int k = 0; k < Pack::size; k++) {
                    const float xhat = (float(x_p[k]) - m[r]) * s[r], wdy = float(w_p[k]) * float(g_p[k]);
                    d_p[k] = floatX(float(d_p[k]) + (wdy - a - xhat * b) * s[r]);
                }
                d_p.store(dx + size_t(start + r) * C + column(p));
                if constexpr (Dbias) add_pack(dbias[p], d_p);
                keep_gain(p);
            }
    }
    #pragma unroll
    for (int p = 0; p < P; p++) {
        if (column(p) >= C) continue;
        float* to = partial + size_t(blockIdx.x) * kept.count() * C + column(p);
        if (kept.dw) store_floats(to, dw[p]);
        if constexpr (kRoom)
            if (kept.db) store_floats(to + kept.dw * C, db[p]);
        if constexpr (Dbias) store_floats(to + (kept.dw + kept.db) * C, dbias[p]);
    }
}

static constexpr int kWidePacks = kGpuNormBytes / (kBackwardThreads * sizeof(Pack));
static constexpr int kSumsThreads = 128;

// The widest rows, whose sums over the tokens no registers hold, take two kernels. dx: a block takes a token,
// which its threads hold between the two passes.
// FLOOR bytes = 4 N C sizeof(floatX) + (mean ? 8 : 4) N + (w ? C : 0) sizeof(floatX)
template <bool Rms>
__global__ void __launch_bounds__(kBackwardThreads)
layernorm_backward_wide_kernel(floatX* dx, const floatX* dy, const floatX* x1, const floatX* w,
                               const float* mean, const float* rstd, int C) {
    SMEM(float[8 * kBackwardThreads / 32], sums);
    const size_t at = size_t(blockIdx.x) * C;
    const auto column = [](int p) { return int(p * blockDim.x + threadIdx.x) * Pack::size; };
    const auto gain_at = [&](int p) {
        return w ? Pack::load_cached(w + column(p)) : Pack::filled(floatX(1.f));
    };
    const float m = Rms ? 0 : load_cached(mean + blockIdx.x), s = load_cached(rstd + blockIdx.x);
    Held g[kWidePacks], x[kWidePacks];
    float mine[8] = {};                         // the sums of w dy and of w dy xhat
    #pragma unroll
    for (int p = 0; p < kWidePacks; p++) {
        if (column(p) >= C) continue;
        g[p] = {ptx::load16_streaming(dy + at + column(p))};
        x[p] = {ptx::load16_streaming(x1 + at + column(p))};
        const Pack w_p = gain_at(p), g_p = g[p].pack(), x_p = x[p].pack();
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) {
            const float wdy = float(w_p[k]) * float(g_p[k]);
            mine[0] += wdy, mine[1] += wdy * ((float(x_p[k]) - m) * s);
        }
        g[p].keep(), x[p].keep();
    }
    block_sum_of_8(mine, sums);
    const float a = Rms ? 0 : mine[0] / C, b = mine[1] / C;
    #pragma unroll
    for (int p = 0; p < kWidePacks; p++) {
        if (column(p) >= C) continue;
        const Pack w_p = gain_at(p), g_p = g[p].pack(), x_p = x[p].pack();
        Pack d_p = Pack::load(dx + at + column(p));
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) {
            const float xhat = (float(x_p[k]) - m) * s, wdy = float(w_p[k]) * float(g_p[k]);
            d_p[k] = floatX(float(d_p[k]) + (wdy - a - xhat * b) * s);
        }
        d_p.store(dx + at + column(p));
    }
}

// The sums of dy xhat and of dy over the tokens of a group: a thread takes a pack of columns.
// FLOOR bytes = 2 N C sizeof(floatX) + (mean ? 8 : 4) N + 4 outputs groups C
__global__ void __launch_bounds__(kSumsThreads)
layernorm_sums_kernel(float* partial, const floatX* dy, const floatX* x1, const float* mean,
                      const float* rstd, int N, int C, int rows, Sums kept) {
    const int c = int(blockIdx.x * kSumsThreads + threadIdx.x) * Pack::size;
    if (c >= C) return;
    const int first = blockIdx.y * rows, end = first + rows < N ? first + rows : N;
    float dw[Pack::size] = {}, db[Pack::size] = {};
    for (int n = first; n < end; n++) {
        const float m = mean ? load_cached(mean + n) : 0, s = load_cached(rstd + n);
        const size_t at = size_t(n) * C + c;
        const Pack g = Pack::load_streaming(dy + at), x = Pack::load_streaming(x1 + at);
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) {
            dw[k] += float(g[k]) * ((float(x[k]) - m) * s);
            db[k] += float(g[k]);
        }
    }
    float* to = partial + size_t(blockIdx.y) * kept.count() * C + c;
    if (kept.dw) store_floats(to, dw);
    if (kept.db) store_floats(to + kept.dw * C, db);
}

// each: packs of a thread. For more rows the kernels of wide tokens have no registers, nor have they for
// dbias.
template <bool Rms> static auto backward_kernel(int each, bool dbias) {
    if (dbias && each == 2) return layernorm_backward_kernel<2, 1, Rms, true>;
    if (dbias) return layernorm_backward_kernel<1, 4, Rms, true>;
    if constexpr (Rms)
        if (each == 4) return layernorm_backward_kernel<4, 1, Rms, false>;
    if (each == 3) return layernorm_backward_kernel<3, 1, Rms, false>;
    if (each == 2) return layernorm_backward_kernel<2, 1, Rms, false>;
    return layernorm_backward_kernel<1, 4, Rms, false>;
}

struct Backward {
    floatX* dx;
    float* partial;
    const floatX *dy, *x1, *w;
    const float *mean, *rstd;                   // mean: null without has_mean
    int N, C, rows;                             // rows: tokens of a group
    Sums sums;
};

static void backward_in_one(const Backward& t, int groups) {
    const int packs = t.C / Pack::size, each = div_up(packs, kBackwardThreads);
    const bool dbias = t.sums.dbias;
    const auto kernel = t.mean ? backward_kernel<false>(each, dbias) : backward_kernel<true>(each, dbias);
    const int threads = div_up(div_up(packs, each), 32) * 32;
    launch(kernel, dim3(groups), dim3(threads), 0,
           {.bytes = (4. * t.N + (t.w ? 1 : 0)) * t.C * sizeof(floatX) + (t.mean ? 8. : 4.) * t.N +
                     4. * t.sums.count() * groups * t.C},
           t.dx, t.partial, t.dy, t.x1, t.w, t.mean, t.rstd, t.N, t.C, t.rows, t.sums);
}

static void backward_in_two(const Backward& t, int groups) {
    CHECK(size_t(t.C) * sizeof(floatX) <= kGpuNormBytes,
          "layernorm: {} channels; its backward kernels take at most {}", t.C,
          kGpuNormBytes / sizeof(floatX));
    const double row = double(t.C) * sizeof(floatX), statistics = (t.mean ? 8. : 4.) * t.N;
    launch(t.mean ? layernorm_backward_wide_kernel<false> : layernorm_backward_wide_kernel<true>, dim3(t.N),
           dim3(kBackwardThreads), 0, {.bytes = (4. * t.N + (t.w ? 1 : 0)) * row + statistics}, t.dx, t.dy,
           t.x1, t.w, t.mean, t.rstd, t.C);
    if (t.sums.count() == 0) return;
    launch(layernorm_sums_kernel, dim3(div_up(t.C / Pack::size, kSumsThreads), groups), dim3(kSumsThreads), 0,
           {.bytes = 2. * t.N * row + statistics + 4. * t.sums.count() * groups * t.C}, t.partial, t.dy, t.x1,
           t.mean, t.rstd, t.N, t.C, t.rows, t.sums);
}

void layernorm_backward(const NormGrads& g, const floatX* dy, const Layernorm& norm, int N, int C) {
    if (walked(layernorm_backward_cost, g, norm, N, C)) return;
    check_packs("layernorm: C", C);
    const size_t row = size_t(C) * sizeof(floatX);
    const bool fused = g.dbias && row <= kGpuDbiasBytes;
    const Sums sums{.dw = g.dw != nullptr, .db = g.db != nullptr, .dbias = fused};
    const RowGroups groups = row_groups_of(N, kNormGroups);
    const size_t outputs = size_t(sums.count()) + (g.dbias && !fused);
    float* partial = outputs ? scratch<float>(size_t(groups.count) * outputs * C) : nullptr;
    const float* const mean = has_mean(norm.kind) ? norm.mean : nullptr;
    const Backward t = {g.dx, partial, dy, norm.x1, norm.w, mean, norm.rstd, N, C, groups.rows, sums};
    if (row <= (mean || g.db ? kGpuLayernormBytes : kGpuRmsnormBytes)) backward_in_one(t, groups.count);
    else backward_in_two(t, groups.count);
    ColumnSums to = {.out = {}, .partial = partial, .rows = groups.count, .columns = C};
    int count = 0;
    for (float* out : {g.dw, g.db, fused ? g.dbias : nullptr})
        if (out) to.out[count++] = out;
    if (count) add_columns(to);
    if (g.dbias && !fused) add_rows(g.dbias, partial, g.dx, N, C, size_t(C));
}

}  // namespace cuda
}  // namespace PRECISION
