// Memory-bound passes around the products. A thread takes a few elements, a block apart, one element a load:
// a matrix inside a fused matrix may begin at any element.
#include <cmath>

#include "llmc/base/check.h"
#include "llmc/ops/cuda/elementwise.h"
#include "llmc/ops/cuda/stochastic.h"

namespace PRECISION {
namespace cuda {

static constexpr int kMuonThreads = 256, kMuonEach = 4;

// Calls f(i) for each element of this thread.
template <class F> static __device__ __forceinline__ void for_muon_elements(uint32_t count, F f) {
    #pragma unroll
    for (int k = 0; k < kMuonEach; k++) {
        const uint32_t i = (blockIdx.x * kMuonEach + uint32_t(k)) * kMuonThreads + threadIdx.x;
        if (i < count) f(i);
    }
}

static unsigned muon_blocks(size_t count) {
    return unsigned(div_up(count, kMuonThreads * kMuonEach));
}

static uint32_t muon_count(size_t count) {
    CHECK(count < size_t(UINT32_MAX) - kMuonThreads * kMuonEach,
          "muon: a matrix of {} elements, at most 2^32", count);
    return uint32_t(count);
}

// FLOOR bytes = 16 count + 8
__global__ void __launch_bounds__(kMuonThreads)
    muon_momentum_kernel(float* u, float* m, const float* grad, const GradientState* state, float mu,
                         uint32_t count) {
    const float scale = load_cached(&state->scale);
    const bool finite = load_cached(&state->finite);
    for_muon_elements(count, [=](uint32_t i) {
        const float old = load_streaming(m + i);
        const float g = (1 - mu) * (load_streaming(grad + i) * scale), next = mu * old + g;
        store_streaming(m + i, finite ? next : old);
        u[i] = finite ? g + mu * next : 0.f;
    });
}

void muon_momentum(real* u, real* m, const real* grad, const GradientState* state, real mu, size_t count) {
    if (walked(muon_momentum_cost, count)) return;
    launch(muon_momentum_kernel, dim3(muon_blocks(count)), dim3(kMuonThreads), 0,
           {.bytes = 16. * double(count) + 8}, u, m, grad, state, mu, muon_count(count));
}

// FLOOR bytes = 12 rows cols + 8
__global__ void __launch_bounds__(kMuonThreads) muon_rounded_momentum_kernel(RoundedMomentum m) {
    const float scale = load_cached(&m.state->scale);
    const bool finite = load_cached(&m.state->finite);
    const uint32_t cols = uint32_t(m.cols);
    for_muon_elements(uint32_t(m.rows) * cols, [=](uint32_t i) {
        const uint64_t e = m.global + uint64_t(i / cols) * m.stride + i % cols;
        const bfloat16 old = load_streaming(m.m + i);
        const float g = (1 - m.mu) * (load_streaming(m.grad + i) * scale), next = m.mu * float(old) + g;
        const uint32_t word = random_word(m.seed, moments_stream(m.step), e);
        store_streaming(m.m + i, finite ? round_stochastically<bfloat16>(next, word) : old);
        m.u[i] = finite ? g + m.mu * next : 0.f;
    });
}

void muon_rounded_momentum(const RoundedMomentum& m) {
    if (walked(muon_rounded_momentum_cost, m)) return;
    const size_t count = size_t(m.rows) * size_t(m.cols);
    (void)muon_count(count);
    launch(muon_rounded_momentum_kernel, dim3(muon_blocks(count)), dim3(kMuonThreads), 0,
           {.bytes = 12. * double(count) + 8}, m);
}

// FLOOR bytes = 4 rows cols + sizeof(floatX) side(rows) side(cols) + 8;  side(n): muon_side(), here `stride`
__global__ void __launch_bounds__(kMuonThreads)
    muon_normalize_kernel(floatX* x, const float* u, const double* squares, uint32_t rows, uint32_t cols,
                          uint32_t width, uint32_t stride, uint32_t count) {
    const float factor = float(1 / (1.01 * sqrt(load_cached(squares)) + 1e-7));
    for_muon_elements(count, [=](uint32_t i) {
        uint32_t at = i;
        bool inside = i < rows * cols;
        if (width != stride) {
            const uint32_t row = i / stride, col = i % stride;
            inside = row < rows && col < cols;
            at = (col / width * rows + row) * width + col % width;
        }
        x[i] = floatX(inside ? load_streaming(u + at) * factor : 0.f);
    });
}

void muon_normalize(floatX* x, const real* u, const double* squares, int rows, int cols, int slices) {
    if (walked(muon_normalize_cost, rows, cols)) return;
    const size_t stride = size_t(muon_side(kThisDevice, cols)),
                 count = size_t(muon_side(kThisDevice, rows)) * stride;
    const double read = 4. * rows * cols, written = double(count) * sizeof(floatX);
    launch(muon_normalize_kernel, dim3(muon_blocks(count)), dim3(kMuonThreads), 0,
           {.bytes = read + written + 8}, x, u, squares, uint32_t(rows), uint32_t(cols),
           uint32_t(cols / slices), uint32_t(stride), muon_count(count));
}

void gram(floatX* out, real* sums, const floatX* x, int rows, int cols, int count) {
    if (rows <= cols) return matmul_forward_batch(out, x, x, rows, cols, rows, count);
    const size_t all = size_t(count) * size_t(cols) * size_t(cols);
    set_zero(sums, all * sizeof(real));
    matmul_backward_weight_batch(sums, x, x, rows, cols, cols, count);
    round_to(out, sums, all);
}

// FLOOR bytes = 3 count sizeof(floatX)
__global__ void __launch_bounds__(kElementwiseThreads)
    linear_combination_kernel(floatX* out, float a, const floatX* x, float b, const floatX* y, size_t count) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    if (i + Pack::size <= count) {
        const Pack p = Pack::load(x + i), q = Pack::load(y + i);
        Pack sum;
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) sum[k] = floatX(a * float(p[k]) + b * float(q[k]));
        sum.store(out + i);
        return;
    }
    for (size_t k = i; k < count; k++) out[k] = floatX(a * float(x[k]) + b * float(y[k]));
}

