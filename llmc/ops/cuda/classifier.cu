// A block computes a row, in two passes. Between the passes each thread keeps its columns on the chip: kPacks
// packs in registers, further packs in shared memory. Columns that fit in neither (BF16 on an H100: beyond
// 144,000) are read twice. A thread reads back its own columns only: the reduction has the only barrier.
//
// For a slice of a vocabulary the kernel writes the row's statistics instead of a loss. After an exchange,
// another kernel merges the statistics of all slices, and reads and writes the row once more.
//
// Exponents are of 2: logits times log2(e), minus the running maximum of these products, in one fused
// multiply-add. Each pack's maximum comes first, so that one exponential per logit is enough.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

static constexpr int kThreads = 512, kPacks = 7;
static constexpr int kStep = kThreads * Pack::size;         // columns of the block at once
static constexpr int kHeldColumns = kPacks * kStep;
static constexpr size_t kStaticShared = 1024;               // more than the reduction needs

static constexpr float kLn2 = 0.6931471805599453f;

// Function from the logits in memory to the softmax's logits: y = c f(l / c). None: y = l.
enum class Cap : uint8_t { None, Tanh, Sqrt };

// tanh by an exponential: off by some 1e-7, or 1e-7 c of a logit.
template <Cap kCap> static __device__ __forceinline__ float capped(float l, float c) {
    if constexpr (kCap == Cap::Tanh) {
        const float t = ptx::exp2_approx(fabsf(l) * (-2 * kLog2e / c));
        return copysignf(c * __fdividef(1 - t, 1 + t), l);
    }
    if constexpr (kCap == Cap::Sqrt) return l * rsqrtf(1 + (l / c) * (l / c));
    return l;
}
// dy/dl
template <Cap kCap> static __device__ __forceinline__ float cap_slope(float y, float c) {
    const float rest = 1 - (y / c) * (y / c);
    return kCap == Cap::Tanh ? rest : kCap == Cap::Sqrt ? rest * sqrtf(fmaxf(rest, 0)) : 1;
}

// Of some logits: the largest, times log2(e), and the sum of 2^(x log2(e) - max). NaN among the logits, or
// +inf, makes the sum NaN. The first maximum is the lowest finite number: -inf would spoil rows with -inf.
struct Softmax { float max, sum; };

static __device__ __forceinline__ Softmax join(Softmax a, Softmax b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * ptx::exp2_approx(a.max - max) + b.sum * ptx::exp2_approx(b.max - max)};
}

// The logits of a pack at column c, capped; -inf from column V on.
template <Cap kCap> struct Logits {
    float x[Pack::size];
    __device__ __forceinline__ Logits(const Pack& pack, int c, int V, float cap) {
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) x[k] = capped<kCap>(pack.as_float(k), cap);
        if (c + Pack::size > V)
            #pragma unroll
            for (int k = 0; k < Pack::size; k++)
                if (c + k >= V) x[k] = -INFINITY;
    }
};

template <Cap kCap>
static __device__ __forceinline__ Softmax add_logits(Softmax s, const Logits<kCap>& l) {
    float largest = l.x[0], sum = 0;
    #pragma unroll
    for (int k = 1; k < Pack::size; k++) largest = fmaxf(largest, l.x[k]);
    const float max = fmaxf(s.max, largest * kLog2e);
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) sum += ptx::exp2_approx(l.x[k] * kLog2e - max);
    return {max, s.sum * ptx::exp2_approx(s.max - max) + sum};
}

// Of the whole row, for every thread: lanes in a tree, then warps in order.
static __device__ __forceinline__ Softmax block_join(Softmax s) {
    constexpr int kWarps = kThreads / 32;
    SMEM(Softmax[kWarps], of_warp);
    #pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        s = join(s, {__shfl_down_sync(kFullWarp, s.max, lanes), __shfl_down_sync(kFullWarp, s.sum, lanes)});
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = s;
    __syncthreads();
    Softmax row = of_warp[0];
    #pragma unroll 1
    for (int warp = 1; warp < kWarps; warp++) row = join(row, of_warp[warp]);
    return row;
}

static __device__ __forceinline__ Pack load_logits(const floatX* row, int c, int V) {
    return c < V ? Pack::load_streaming(row + c) : Pack::filled(floatX(0));
}

