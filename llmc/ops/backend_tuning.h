// decl/tuning.h and decl/timing.h in the namespace of each backend.
#pragma once
#include <functional>
#include <vector>

#include "llmc/ops/ops.h"

namespace PRECISION {

namespace cpu {
#include "llmc/ops/decl/timing.h"
#include "llmc/ops/decl/tuning.h"
}  // namespace cpu

namespace cuda {
#include "llmc/ops/decl/timing.h"
#include "llmc/ops/decl/tuning.h"
}  // namespace cuda

}  // namespace PRECISION
