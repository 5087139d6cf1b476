// Scratch of rotary.cpp, for needs.cpp.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

size_t rotary_scratch(int D);           // bytes, where there are gains

}  // namespace cpu
}  // namespace PRECISION
