// Room ops/cpu: the operations on CPUs. They are the specification: tests compare GPUs with them.
// Called through ops:: by comm, model and train/. The room knows no rank and no model.
//
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
