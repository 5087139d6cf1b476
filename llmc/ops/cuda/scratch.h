// What ops use between entry and return: pieces of context.scratch, which the caller of the op has lent.
#pragma once
#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

static constexpr size_t kScratchAlign = 256;

inline size_t scratch_size(size_t bytes) {
    return (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
}

// Memory for `count` elements behind the first `used` bytes of scratch, which then count as used. Aligned,
// wherever what was lent begins: scratch_bytes() has room for that.
template <class T> T* scratch(size_t count, size_t& used) {
    const size_t bytes = scratch_size(count * sizeof(T));
    const size_t before = -uintptr_t(context.scratch) % kScratchAlign;
    CHECK(before + used + bytes <= context.scratch_bytes, "scratch: %zu bytes needed, %zu lent",
          before + used + bytes, context.scratch_bytes);
    T* p = reinterpret_cast<T*>(context.scratch + before + used);
    used += bytes;
    return p;
}
template <class T> T* scratch(size_t count) {
    size_t used = 0;
    return scratch<T>(count, used);
}

// Bytes that the ops of one file need; scratch_bytes() is the largest.
size_t encoder_scratch(int N, int C, int V);
size_t layernorm_scratch(int N, int C);
size_t bias_scratch(int N, int OC);

}  // namespace cuda
}  // namespace PRECISION
