// Scratch of classifier_forward_backward(), in bytes: exponentials of a row, which each thread keeps from the
// first pass over the row to the second.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

size_t classifier_scratch(int threads, int V);

}  // namespace cpu
}  // namespace PRECISION
