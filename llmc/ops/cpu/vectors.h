// Vectors of `real`, in which this precision computes.
#pragma once
#include "llmc/base/numbers/simd.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

using namespace simd;
inline constexpr int W = width<real>;

}  // namespace cpu
}  // namespace PRECISION
