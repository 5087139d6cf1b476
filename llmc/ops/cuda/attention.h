// The kernels that attention.cu chooses between.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "llmc/ops/cuda/runtime.h"
#include "llmc/ops/cuda/variants.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// In FP32 throughout, without tensor cores: heads of any multiple of 8 up to 128. For FP32, and what others
// are checked against.
void attention_plain_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                             const AttentionDims& d);
void attention_plain_backward(const AttentionBackward& t, const AttentionDims& d);

// Ends the program where rows do not begin at multiples of 16 bytes, or no kernel takes heads of this size.
void attention_check(const AttentionDims& d);
size_t attention_scratch(int N, int NH);        // of backward: delta

// By tensor cores: BF16, heads of 32, 64, 80, 96 or 128. Each part of attention has variants, precompiled,
// which differ in the sizes of their tiles.
struct AttentionForward {
    floatX* out;
    real* lse;
    const floatX *q, *k, *v;
};
struct AttentionGradients {
    AttentionBackward t;
    float* deltas;                              // (B, NH, Tq): set with dq, read for dk and dv
};
template <class Tensors> struct AttentionVariant {
    const char* name;                           // "64x32": rows of a block, rows that it reads at a time
    bool (*supports)(int D);                    // on this rank's device
    Floor (*floor)(const AttentionDims& d);
    void (*run)(const Tensors& t, const AttentionDims& d);
};
using AttentionForwardVariants = std::span<const AttentionVariant<AttentionForward>>;
using AttentionBackwardVariants = std::span<const AttentionVariant<AttentionGradients>>;
AttentionForwardVariants attention_forward_variants();      // out and lse
AttentionBackwardVariants attention_queries_variants();     // dq and deltas; to be run before
AttentionBackwardVariants attention_keys_variants();        // dk and dv

// Times each variant of each part for a layer of these sizes on random data in `memory`, and chooses the
// fastest (variants.h).
size_t attention_tuning_bytes(const ScratchSizes& s);
std::vector<VariantTiming> attention_tune(const ScratchSizes& s, void* memory, int repeats);
bool attention_tuned(const ScratchSizes& s);

// What is chosen against the plain kernels, on a sequence of at most 256 tokens. Ends the program where they
// differ.
size_t attention_trial_bytes(const ScratchSizes& s);
void attention_try(const ScratchSizes& s, void* memory);

}  // namespace cuda
}  // namespace PRECISION
