// A group of lanes takes a head of a token: each lane a pack of the first half and the pack D/2 behind.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/scratch.h"

namespace PRECISION {
namespace cuda {

static constexpr int kRotaryThreads = 256;

// One pack of each half of a head, in FP32.
struct HeadHalves {
    float a[Pack::size], b[Pack::size];

    __device__ __forceinline__ HeadHalves() {}
    __device__ __forceinline__ HeadHalves(const Pack& x, const Pack& y) {
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) a[k] = float(x[k]), b[k] = float(y[k]);
    }
    __device__ __forceinline__ void store(floatX* to, int half) const {
        Pack x, y;
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) x[k] = floatX(a[k]), y[k] = floatX(b[k]);
        x.store(to), y.store(to + half);
    }
    // direction: 1, or -1 for the inverse rotation
    __device__ __forceinline__ void rotate(const float* row, int half, float direction) {
        #pragma unroll
        for (int k = 0; k < Pack::size; k += PackF::size) {
            const PackF c = PackF::load_cached(row + k), s = PackF::load_cached(row + half + k);
            #pragma unroll
            for (int j = 0; j < PackF::size; j++) {
                const float x = a[k + j], y = b[k + j], sine = s[j] * direction;
                a[k + j] = x * c[j] - y * sine, b[k + j] = y * c[j] + x * sine;
            }
        }
    }
    __device__ __forceinline__ float squares() const {
        float sum = 0;
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) sum += a[k] * a[k] + b[k] * b[k];
        return sum;
    }
};

// Over a group of `lanes` lanes, a power of two; each gets the result.
static __device__ __forceinline__ float group_sum(float v, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(kFullWarp, v, step);
    return v;
}

// The lanes of a group, a power of two with a lane for each pack of half a head.
static int lanes_of(int D) {
    int lanes = 1;
    while (lanes * Pack::size < D / 2) lanes *= 2;
    return lanes;
}

static __device__ __forceinline__ HeadHalves gain_of(const floatX* gain, int c, int half, bool here) {
    const Pack one = Pack::filled(floatX(1.f));
    if (!gain || !here) return {one, one};
    return {Pack::load_cached(gain + c), Pack::load_cached(gain + half + c)};
}

// FLOOR bytes = (before ? 3 : 2) N (NH + KV) D sizeof(floatX) + (table ? 4 min(T, N) D : 0)
//             + (gain ? 2 D sizeof(floatX) : 0)
__global__ void __launch_bounds__(kRotaryThreads) rotary_forward_kernel(Rotary t, int lanes) {
    const int half = t.D / 2, heads = t.NH + t.KV, c = int(threadIdx.x) % lanes * Pack::size;
    const size_t item = size_t(blockIdx.x) * (kRotaryThreads / lanes) + threadIdx.x / lanes;
    const int n = int(item / heads), h = int(item % heads);
    const bool here = n < t.N && c < half;          // else the lane only joins the sums
    floatX* x = t.qkv + size_t(n) * t.stride + size_t(h) * t.D + c;
    const Pack zero = Pack::filled(floatX(0.f));
    const Pack first = here ? Pack::load(x) : zero, second = here ? Pack::load(x + half) : zero;
    HeadHalves v(first, second);
    float rstd = 1;
    if (t.norm != QkNorm::None) rstd = 1 / sqrtf(group_sum(v.squares(), lanes) / t.D + t.eps);
    if (!here) return;
    if (t.before) {
        floatX* to = t.before + item * t.D + c;
        first.store(to), second.store(to + half);
    }
    const HeadHalves g = gain_of(h < t.NH ? t.q_gain : t.k_gain, c, half, true);
    const auto normed = [&] {
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) v.a[k] *= rstd * g.a[k], v.b[k] *= rstd * g.b[k];
    };
    if (t.norm == QkNorm::Before) normed();
    if (t.table) v.rotate(t.table + size_t(t.position(n)) * t.D + c, half, 1);
    if (t.norm == QkNorm::After) normed();
    v.store(x, half);
}

// Where the sums of a block's threads wait, four floats of each side by side: neither stores nor the loads of
// neighbouring columns meet in a bank.
static constexpr int kPlane = kRotaryThreads * PackF::size + 16, kPlanes = 2 * Pack::size / PackF::size;

// The sum of column i that the lanes of `group` left.
static __device__ __forceinline__ float summand(const float* sums, int i, int group, int lanes, int half) {
    const int c = i % half, k = c % Pack::size, plane = (i / half * Pack::size + k) / PackF::size;
    return sums[plane * kPlane + (group * lanes + c / Pack::size) * PackF::size + k % PackF::size];
}

// The rows of a block, and the sums that it leaves: partial (blocks, 2, D), of the gains of q and of k.
struct BackwardRows { float* partial; int rows, lanes; };

