// Room ops/cuda/attention: attention on GPUs, by FP32 kernels and by tensor cores.
// Called through ops:: as decl/attention.h; ops/cuda/tuning times the variants.
// The room knows offsets of queries and keys. It knows no axis of the mesh.
//
// The kernels that attention.cu chooses between.
#pragma once
#include <span>

#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// Computes in FP32, without tensor cores; heads of any multiple of 8 up to 256. For precision fp32, and for
// head sizes without a variant below. Tuning compares the variants with these kernels.
void attention_plain_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                             const AttentionDims& d);
void attention_plain_backward(const AttentionBackward& t, const AttentionDims& d);

// Ends the program where rows do not begin at multiples of 16 bytes, or no kernel takes heads of this size.
void attention_check(const AttentionDims& d);

// By tensor cores: BF16, heads of 32, 64, 80, 96, 128 or 160. Each pass has precompiled variants, with tiles
// of different sizes: the candidates of tuning (choices.h).
struct AttentionForward {
    floatX* out;
    real* lse;
    const floatX *q, *k, *v;
};
struct AttentionGradients {
    AttentionBackward t;
    float* deltas;                              // (B, NH, Tq): set with dq, read for dk and dv
    float* sums = nullptr;                      // attention_sums(): partial sums for t.dbias, or null with it
};
template <class Tensors> struct AttentionVariant {
    const char* name;                           // "64x32": rows of a block, rows of a tile that it reads
    bool (*supports)(int D);                    // whether this rank's device can run heads of size D
    Floor (*floor)(const AttentionDims& d);     // runtime.h
    void (*run)(const Tensors& t, const AttentionDims& d);
    bool wgmma = false;                         // Hopper's instructions: before others, whatever the floors
};
using AttentionForwardVariants = std::span<const AttentionVariant<AttentionForward>>;
using AttentionBackwardVariants = std::span<const AttentionVariant<AttentionGradients>>;
AttentionForwardVariants attention_mma_forward_variants();      // out and lse
AttentionBackwardVariants attention_mma_queries_variants();     // dq and deltas
AttentionBackwardVariants attention_mma_keys_variants();        // dk and dv; after dq, as they read deltas
// The same by wgmma, on Hopper alone.
AttentionForwardVariants attention_wgmma_forward_variants();
AttentionBackwardVariants attention_wgmma_queries_variants();
AttentionBackwardVariants attention_wgmma_keys_variants();
// Of both kinds, those by wgmma first.
AttentionForwardVariants attention_forward_variants();
AttentionBackwardVariants attention_queries_variants();
AttentionBackwardVariants attention_keys_variants();

}  // namespace cuda
}  // namespace PRECISION
