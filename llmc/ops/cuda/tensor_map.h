// The maps by which TMA copies boxes of heads: rows of queries, keys or values of one head of a sequence.
#pragma once
#include <cuda.h>

#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// Of a tensor of B sequences of T rows, `stride` elements apart, with heads of D channels side by side.
struct HeadTensor {
    const floatX* first;
    int D, heads, T, B;
    size_t stride;
    auto operator<=>(const HeadTensor&) const = default;
};

inline constexpr int kBoxColumns = 64;          // 128 bytes: the swizzle's width

// Coordinates {channel, head, row, sequence}; a box has kBoxColumns channels of `rows` rows of one head. Its
// rows lie 128 bytes apart in shared memory, swizzled (ptx_hopper.h); rows behind T become zeros.
// Kept for each thread: tensors come again at each step.
const CUtensorMap& tensor_map(const HeadTensor& t, int rows);

}  // namespace cuda
}  // namespace PRECISION