static __device__ __forceinline__ float loss_of(const Softmax& s, float target) {
    return (log2f(s.sum) + (s.max - target * kLog2e)) * kLn2;
}

// FLOOR bytes = N V sizeof(floatX) + 8 N
template <Cap kCap>
__global__ void __launch_bounds__(kThreads)
classifier_forward_kernel(float* losses, const floatX* logits, const int32_t* targets, int V, int Vp,
                          float cap) {
    const floatX* row = logits + size_t(blockIdx.x) * Vp;
    Softmax mine = {kLowest, 0};
    for_loaded<4>(int(threadIdx.x) * Pack::size, V, kStep, [=](int c) { return load_logits(row, c, V); },
                  [&](const Pack& x, int c) { mine = add_logits<kCap>(mine, {x, c, V, cap}); });
    const Softmax s = block_join(mine);
    if (threadIdx.x == 0)
        losses[blockIdx.x] = loss_of(s, capped<kCap>(float(row[targets[blockIdx.x]]), cap));
}

// The statistics of a slice of a row: maximum, sum, and the target's logit if in this slice.
// FLOOR bytes = N V sizeof(floatX) + 16 N
template <Cap kCap> __global__ void __launch_bounds__(kThreads) classifier_slice_kernel(Classifier t) {
    const floatX* row = t.logits + size_t(blockIdx.x) * t.Vp;
    Softmax mine = {kLowest, 0};
    for_loaded<4>(int(threadIdx.x) * Pack::size, t.V, kStep,
                  [=](int c) { return load_logits(row, c, t.V); },
                  [&](const Pack& x, int c) { mine = add_logits<kCap>(mine, {x, c, t.V, t.cap}); });
    const Softmax s = block_join(mine);
    if (threadIdx.x != 0) return;
    const int column = t.targets[blockIdx.x] - t.v0;
    float* stats = t.stats + 3 * size_t(blockIdx.x);
    stats[0] = s.max, stats[1] = s.sum;
    stats[2] = column >= 0 && column < t.V ? capped<kCap>(float(row[column]), t.cap) : 0;
}

// The column with the larger logit; if equal, the first column. Column -1 has no logit.
struct Largest { float value; int column; };
static __device__ __forceinline__ Largest larger(Largest a, Largest b) {
    const bool second = b.column >= 0 && (a.column < 0 || b.value > a.value ||
                                          (b.value == a.value && b.column < a.column));
    return second ? b : a;
}

// FLOOR bytes = N V sizeof(floatX) + 8 N
__global__ void __launch_bounds__(kThreads)
classifier_largest_kernel(float* values, int32_t* columns, Classifier t) {
    const floatX* row = t.logits + size_t(blockIdx.x) * t.Vp;
    Largest mine = {kLowest, -1};
    for_loaded<4>(int(threadIdx.x) * Pack::size, t.V, kStep,
                  [=](int c) { return load_logits(row, c, t.V); },
                  [&](const Pack& x, int c) {
                      #pragma unroll
                      for (int k = 0; k < Pack::size; k++)
                          if (c + k < t.V) mine = larger(mine, {x.as_float(k), c + k});
                  });
    SMEM(Largest[kThreads / 32], of_warp);
    #pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        mine = larger(mine, {__shfl_down_sync(kFullWarp, mine.value, lanes),
                             __shfl_down_sync(kFullWarp, mine.column, lanes)});
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < kThreads / 32; warp++) mine = larger(mine, of_warp[warp]);
    values[blockIdx.x] = mine.value;
    columns[blockIdx.x] = mine.column < 0 ? -1 : t.v0 + mine.column;
}

struct Gradient {
    float max, scale, dloss;        // scale = dloss / sum
    int target;
    float cap;
};

template <Cap kCap>
static __device__ __forceinline__ void store_gradient(floatX* row, int c, const Logits<kCap>& l,
                                                      const Gradient& g) {
    float dx[Pack::size];
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) dx[k] = ptx::exp2_approx(l.x[k] * kLog2e - g.max) * g.scale;
    if (unsigned(g.target - c) < unsigned(Pack::size))      // a single thread of the block, once
        #pragma unroll
        for (int k = 0; k < Pack::size; k++)
            if (c + k == g.target) dx[k] -= g.dloss;
    if constexpr (kCap != Cap::None)                        // -inf from column V on: 0 times NaN
        #pragma unroll
        for (int k = 0; k < Pack::size; k++)
            dx[k] = l.x[k] == -INFINITY ? 0 : dx[k] * cap_slope<kCap>(l.x[k], g.cap);
    Pack pack;
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) pack[k] = floatX(dx[k]);
    pack.store_streaming(row + c);
}

