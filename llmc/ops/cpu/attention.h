// What attention.cpp tells memory.cpp.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

size_t attention_scratch(int T, int D);             // bytes of context.scratch, for context.threads threads

}  // namespace cpu
}  // namespace PRECISION
