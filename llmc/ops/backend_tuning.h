// decl/tuning.h in the namespace of each backend.
#pragma once
#include <functional>

#include "llmc/ops/ops.h"

namespace PRECISION {

namespace cpu {
#include "llmc/ops/decl/tuning.h"
}  // namespace cpu

namespace cuda {
#include "llmc/ops/decl/tuning.h"
}  // namespace cuda

}  // namespace PRECISION