// on_chip: columns in registers and shared memory, a multiple of a pack
// FLOOR bytes = N (V + Vp) sizeof(floatX) + 8 N
template <Cap kCap>
__global__ void __launch_bounds__(kThreads, 2)
    classifier_forward_backward_kernel(float* losses, floatX* logits, const int32_t* targets, float dloss,
                                       int V, int Vp, int on_chip, float cap) {
    DYN_SHARED(floatX, shared);  // columns [kHeldColumns, on_chip)
    floatX* row = logits + size_t(blockIdx.x) * Vp;
    const int first = threadIdx.x * Pack::size, beyond = first + kHeldColumns;
    const int target = load_cached(targets + blockIdx.x);
    const float target_logit = threadIdx.x == 0 ? float(row[target]) : 0;   // before anyone writes

    for (int c = beyond; c < on_chip; c += kStep) ptx::cp_async16(shared + c - kHeldColumns, row + c, c < V);
    ptx::cp_async_commit();
    Held held[kPacks];
    #pragma unroll
    for (int i = 0; i < kPacks; i++)
        held[i] = {first + i * kStep < V ? ptx::load16_streaming(row + first + i * kStep) : uint4{}};
    Softmax mine = {kLowest, 0};
    #pragma unroll
    for (int i = 0; i < kPacks; i++) {
        if (first + i * kStep < V) mine = add_logits<kCap>(mine, {held[i].pack(), first + i * kStep, V, cap});
        held[i].keep();
    }
    ptx::cp_async_wait<0>();
    int c = beyond;
    for (; c < on_chip; c += kStep)
        mine = add_logits<kCap>(mine, {Pack::load(shared + c - kHeldColumns), c, V, cap});
    for (; c < V; c += kStep) mine = add_logits<kCap>(mine, {load_logits(row, c, V), c, V, cap});

    const Softmax s = block_join(mine);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss_of(s, capped<kCap>(target_logit, cap));
    const Gradient g = {s.max, dloss / s.sum, dloss, target, cap};
    #pragma unroll
    for (int i = 0; i < kPacks; i++)
        if (first + i * kStep < Vp)
            store_gradient<kCap>(row, first + i * kStep, {held[i].pack(), first + i * kStep, V, cap}, g);
    for (c = beyond; c < on_chip; c += kStep)
        store_gradient<kCap>(row, c, {Pack::load(shared + c - kHeldColumns), c, V, cap}, g);
    for (; c < Vp; c += kStep) store_gradient<kCap>(row, c, {load_logits(row, c, V), c, V, cap}, g);
}

// Merges the statistics of row n, slice by slice.
static __device__ __forceinline__ Softmax merged(const Classifier& t, const float* stats, int n) {
    Softmax s = {kLowest, 0};
    for (int slice = 0; slice < t.slices; slice++) {
        const float* of_slice = stats + 3 * (size_t(slice) * t.N + n);
        s = join(s, {load_cached(of_slice), load_cached(of_slice + 1)});
    }
    return s;
}
static __device__ __forceinline__ float merged_loss(const Classifier& t, const float* stats, const Softmax& s,
                                                    int n, int target) {
    return loss_of(s, load_cached(stats + 3 * (size_t(target / t.Vp) * t.N + n) + 2));
}

// FLOOR bytes = (8 slices + 12) N
__global__ void __launch_bounds__(kThreads) classifier_merge_kernel(Classifier t, const float* stats) {
    const int n = blockIdx.x * kThreads + threadIdx.x;
    if (n < t.N) t.losses[n] = merged_loss(t, stats, merged(t, stats, n), n, t.targets[n]);
}

