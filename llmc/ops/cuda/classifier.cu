// A block takes a row. Each thread keeps its part of it on the chip between the two passes: Packs of it in
// registers, further ones in shared memory; only what fits in neither (BF16 on an H100: columns beyond
// 144,000) is read twice. Threads read back only what they wrote, so the one barrier is that of the
// reduction.
//
// A part of a vocabulary leaves its row's statistics instead of a loss. Who has those of all parts merges
// them, and reads and writes the row once more.
//
// The online sum takes a pack at a time: its maximum first, so that one exp per logit is enough.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/variants.h"

namespace PRECISION {
namespace cuda {

static constexpr int kThreads = 512;
static constexpr int kStep = kThreads * Pack::size;         // columns that the block takes at once
static constexpr size_t kStaticShared = 1024;               // what the reduction takes, and to spare

// exp(x) by one exp2 of the GPU. |x| as large as 100: relative error below 1e-5.
static __device__ __forceinline__ float exp_of(float x) { return exp2f(x * kLog2e); }

// Of some logits: the largest, and the sum of exp(x - max). NaN among the logits, or +inf, makes the sum NaN.
// The lowest finite number as first maximum, and not -inf, keeps rows with some -inf right.
struct Softmax { float max, sum; };

static __device__ __forceinline__ Softmax join(Softmax a, Softmax b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * exp_of(a.max - max) + b.sum * exp_of(b.max - max)};
}

static __device__ __forceinline__ Softmax add_logits(Softmax s, const Pack& x) {
    float max = s.max, sum = 0;
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) max = fmaxf(max, float(x[k]));
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) sum += exp_of(float(x[k]) - max);
    return {max, s.sum * exp_of(s.max - max) + sum};
}

// Of the whole row, for every thread: lanes in a tree, then warps in order.
template <int Threads> static __device__ __forceinline__ Softmax block_join(Softmax s) {
    constexpr int kWarps = Threads / 32;
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

// x, the pack at column c, with -inf behind the V columns that count
static __device__ __forceinline__ Pack masked(Pack x, int c, int V) {
    if (c + Pack::size > V)
        #pragma unroll
        for (int k = 0; k < Pack::size; k++)
            if (c + k >= V) x[k] = floatX(-INFINITY);
    return x;
}
static __device__ __forceinline__ Pack load_logits(const floatX* row, int c, int V) {
    return c < V ? masked(Pack::load_streaming(row + c), c, V) : Pack::filled(floatX(-INFINITY));
}

static __device__ __forceinline__ float loss_of(const Softmax& s, float target) {
    return logf(s.sum) + (s.max - target);
}

// FLOOR bytes = N V sizeof(floatX) + 8 N
__global__ void __launch_bounds__(kThreads)
classifier_forward_kernel(float* losses, const floatX* logits, const int32_t* targets, int V, int Vp) {
    const floatX* row = logits + size_t(blockIdx.x) * Vp;
    Softmax mine = {kLowest, 0};
    for_loaded<4>(int(threadIdx.x) * Pack::size, V, kStep, [=](int c) { return load_logits(row, c, V); },
                  [&](const Pack& x, int) { mine = add_logits(mine, x); });
    const Softmax s = block_join<kThreads>(mine);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss_of(s, float(row[targets[blockIdx.x]]));
}

// The statistics of a part of a row: maximum, sum, and the target's logit if it is here.
// FLOOR bytes = N V sizeof(floatX) + 16 N
__global__ void __launch_bounds__(kThreads) classifier_part_kernel(Classifier t) {
    const floatX* row = t.logits + size_t(blockIdx.x) * t.Vp;
    Softmax mine = {kLowest, 0};
    for_loaded<4>(int(threadIdx.x) * Pack::size, t.V, kStep,
                  [=](int c) { return load_logits(row, c, t.V); },
                  [&](const Pack& x, int) { mine = add_logits(mine, x); });
    const Softmax s = block_join<kThreads>(mine);
    if (threadIdx.x != 0) return;
    const int column = t.targets[blockIdx.x] - t.v0;
    float* stats = t.stats + 3 * size_t(blockIdx.x);
    stats[0] = s.max, stats[1] = s.sum, stats[2] = column >= 0 && column < t.V ? float(row[column]) : 0;
}

struct Gradient {
    Softmax s;
    float dloss, scale;     // scale = dloss / sum
    int target;
};

static __device__ __forceinline__ void store_gradient(floatX* row, int c, Pack x, const Gradient& g) {
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) {
        const float p = exp_of(float(x[k]) - g.s.max);
        x[k] = floatX(c + k == g.target ? (p / g.s.sum - 1) * g.dloss : p * g.scale);
    }
    x.store_streaming(row + c);
}