void linear_combination(floatX* out, real a, const floatX* x, real b, const floatX* y, size_t count) {
    if (walked(linear_combination_cost, count)) return;
    CHECK((uintptr_t(out) | uintptr_t(x) | uintptr_t(y)) % 16 == 0,
          "linear_combination: not aligned to 16 bytes");
    launch(linear_combination_kernel, dim3(unsigned(div_up(div_up(count, Pack::size), kElementwiseThreads))),
           dim3(kElementwiseThreads), 0, {.bytes = 3. * double(count) * sizeof(floatX)}, out, a, x, b, y,
           count);
}

// FLOOR bytes = (InPlace ? 3 sizeof(floatX) : 8 + (param ? 2 : 1) sizeof(floatX)) rows cols + 4
template <bool InPlace>
__global__ void __launch_bounds__(kMuonThreads) muon_update_kernel(MuonUpdate m) {
    if (!load_cached(&m.state->finite)) return;
    const uint32_t cols = uint32_t(m.cols);
    const float rate = m.lr * m.stretch, decay = m.lr * m.decay;
    for_muon_elements(uint32_t(m.rows) * cols, [=](uint32_t i) {
        const uint32_t row = i / cols, col = i % cols;
        float w;
        if constexpr (InPlace) w = float(load_streaming(m.param + i));
        else w = load_streaming(m.master + i);
        const float u = rate * float(load_streaming(m.x + size_t(row) * m.x_stride + col));
        const bool decays = !m.cautious || u * w >= 0;
        w -= u + (decays ? decay : 0.f) * w;
        if constexpr (!InPlace) store_streaming(m.master + i, w);
        if (!m.param) return;
        if (sizeof(floatX) == 2 && (InPlace || m.stochastic)) {
            const uint64_t e = m.global + uint64_t(row) * m.stride + col;
            m.param[i] = round_stochastically(w, random_word(m.seed, uint64_t(m.step), e));
        } else {
            m.param[i] = floatX(w);
        }
    });
}

static auto muon_kernel_of(const MuonUpdate& m) {
    if constexpr (sizeof(floatX) == 2) {                // FP32 weights are their own masters
        if (!m.master) return muon_update_kernel<true>;
    }
    return muon_update_kernel<false>;
}

void muon_update(const MuonUpdate& m) {
    if (walked(muon_update_cost, m)) return;
    const size_t count = size_t(m.rows) * size_t(m.cols);
    (void)muon_count(count);
    const double weights = m.master ? 8. + (m.param ? sizeof(floatX) : 0) : 2. * sizeof(floatX);
    const double each = sizeof(floatX) + weights;
    launch(muon_kernel_of(m), dim3(muon_blocks(count)), dim3(kMuonThreads), 0,
           {.bytes = each * double(count) + 4}, m);
}

}  // namespace cuda
}  // namespace PRECISION
