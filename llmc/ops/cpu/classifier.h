// Scratch of classifier_forward_backward(), in bytes: what a pass over a row keeps for the next.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

size_t classifier_scratch(int threads, int V);

}  // namespace cpu
}  // namespace PRECISION