// FLOOR bytes = N (V + Vp) sizeof(floatX) + (8 slices + 12) N
template <Cap kCap>
__global__ void __launch_bounds__(kThreads)
    classifier_merge_backward_kernel(Classifier t, const float* stats, float dloss) {
    floatX* row = t.logits + size_t(blockIdx.x) * t.Vp;
    const int target = load_cached(t.targets + blockIdx.x);
    const Softmax s = merged(t, stats, blockIdx.x);
    if (threadIdx.x == 0) t.losses[blockIdx.x] = merged_loss(t, stats, s, blockIdx.x, target);
    const Gradient g = {s.max, dloss / s.sum, dloss, target - t.v0, t.cap};
    for_loaded<4>(int(threadIdx.x) * Pack::size, t.Vp, kStep,
                  [=](int c) { return load_logits(row, c, t.V); },
                  [&](const Pack& x, int c) { store_gradient<kCap>(row, c, {x, c, t.V, t.cap}, g); });
}

static void check_columns(int Vp) {
    check_packs("classifier: Vp", Vp);
}

static double row_bytes(const Classifier& t, int columns) { return double(t.N) * columns * sizeof(floatX); }

// f(constant of t's cap)
template <class F> static void with_cap(const Classifier& t, F f) {
    if (t.cap == 0) f(std::integral_constant<Cap, Cap::None>());
    else if (t.cap_kind == SoftcapKind::Tanh) f(std::integral_constant<Cap, Cap::Tanh>());
    else f(std::integral_constant<Cap, Cap::Sqrt>());
}

static void slice_statistics(const Classifier& t) {
    with_cap(t, [&](auto cap) {
        launch(classifier_slice_kernel<cap>, dim3(t.N), dim3(kThreads), 0,
               {.bytes = row_bytes(t, t.V) + 16. * t.N}, t);
    });
}

void classifier_forward(const Classifier& t) {
    if (walked(classifier_forward_cost, t)) return;
    check_columns(t.Vp);
    if (t.slices > 1) return slice_statistics(t);
    with_cap(t, [&](auto cap) {
        launch(classifier_forward_kernel<cap>, dim3(t.N), dim3(kThreads), 0,
               {.bytes = row_bytes(t, t.V) + 8. * t.N}, t.losses, t.logits, t.targets, t.V, t.Vp, t.cap);
    });
}

void classifier_largest(real* values, int32_t* columns, const Classifier& t) {
    if (walked(classifier_largest_cost, t)) return;
    check_columns(t.Vp);
    launch(classifier_largest_kernel, dim3(t.N), dim3(kThreads), 0, {.bytes = row_bytes(t, t.V) + 8. * t.N},
           values, columns, t);
}

// A chunk moves 12 bytes for each element of wte and computes 6 x 4096 operations: a twelfth of its time at
// 700 TFLOP/s and 4 TB/s.
int logit_rows() { return kLogitRowsOfGpu; }

void classifier_forward_backward(const Classifier& t, real dloss) {
    if (walked(classifier_forward_backward_cost, t)) return;
    check_columns(t.Vp);
    if (t.slices > 1) return slice_statistics(t);
    const size_t room = (shared_limit() - kStaticShared) / sizeof(Pack) * Pack::size;
    const size_t rest = t.Vp > kHeldColumns ? size_t(t.Vp - kHeldColumns) : 0;
    const size_t shared = rest < room ? rest : room;
    with_cap(t, [&](auto cap) {
        launch(classifier_forward_backward_kernel<cap>, dim3(t.N), dim3(kThreads), shared * sizeof(floatX),
               {.bytes = row_bytes(t, t.V + t.Vp) + 8. * t.N}, t.losses, t.logits, t.targets, dloss, t.V,
               t.Vp, kHeldColumns + int(shared), t.cap);
    });
}

void classifier_merge(const Classifier& t, const real* stats) {
    if (walked(classifier_merge_cost, t)) return;
    if (t.slices == 1) return;
    launch(classifier_merge_kernel, dim3(div_up(t.N, kThreads)), dim3(kThreads), 0,
           {.bytes = (8. * t.slices + 12) * t.N}, t, stats);
}

void classifier_merge_backward(const Classifier& t, const real* stats, real dloss) {
    if (walked(classifier_merge_backward_cost, t)) return;
    if (t.slices == 1) return;
    with_cap(t, [&](auto cap) {
        launch(classifier_merge_backward_kernel<cap>, dim3(t.N), dim3(kThreads), 0,
               {.bytes = row_bytes(t, t.V + t.Vp) + (8. * t.slices + 12) * t.N}, t, stats, dloss);
    });
}

}  // namespace cuda
}  // namespace PRECISION
