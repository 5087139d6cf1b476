// Which head of which sequence a block of attention's kernels computes.
#pragma once
#include "llmc/ops/cuda/kernel.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// Where a block works: a head of a sequence, and offsets of its first row.
struct Head {
    int b, h;
    __device__ __forceinline__ explicit Head(const AttentionDims& d)
        : b(blockIdx.x / d.NH), h(blockIdx.x % d.NH) {}
    __device__ __forceinline__ size_t queries(const AttentionDims& d) const {
        return size_t(b) * d.Tq * d.q_stride + size_t(h) * d.D;
    }
    __device__ __forceinline__ size_t keys(const AttentionDims& d) const {
        return size_t(b) * d.Tk * d.kv_stride + size_t(h) * d.D;
    }
    __device__ __forceinline__ size_t outputs(const AttentionDims& d) const {
        return (size_t(b) * d.Tq * d.NH + h) * d.D;
    }
    __device__ __forceinline__ size_t statistics(const AttentionDims& d) const {
        return (size_t(b) * d.NH + h) * d.Tq;
    }
};

}  // namespace cuda
}  // namespace PRECISION
