// Sums of pieces over ranks, for each type on the wire: ops of the precision whose floatX it is.
#pragma once
#include <cstddef>

#include "llmc/base/dtype.h"

namespace fp32 { void sum_of_pieces(float* out, const float* const* pieces, int parts, size_t count); }
namespace fp64 { void sum_of_pieces(double* out, const double* const* pieces, int parts, size_t count); }
namespace bf16 {
void sum_of_pieces(bfloat16* out, const bfloat16* const* pieces, int parts, size_t count);
// FP32 values that are rounded to bf16 before they are added, here or by who sent them
void sum_rounded_pieces(float* out, const float* const* pieces, int parts, size_t count);
void sum_widened_pieces(float* out, const bfloat16* const* pieces, int parts, size_t count);
void round_for_wire(bfloat16* out, const float* in, size_t count);
}  // namespace bf16
