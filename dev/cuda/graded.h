// Kernels from naive to fast, step by step: README.md has the tour.
//
// Every version equals the op of its name in llmc/ops, in BF16 with FP32 sums, for sizes that its tiles
// divide; llmc/ops/cuda has the code for other sizes.
#pragma once
#define PRECISION bf16
#include <span>

#include "llmc/base/numbers/dtype.h"

namespace graded {

// y (N, C) = (x - mean) rstd w + b;  C a multiple of 256
struct Rows {
    bfloat16* y;
    const bfloat16 *x, *w, *b;
    int N, C;
};
// out (N, OC) = x (N, C) w (OC, C)^T + bias (OC);  N and OC multiples of 128, C of 32
struct Matrices {
    bfloat16* out;
    const bfloat16 *x, *w, *bias;
    int N, C, OC;
};
template <class Tensors> struct Version {
    const char* idea;
    void (*run)(const Tensors& t);
};
std::span<const Version<Rows>> layernorm_versions();
std::span<const Version<Matrices>> matmul_versions();

}  // namespace graded
