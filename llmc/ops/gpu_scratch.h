// Scratch of ops on GPUs, by their sizes alone: for kernels, and for plans on any machine.
#pragma once
#include <algorithm>
#include <cstddef>

#include "llmc/ops/walk.h"

inline namespace any_backend {

inline constexpr size_t kScratchAlign = 256;
inline size_t scratch_size(size_t bytes) {
    return (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
}
// Needs of `bytes`; context.scratch itself may lie at any address.
inline Needs gpu_scratch(size_t bytes) {
    return {.scratch = kScratchAlign + scratch_size(bytes), .library = 0};
}

inline constexpr size_t kGemmWorkspace = 32 << 20;      // of cuBLASLt: as NVIDIA advises for Hopper

// Cuts N rows into groups, each with a partial sum: at most `most` groups, which are enough for any GPU and
// the same on every GPU.
struct RowGroups {
    int rows, count;        // rows of a group (the last may be shorter), number of groups
};
inline RowGroups row_groups_of(int N, int most) {
    if (N == 0) return {0, 0};
    const int count = std::clamp(N / 64, 1, most), rows = (N + count - 1) / count;
    return {rows, (N + rows - 1) / rows};
}
inline constexpr int kNormGroups = 512, kBiasGroups = 256;      // most groups: of a norm, of a bias
// Bytes of the partial sums.
inline size_t group_sums(int N, int most, size_t columns) {
    return size_t(row_groups_of(N, most).count) * columns * sizeof(float);
}
// Of a backward pass that sums rows of N tokens into gradients of `columns` parameters.
inline Needs norm_needs(const Target& on, int N, size_t columns) {
    return on.gpu() ? gpu_scratch(group_sums(N, kNormGroups, columns)) : Needs{};
}

}  // namespace any_backend
