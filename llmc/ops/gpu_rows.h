// Sizes of rows and heads that kernels for GPUs take.
#pragma once
#include <cstddef>

inline namespace any_backend {

// Bytes of a row of norms. decl/layernorm.h has the limits of the backward kernel that reads rows once.
inline constexpr size_t kGpuNormBytes = 65536;

// Channels of a head for which attention in BF16 runs on tensor cores. Other heads have FP32's kernels.
constexpr bool has_tensor_core_attention(int D) {
    return D == 32 || D == 64 || D == 80 || D == 96 || D == 128 || D == 160;
}

}  // namespace any_backend
