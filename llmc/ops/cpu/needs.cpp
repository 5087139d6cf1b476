// Scratch of GPUs by the formulas of ops/cuda/scratch.h, of CPUs by what the ops of this folder say.
#include "llmc/ops/cpu/attention.h"
#include "llmc/ops/cpu/classifier.h"
#include "llmc/ops/cpu/products/matmul.h"
#include "llmc/ops/cpu/rotary.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/ops.h"

#include <algorithm>

namespace PRECISION {
namespace needs {

static bool on_gpu(const Target& t) { return t.backend == Target::Cuda; }
static Needs of_gpu(size_t scratch) { return {.scratch = cuda::kScratchAlign + scratch, .library = 0}; }

Needs product_forward(const Target& t, int N, int C, int OC, bool bias) {
    return on_gpu(t) ? of_gpu(kGemmWorkspace) : cpu::forward_needs(t.threads, N, C, OC, bias);
}
Needs product_activation_forward(const Target& t, Activation f, int N, int C, int F, bool bias) {
    return on_gpu(t) ? of_gpu(kGemmWorkspace) : cpu::activation_forward_needs(t.threads, f, N, C, F, bias);
}
Needs product_backward_input(const Target& t, int N, int C, int OC) {
    return on_gpu(t) ? of_gpu(kGemmWorkspace) : cpu::backward_input_needs(t.threads, N, C, OC);
}
Needs product_activation_backward_input(const Target& t, int N, int F, int OC) {
    return on_gpu(t) ? of_gpu(kGemmWorkspace) : cpu::activation_backward_input_needs(t.threads, N, F, OC);
}
// The gradient of the bias waits in scratch for its sum, by whatever variant.
Needs product_backward_weight(const Target& t, int N, int C, int OC, bool bias) {
    if (!on_gpu(t)) return cpu::backward_weight_needs(t.threads, N, C, OC);
    const size_t gradient = cuda::scratch_size(size_t(OC) * sizeof(float));
    return of_gpu(bias ? std::max(kGemmWorkspace + gradient, cuda::bias_scratch(N, OC))
                       : kGemmWorkspace);
}
Needs gram(const Target& t, int rows, int cols) {
    return on_gpu(t) ? of_gpu(kGemmWorkspace) : cpu::gram_needs(t.threads, rows, cols);
}
Needs bias_backward(const Target& t, int N, int OC) {
    return on_gpu(t) ? of_gpu(cuda::bias_scratch(N, OC)) : Needs{};
}
Needs attention_forward(const Target& t, int Tq, int Tk, int D, int group) {
    if (on_gpu(t)) return {};
    return {.scratch = cpu::attention_scratch(t.threads, Tq, Tk, D, group), .library = 0};
}
Needs attention_backward(const Target& t, int B, int Tq, int Tk, int NH, int D, int group) {
    if (on_gpu(t)) return of_gpu(cuda::attention_scratch(B * Tq, NH));
    return {.scratch = cpu::attention_scratch(t.threads, Tq, Tk, D, group), .library = 0};
}
Needs classifier_forward_backward(const Target& t, int V) {
    return on_gpu(t) ? Needs{} : Needs{.scratch = cpu::classifier_scratch(t.threads, V), .library = 0};
}
Needs encoder_backward(const Target& t, int N, int C) {
    return on_gpu(t) ? of_gpu(cuda::encoder_scratch(N, C)) : Needs{};
}
Needs rotary_backward(const Target& t, int N, int D) {
    return on_gpu(t) ? of_gpu(cuda::layernorm_scratch(N, D, 2))
                     : Needs{.scratch = cpu::rotary_scratch(D), .library = 0};
}
Needs layernorm_backward(const Target& t, int N, int C, int outputs) {
    return on_gpu(t) && outputs ? of_gpu(cuda::layernorm_scratch(N, C, outputs)) : Needs{};
}
Needs shortcut_backward(const Target& t, int N) {
    return on_gpu(t) ? of_gpu(cuda::layernorm_scratch(N, 1, 2)) : Needs{};
}
Needs values_backward(const Target& t, int N, int KV) {
    return on_gpu(t) ? of_gpu(cuda::layernorm_scratch(N, KV * kGateInputs, 1)) : Needs{};
}
Needs spread(const Target& t, size_t count) {
    return on_gpu(t) && count ? of_gpu(cuda::spread_scratch(count)) : Needs{};
}

Needs any_rows(const Target& t) { return on_gpu(t) ? Needs{} : cpu::any_rows_needs(t.threads); }

}  // namespace needs
}  // namespace PRECISION
