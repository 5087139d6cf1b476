// Vectors of `real`, the type in which this precision computes; W: elements of a vector.
#pragma once
#include "llmc/base/numbers/simd.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

using namespace simd;
inline constexpr int W = width<real>;

}  // namespace cpu
}  // namespace PRECISION
