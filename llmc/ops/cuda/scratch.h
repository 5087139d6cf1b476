// Scratch of ops between entry and return: spans of context.scratch, lent by the caller of the op.
#pragma once
#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

inline constexpr size_t kScratchAlign = 256;

inline size_t scratch_size(size_t bytes) {
    return (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
}

// Memory for `count` elements behind the first `used` bytes of scratch, which then count as used. The pointer
// is aligned to kScratchAlign even if context.scratch is not: cpu/needs.cpp adds kScratchAlign bytes.
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

// ---- what ops need, by their sizes alone: host code, for plans of any machine

// Cuts N rows into groups, each with a partial sum: at most `most` groups, which are enough for any GPU and
// the same on every GPU.
struct RowGroups {
    int rows, count;        // rows of a group (the last may be shorter), number of groups
};
inline RowGroups row_groups_of(int N, int most) {
    if (N == 0) return {0, 0};
    const int count = N / 64 < 1 ? 1 : N / 64 < most ? N / 64 : most, rows = (N + count - 1) / count;
    return {rows, (N + rows - 1) / rows};
}

// Partial sums of layernorm's vectors, and of a bias.
inline constexpr int kNormGroups = 512, kBiasGroups = 256;
inline size_t layernorm_scratch(int N, int C, int outputs) {
    const size_t groups = size_t(row_groups_of(N, kNormGroups).count);
    return scratch_size(groups * size_t(outputs) * size_t(C) * sizeof(float));
}
inline size_t bias_scratch(int N, int OC) {
    return scratch_size(size_t(row_groups_of(N, kBiasGroups).count) * size_t(OC) * sizeof(float));
}

// The encoder radix-sorts (token, place) pairs in two alternating buffers of N pairs. Each bucket of kBucket
// sorted tokens leaves one partial row.
inline constexpr int kTile = 1024, kDigits = 256, kBucket = 32;
inline size_t encoder_scratch(int N, int C) {
    const size_t tiles = size_t((N + kTile - 1) / kTile), buckets = size_t((N + kBucket - 1) / kBucket);
    return 4 * scratch_size(size_t(N) * sizeof(int32_t)) +
           scratch_size(size_t(kDigits) * tiles * sizeof(int32_t)) +
           scratch_size(buckets * size_t(C) * sizeof(float));
}

// Elements per block of spread(), and most blocks.
inline constexpr size_t kSpreadBlock = 16384, kSpreadBlocks = 512;
inline size_t spread_blocks(size_t count) {
    const size_t blocks = (count + kSpreadBlock - 1) / kSpreadBlock;
    return blocks < kSpreadBlocks ? blocks : kSpreadBlocks;
}
inline size_t spread_scratch(size_t count) { return scratch_size(spread_blocks(count) * sizeof(Spread)); }

// delta of attention's backward: a value for each query and head
inline size_t attention_scratch(int N, int NH) {
    return scratch_size(size_t(N) * size_t(NH) * sizeof(float));
}

}  // namespace cuda
}  // namespace PRECISION
