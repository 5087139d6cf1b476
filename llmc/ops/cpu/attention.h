// Attention internals of the CPU backend: BF16 product kernels for attention.cpp, warm-up for memory.cpp.
#pragma once
#include <cmath>

#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

// The factor of the scores: AttentionDims::scale, or 1 / sqrt(D).
inline real attention_scale(const AttentionDims& d) {
    return d.scale > 0 ? real(d.scale) : 1 / std::sqrt(real(d.D));
}

// Attention by BF16 products of oneDNN. attention_by_products(): whether the products are faster on this CPU
// for these sizes. attention_products_scratch(): bytes per thread.
bool attention_by_products(int Tq, int Tk, int D);
size_t attention_products_scratch(int T, int D, int group);     // 0: never used on this CPU
// Builds the calling thread's products for such rows.
void attention_products_warm_up(const AttentionShape& s);
void attention_products_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                                const AttentionDims& d);
void attention_products_backward(const AttentionBackward& t, const AttentionDims& d);

}  // namespace cpu
}  // namespace PRECISION
