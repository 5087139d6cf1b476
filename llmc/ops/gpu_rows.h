// Widest rows of kernels for GPUs.
#pragma once
#include <cstddef>

// Bytes of a row of norms. decl/layernorm.h has the limits of the backward kernel that reads rows once.
inline constexpr size_t kGpuNormBytes = 65536;
