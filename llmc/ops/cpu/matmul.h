// What matmul.cpp tells memory.cpp.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

size_t matmul_scratch(const ScratchSizes& s);  // bytes of context.scratch
size_t matmul_library_bytes(const ScratchSizes& s);
void matmul_warm_up(const ScratchSizes& s);

}  // namespace cpu
}  // namespace PRECISION