// on_chip: columns that registers and shared memory hold, a multiple of a pack
// FLOOR bytes = N (V + Vp) sizeof(floatX) + 8 N
template <int Threads, int Packs>
__global__ void __launch_bounds__(Threads, 1024 / Threads)
    classifier_forward_backward_kernel(float* losses, floatX* logits, const int32_t* targets, float dloss,
                                       int V, int Vp, int on_chip) {
    constexpr int step = Threads * Pack::size, held_columns = Packs * step;
    DYN_SHARED(floatX, shared);  // columns [held_columns, on_chip)
    floatX* row = logits + size_t(blockIdx.x) * Vp;
    const int first = threadIdx.x * Pack::size, beyond = first + held_columns;
    const int target = load_cached(targets + blockIdx.x);
    const float target_logit = threadIdx.x == 0 ? float(row[target]) : 0;   // before anyone writes

    for (int c = beyond; c < on_chip; c += step) ptx::cp_async16(shared + c - held_columns, row + c, c < V);
    ptx::cp_async_commit();
    Held held[Packs];
    #pragma unroll
    for (int i = 0; i < Packs; i++)
        held[i] = {first + i * step < V ? ptx::load16_streaming(row + first + i * step) : uint4{}};
    Softmax mine = {kLowest, 0};
    #pragma unroll
    for (int i = 0; i < Packs; i++) {
        if (first + i * step < V) mine = add_logits(mine, masked(held[i].pack(), first + i * step, V));
        held[i].keep();
    }
    ptx::cp_async_wait<0>();
    int c = beyond;
    for (; c < on_chip; c += step)
        mine = add_logits(mine, masked(Pack::load(shared + c - held_columns), c, V));
    for (; c < V; c += step) mine = add_logits(mine, load_logits(row, c, V));

    const Softmax s = block_join<Threads>(mine);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss_of(s, target_logit);
    const Gradient g = {s, dloss, dloss / s.sum, target};
    #pragma unroll
    for (int i = 0; i < Packs; i++)
        if (first + i * step < Vp)
            store_gradient(row, first + i * step, masked(held[i].pack(), first + i * step, V), g);
    for (c = beyond; c < on_chip; c += step)
        store_gradient(row, c, masked(Pack::load(shared + c - held_columns), c, V), g);
    for (; c < Vp; c += step) store_gradient(row, c, load_logits(row, c, V), g);
}

// Of row n over all parts, in their order.
static __device__ __forceinline__ Softmax merged(const Classifier& t, const float* stats, int n) {
    Softmax s = {kLowest, 0};
    for (int part = 0; part < t.parts; part++) {
        const float* of_part = stats + 3 * (size_t(part) * t.N + n);
        s = join(s, {load_cached(of_part), load_cached(of_part + 1)});
    }
    return s;
}
static __device__ __forceinline__ float merged_loss(const Classifier& t, const float* stats, const Softmax& s,
                                                    int n, int target) {
    return loss_of(s, load_cached(stats + 3 * (size_t(target / t.Vp) * t.N + n) + 2));
}

