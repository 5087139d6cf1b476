// Room ops: what both backends share: the list of operations, the walk that records them, memory plans.
// Called by comm, model, train/step, train/run and the planner (train/price).
// The room knows shapes of tensors. It knows no rank, no model and no list of layers.
//
// Every operation, in the namespace of each backend; `ops::` is the backend of this binary's model.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "llmc/base/config/choice.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/base/numbers/fp8.h"
#include "llmc/ops/gpu_scratch.h"
#include "llmc/ops/tensor_spread.h"
#include "llmc/ops/walk.h"

namespace PRECISION {

#include "llmc/ops/decl/needs.h"

namespace cpu {
#include "llmc/ops/decl/all.h"
}  // namespace cpu

namespace cuda {
#include "llmc/ops/decl/all.h"
}  // namespace cuda

namespace ops = BACKEND;

}  // namespace PRECISION