// With xhat = x rstd (rotated, if the norm comes after) and dy the gradient of xhat g:
//     dg += dy xhat,   dx = rstd (g dy - xhat mean(g dy xhat))
// FLOOR bytes = (norm ? 3 : 2) N (NH + KV) D sizeof(floatX) + (table ? 4 min(T, N) D : 0)
//             + (gain ? 2 D sizeof(floatX) + 8 blocks D : 0)
template <bool Gain>
__global__ void __launch_bounds__(kRotaryThreads)
rotary_backward_kernel(floatX* dqkv, Rotary t, BackwardRows block) {
    SMEM(float[Gain ? kPlanes * kPlane : 1], sums);
    const int lanes = block.lanes, groups = kRotaryThreads / lanes, group = int(threadIdx.x) / lanes;
    const int half = t.D / 2, c = int(threadIdx.x) % lanes * Pack::size, start = blockIdx.x * block.rows;
    const int rows = t.N - start < block.rows ? t.N - start : block.rows;
    const bool before = t.norm == QkNorm::Before, after = t.norm == QkNorm::After, has = c < half;
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        const int heads = of_keys ? t.KV : t.NH, items = rows * heads;
        const HeadHalves g = gain_of(of_keys ? t.k_gain : t.q_gain, c, half, has);
        float da[Gain ? Pack::size : 1] = {}, db[Gain ? Pack::size : 1] = {};
        for (int i = group; i - group < items; i += groups) {       // all lanes of a warp go as often
            const bool here = has && i < items;
            const int n = start + i / heads, h = i % heads + (of_keys ? t.NH : 0);
            floatX* dx = dqkv + size_t(n) * t.stride + size_t(h) * t.D + c;
            const floatX* x = t.before + (size_t(n) * (t.NH + t.KV) + h) * t.D + c;
            const float* row = t.table && here ? t.table + size_t(t.position(n)) * t.D + c : nullptr;
            const Pack zero = Pack::filled(floatX(0.f));
            HeadHalves d(here ? Pack::load(dx) : zero, here ? Pack::load(dx + half) : zero);
            if (before && row) d.rotate(row, half, -1);
            if (t.norm != QkNorm::None) {
                HeadHalves u(here ? Pack::load_streaming(x) : zero,
                             here ? Pack::load_streaming(x + half) : zero);
                const float rstd = 1 / sqrtf(group_sum(u.squares(), lanes) / t.D + t.eps);
                if (after && row) u.rotate(row, half, 1);
                float mean = 0;
                #pragma unroll
                for (int k = 0; k < Pack::size; k++) {
                    u.a[k] *= rstd, u.b[k] *= rstd;
                    if constexpr (Gain) da[k] += d.a[k] * u.a[k], db[k] += d.b[k] * u.b[k];
                    d.a[k] *= g.a[k], d.b[k] *= g.b[k];
                    mean += d.a[k] * u.a[k] + d.b[k] * u.b[k];
                }
                mean = group_sum(mean, lanes) / t.D;
                #pragma unroll
                for (int k = 0; k < Pack::size; k++)
                    d.a[k] = (d.a[k] - u.a[k] * mean) * rstd, d.b[k] = (d.b[k] - u.b[k] * mean) * rstd;
            }
            if (!before && row) d.rotate(row, half, -1);
            if (here) d.store(dx, half);
        }
        if constexpr (Gain) {
            float* own = sums + threadIdx.x * PackF::size;
            store_floats(own, da, kPlane), store_floats(own + kPlanes / 2 * kPlane, db, kPlane);
            __syncthreads();
            for (int i = threadIdx.x; i < t.D; i += kRotaryThreads) {
                float sum = 0;
                for (int j = 0; j < groups; j++) sum += summand(sums, i, j, lanes, half);
                block.partial[(size_t(blockIdx.x) * 2 + of_keys) * t.D + i] = sum;
            }
            __syncthreads();
        }
    }
}

static void check(const Rotary& t) {
    static_assert(kGpuRotaryUnit == 2 * Pack::size);
    CHECK_INPUT(t.D % kGpuRotaryUnit == 0 && t.D <= kGpuHeadMost,
                "rotary: heads of {} channels, expected a multiple of {} up to {}", t.D, kGpuRotaryUnit,
                kGpuHeadMost);
    CHECK(t.stride % Pack::size == 0, "rotary: rows {} apart, expected a multiple of {}", t.stride,
          Pack::size);
}

void rotary_forward(const Rotary& t) {
    check(t);
    if (walked(rotary_forward_cost, t)) return;
    const int lanes = lanes_of(t.D);
    const size_t items = size_t(t.N) * t.heads();
    const double bytes = double(items) * t.D * sizeof(floatX);
    const unsigned blocks = unsigned(div_up(items, kRotaryThreads / lanes));
    launch(rotary_forward_kernel, dim3(blocks), dim3(kRotaryThreads), 0,
           {.bytes = (t.before ? 3 : 2) * bytes + double(rotary_tables(t))}, t, lanes);
}

void rotary_backward(floatX* dqkv, real* dq_gain, real* dk_gain, const Rotary& t) {
    check(t);
    if (walked(rotary_backward_cost, t)) return;
    const int lanes = lanes_of(t.D), heads = t.NH + t.KV, groups = kRotaryThreads / lanes;
    const bool gain = t.q_gain != nullptr;
    const int few = div_up(groups, heads);          // rows that occupy a block's threads
    const RowGroups row_groups =
        gain ? row_groups_of(t.N, kNormGroups) : RowGroups{.rows = few, .count = div_up(t.N, few)};
    const size_t columns = 2 * size_t(t.D);
    float* partial = gain ? scratch<float>(size_t(row_groups.count) * columns) : nullptr;
    const double bytes = double(t.N) * heads * t.D * sizeof(floatX);
    launch(gain ? rotary_backward_kernel<true> : rotary_backward_kernel<false>, dim3(row_groups.count),
           dim3(kRotaryThreads), 0,
           {.bytes = (t.norm != QkNorm::None ? 3 : 2) * bytes + double(rotary_tables(t)) +
                     (gain ? 4. * double(columns) * row_groups.count : 0)},
           dqkv, t, BackwardRows{partial, row_groups.rows, lanes});
    if (gain)
        add_columns({.out = {dq_gain, dk_gain}, .partial = partial, .rows = row_groups.count,
                     .columns = t.D});
}

}  // namespace cuda
}  // namespace PRECISION
