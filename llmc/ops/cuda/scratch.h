// Scratch of ops between entry and return: spans of context.scratch, lent by the caller of the op.
#pragma once
#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// Memory for `count` elements behind the first `used` bytes of scratch, which then count as used. The pointer
// is aligned to kScratchAlign even if context.scratch is not: gpu_scratch() adds kScratchAlign bytes.
template <class T> T* scratch(size_t count, size_t& used) {
    const size_t bytes = scratch_size(count * sizeof(T));
    const size_t before = -uintptr_t(context.scratch) % kScratchAlign;
    CHECK(before + used + bytes <= context.scratch_bytes, "scratch: {} bytes needed, {} lent",
          before + used + bytes, context.scratch_bytes);
    T* p = reinterpret_cast<T*>(context.scratch + before + used);
    used += bytes;
    if (context.walk) context.walk->scratch_used = std::max(context.walk->scratch_used, used);
    return p;
}
template <class T> T* scratch(size_t count) {
    size_t used = 0;
    return scratch<T>(count, used);
}

}  // namespace cuda
}  // namespace PRECISION
