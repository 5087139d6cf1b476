// Memory-bound: the update reads gradient, moments and masters once and writes them once, in one launch over
// all tensors. A thread takes a pack; each result depends on one element alone.
#include <cmath>

#include "llmc/base/check.h"
#include "llmc/ops/cuda/stochastic.h"
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

// ---------------------------------------------------------------------------------------------------------
// gradient norm

static constexpr int kNormThreads = 512;

static_assert(kNormBlock % (kNormThreads * PackF::size) == 0);

// FLOOR bytes = 4 count + 4 blocks
__global__ void __launch_bounds__(kNormThreads)
    sum_of_squares_kernel(float* sums, const float* grad, size_t count) {
    const size_t start = blockIdx.x * kNormBlock,
                 end = start + kNormBlock < count ? start + kNormBlock : count;
    float sum = 0;
    const size_t whole = start + (end - start) / PackF::size * PackF::size, step = kNormThreads * PackF::size;
    for_loaded<8>(start + threadIdx.x * PackF::size, whole, step,
                  [=](size_t i) { return PackF::load_streaming(grad + i); },
                  [&](const PackF& g, size_t) {
                      #pragma unroll
                      for (int k = 0; k < PackF::size; k++) sum += g[k] * g[k];
                  });
    if (threadIdx.x == 0)
        for (size_t i = whole; i < end; i++) sum += grad[i] * grad[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

static void check_aligned(const void* p, const char* what) {
    CHECK(uintptr_t(p) % 16 == 0, "adamw: {} is not aligned to 16 bytes", what);
}

void sum_of_squares(real* sums, const real* grad, size_t count) {
    if (walked(sum_of_squares_cost, count)) return;
    check_aligned(grad, "grad");
    const size_t blocks = div_up(count, kNormBlock);
    launch(sum_of_squares_kernel, dim3(unsigned(blocks)), dim3(kNormThreads), 0,
           {.bytes = 4. * double(count) + 4. * double(blocks)}, sums, grad, count);
}

// FLOOR bytes = 28
__global__ void __launch_bounds__(32)
    gradient_state_kernel(GradientState* state, const double* squares, const double* loss, float clip) {
    if (threadIdx.x != 0) return;
    const double norm = sqrt(*squares);
    state->norm = float(norm);
    state->scale = clip > 0 && norm > double(clip) ? float(double(clip) / norm) : 1.f;
    state->finite = isfinite(norm) && isfinite(*loss);
}

void gradient_state(GradientState* state, const double* squares, const double* loss, real clip) {
    if (walked(gradient_state_cost)) return;
    launch(gradient_state_kernel, dim3(1), dim3(32), 0, {.bytes = 28}, state, squares, loss, clip);
}

// ---------------------------------------------------------------------------------------------------------
// the update

static constexpr int kUpdateThreads = 256, kUpdatePacks = 4;
static constexpr int kBlockElements = kUpdateThreads * kUpdatePacks * Four::size;       // elements of a block

// A run of elements, in packs of the flat buffers; the first and the last pack may stick out.
struct Run {
    size_t start, end;
    uint64_t global;            // of element `start`
    size_t cols, stride;        // see AdamwTensor
    float step_size, decay;     // lr / (1 - beta1^t), lr decay
    uint32_t first_block;

    // The key of an element, given its distance from `start`.
    __device__ __forceinline__ uint64_t key(size_t i) const {
        return i < cols ? global + i : global + i / cols * stride + i % cols;
    }
    // Whether the keys of a pack follow each other.
    __device__ __forceinline__ bool joined(size_t i) const {
        return i + Four::size <= cols || i % cols + Four::size <= cols;
    }
};
// The runs are a kernel argument, up to 32,764 bytes since CUDA 12.1: no copy to the device, nothing to keep
// alive. One launch is enough for 47 layers.
static constexpr int kRuns = 580;
struct Runs {
    Run run[kRuns];
    int count;
};
struct Coefficients { float beta1, beta2, inverse_bias2, eps; };

// words[k] = the random word of element first + k: word e % 4 of Philox at (seed, stream, e / 4). Runs mostly
// start at multiples of 4; where not, a word may be of the next quadruple.
static __device__ __forceinline__ void draw(uint32_t (&words)[4], uint64_t seed, uint64_t stream,
                                            uint64_t first) {
    const int skip = int(first % 4);
    const Philox a = philox(seed, stream, first / 4);
    uint32_t x[8] = {a.x[0], a.x[1], a.x[2], a.x[3]};
    if (skip != 0) {
        const Philox b = philox(seed, stream, first / 4 + 1);
        x[4] = b.x[0], x[5] = b.x[1], x[6] = b.x[2], x[7] = b.x[3];
    }
    #pragma unroll
    for (int k = 0; k < 4; k++)
        words[k] = skip == 0 ? x[k] : skip == 1 ? x[k + 1] : skip == 2 ? x[k + 2] : x[k + 3];
}

static __device__ __forceinline__ void update(float& w, float& m, float& v, float grad, float scale,
                                              const Run& run, const Coefficients& c, bool cautious) {
    const float g = grad * scale;
    m = c.beta1 * m + (1 - c.beta1) * g;
    v = c.beta2 * v + (1 - c.beta2) * (g * g);
    const float u = run.step_size * m / (sqrtf(v * c.inverse_bias2) + c.eps);
    w -= u + (cautious && u * w < 0 ? 0.f : run.decay) * w;
}

template <class T> static __device__ __forceinline__ PackF widened(const PackOf<T, 4>& stored) {
    PackF values;
    #pragma unroll
    for (int k = 0; k < 4; k++) values[k] = stored.as_float(k);
    return values;
}

// Moments of type M, for the pack at `at`. Rounding: moments_stream() has the stream.
template <class M> static __device__ __forceinline__ PackF load_moments(const void* from, size_t at) {
    return widened(PackOf<M, 4>::load_streaming(static_cast<const M*>(from) + at));
}
template <class M>
static __device__ __forceinline__ void store_moments(void* to, size_t at, const PackF& values,
                                                     const uint32_t (&words)[4], int shift) {
    PackOf<M, 4> stored;
    #pragma unroll
    for (int k = 0; k < 4; k++) {
        if constexpr (sizeof(M) == sizeof(float)) stored[k] = values[k];
        else stored[k] = round_stochastically<M>(values[k], words[k] << shift);
    }
    stored.store_streaming(static_cast<M*>(to) + at);
}

// How weights are rounded. InPlace: stochastically, and there are no masters.
enum class Weights { Nearest, Stochastic, InPlace };

template <Weights W, class M>
static __device__ __forceinline__ void update_pack(const Adamw& a, const Run& run, size_t at, float scale,
                                                   const Coefficients& c) {
    const PackF g = PackF::load_streaming(a.grad + at);
    PackF m = load_moments<M>(a.m, at), v = load_moments<M>(a.v, at);
    PackF w;
    if constexpr (W == Weights::InPlace) w = widened(Four::load_streaming(a.param + at));
    else w = PackF::load_streaming(a.master + at);
    uint32_t random[4];
    if constexpr (W != Weights::Nearest) draw(random, a.seed, uint64_t(a.step), run.key(at - run.start));
    Four rounded;
    #pragma unroll
    for (int k = 0; k < Four::size; k++) {
        update(w[k], m[k], v[k], g[k], scale, run, c, a.cautious);
        if constexpr (W != Weights::Nearest) rounded[k] = round_stochastically(w[k], random[k]);
        else rounded[k] = floatX(w[k]);
    }
    uint32_t words[4] = {};
    if constexpr (sizeof(M) == 2) draw(words, a.seed, moments_stream(a.step), run.key(at - run.start));
    store_moments<M>(a.m, at, m, words, 0), store_moments<M>(a.v, at, v, words, 16);
    if constexpr (W != Weights::InPlace) w.store_streaming(a.master + at);
    if (a.param) rounded.store(a.param + at);
}

// The elements of a pack inside the run, for packs across a border or with keys out of sequence.
template <Weights W, class M>
static __device__ __forceinline__ void update_elements(const Adamw& a, const Run& run, size_t at, float scale,
                                       const Coefficients& c) {
    M *const stored_m = static_cast<M*>(a.m), *const stored_v = static_cast<M*>(a.v);
    const size_t end = at + Four::size < run.end ? at + Four::size : run.end;
    for (size_t i = at < run.start ? run.start : at; i < end; i++) {
        float w;
        if constexpr (W == Weights::InPlace) w = float(a.param[i]);
        float& weight = W == Weights::InPlace ? w : a.master[i];
        if constexpr (sizeof(M) == 2) {
            const uint32_t word = random_word(a.seed, moments_stream(a.step), run.key(i - run.start));
            float m = float(stored_m[i]), v = float(stored_v[i]);
            update(weight, m, v, a.grad[i], scale, run, c, a.cautious);
            stored_m[i] = round_stochastically<M>(m, word);
            stored_v[i] = round_stochastically<M>(v, word << 16);
        } else {
            update(weight, stored_m[i], stored_v[i], a.grad[i], scale, run, c, a.cautious);
        }
        if (!a.param) continue;
        if constexpr (W == Weights::Nearest) {
            a.param[i] = floatX(weight);
        } else {
            const uint32_t word = random_word(a.seed, uint64_t(a.step), run.key(i - run.start));
            a.param[i] = round_stochastically(weight, word);
        }
    }
}

// FLOOR bytes = (4 + 4 sizeof(M) + (InPlace ? 2 sizeof(floatX) : 8 + (param ? sizeof(floatX) : 0))) elements
template <Weights W, class M>
__global__ void __launch_bounds__(kUpdateThreads)
    adamw_update_kernel(Adamw a, Coefficients c, const __grid_constant__ Runs runs) {
    if (!a.state->finite) return;
    int low = 0, high = runs.count;             // the last run whose first block is not behind this one
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (runs.run[middle].first_block <= blockIdx.x ? low : high) = middle;
    }
    const Run& run = runs.run[low];
    const float scale = a.state->scale;
    size_t at = run.start / Four::size * Four::size + size_t(blockIdx.x - run.first_block) * kBlockElements +
                threadIdx.x * Four::size;
    const size_t beyond = at + kBlockElements, end = beyond < run.end ? beyond : run.end;
    #pragma unroll 1
    for (; at < end; at += kUpdateThreads * Four::size) {
        bool whole = at >= run.start && at + Four::size <= run.end;
        // keys count where anything is rounded by chance
        if ((W != Weights::Nearest || sizeof(M) == 2) && whole) whole = run.joined(at - run.start);
        if (whole) update_pack<W, M>(a, run, at, scale, c);
        else update_elements<W, M>(a, run, at, scale, c);
    }
}

static Coefficients coefficients(const Adamw& a) {
    const double bias2 = 1 - std::pow(double(a.beta2), double(a.step));
    return {.beta1 = a.beta1, .beta2 = a.beta2, .inverse_bias2 = real(1 / bias2), .eps = a.eps};
}

template <class M> static auto update_kernel(const Adamw& a) {
    if constexpr (sizeof(floatX) == 2) {                // FP32 has no bits to round
        if (!a.master) return adamw_update_kernel<Weights::InPlace, M>;
        if (a.stochastic) return adamw_update_kernel<Weights::Stochastic, M>;
    }
    return adamw_update_kernel<Weights::Nearest, M>;
}
static auto update_kernel(const Adamw& a) {
    return a.moments == DType::BF16 ? update_kernel<bfloat16>(a) : update_kernel<float>(a);
}

void adamw_update(const Adamw& a, const AdamwTensor* tensors, size_t count) {
    if (walked(adamw_update_cost, a, tensors, count)) return;
    check_aligned(a.master, "master");
    check_aligned(a.m, "m");
    check_aligned(a.v, "v");
    check_aligned(a.grad, "grad"), check_aligned(a.param, "param");
    const double weights = a.master ? 8. + (a.param ? sizeof(floatX) : 0) : 2. * sizeof(floatX);
    const double each = 4 + 4. * double(size_of(a.moments)) + weights;
    const double bias1 = 1 - std::pow(double(a.beta1), double(a.step));
    for (size_t i = 0; i < count;) {
        Runs runs = {};
        uint32_t blocks = 0;
        double elements = 0;
        for (; i < count && runs.count < kRuns; i++) {
            const AdamwTensor& t = tensors[i];
            if (t.count == 0) continue;
            runs.run[runs.count++] = {t.start, t.start + t.count, t.global, t.cols, t.stride,
                                      real(t.lr / bias1), t.lr * t.decay, blocks};
            blocks += uint32_t(div_up(t.start % Four::size + t.count, kBlockElements));
            elements += double(t.count);
        }
        launch(update_kernel(a), dim3(blocks), dim3(kUpdateThreads), 0, {.bytes = each * elements}, a,
               coefficients(a), runs);
    }
}

}  // namespace cuda
}  // namespace PRECISION