// FLOOR bytes = (8 parts + 12) N
__global__ void __launch_bounds__(kThreads) classifier_merge_kernel(Classifier t, const float* stats) {
    const int n = blockIdx.x * kThreads + threadIdx.x;
    if (n < t.N) t.losses[n] = merged_loss(t, stats, merged(t, stats, n), n, t.targets[n]);
}

// FLOOR bytes = N (V + Vp) sizeof(floatX) + (8 parts + 12) N
__global__ void __launch_bounds__(kThreads)
    classifier_merge_backward_kernel(Classifier t, const float* stats, float dloss) {
    floatX* row = t.logits + size_t(blockIdx.x) * t.Vp;
    const int target = load_cached(t.targets + blockIdx.x);
    const Softmax s = merged(t, stats, blockIdx.x);
    if (threadIdx.x == 0) t.losses[blockIdx.x] = merged_loss(t, stats, s, blockIdx.x, target);
    const Gradient g = {s, dloss, dloss / s.sum, target - t.v0};
    for_loaded<4>(int(threadIdx.x) * Pack::size, t.Vp, kStep,
                  [=](int c) { return load_logits(row, c, t.V); },
                  [&](const Pack& x, int c) { store_gradient(row, c, x, g); });
}

static void check_columns(int Vp) {
    check_packs("classifier: Vp", Vp);
}

static double row_bytes(const Classifier& t, int columns) { return double(t.N) * columns * sizeof(floatX); }

static void part_statistics(const Classifier& t) {
    launch(classifier_part_kernel, dim3(t.N), dim3(kThreads), 0, {.bytes = row_bytes(t, t.V) + 16. * t.N}, t);
}

void classifier_forward(const Classifier& t) {
    check_columns(t.Vp);
    if (t.parts > 1) return part_statistics(t);
    launch(classifier_forward_kernel, dim3(t.N), dim3(kThreads), 0,
           {.bytes = row_bytes(t, t.V) + 8. * t.N}, t.losses, t.logits, t.targets, t.V, t.Vp);
}

// A chunk moves 12 bytes for each element of wte and computes 6 x 4096 operations: a twelfth of its time at
// 700 TFLOP/s and 4 TB/s.
int logit_rows() { return 4096; }

template <int Threads, int Packs> static void forward_backward(const Classifier& t, real dloss) {
    constexpr int held = Threads * Packs * Pack::size;
    const size_t room = (shared_limit() - kStaticShared) / sizeof(Pack) * Pack::size;
    const size_t rest = t.Vp > held ? size_t(t.Vp - held) : 0, shared = rest < room ? rest : room;
    launch(classifier_forward_backward_kernel<Threads, Packs>, dim3(t.N), dim3(Threads),
           shared * sizeof(floatX), {.bytes = row_bytes(t, t.V + t.Vp) + 8. * t.N}, t.losses, t.logits,
           t.targets, dloss, t.V, t.Vp, held + int(shared));
}

void classifier_forward_backward(const Classifier& t, real dloss) {
    check_columns(t.Vp);
    if (t.parts > 1) return part_statistics(t);
    if (some_variant_of({Part::Classifier, {t.Vp}}, kClassifiers) == 0) forward_backward<512, 7>(t, dloss);
    else forward_backward<1024, 6>(t, dloss);
}

void classifier_merge(const Classifier& t, const real* stats) {
    if (t.parts == 1) return;
    launch(classifier_merge_kernel, dim3(div_up(t.N, kThreads)), dim3(kThreads), 0,
           {.bytes = (8. * t.parts + 12) * t.N}, t, stats);
}

void classifier_merge_backward(const Classifier& t, const real* stats, real dloss) {
    if (t.parts == 1) return;
    launch(classifier_merge_backward_kernel, dim3(t.N), dim3(kThreads), 0,
           {.bytes = row_bytes(t, t.V + t.Vp) + (8. * t.parts + 12) * t.N}, t, stats, dloss);
}

}  // namespace cuda
}  // namespace PRECISION
