// What attention.cpp tells memory.cpp, and what attention_products.cpp tells it.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

size_t attention_scratch(int threads, int T, int D);    // bytes of context.scratch; T keys

// Another way, for BF16: whether it is the faster one, bytes of scratch for each thread, and itself.
bool attention_by_products(const AttentionDims& d);
size_t attention_products_scratch(int T, int D);    // 0: it is never taken on this CPU
void attention_products_warm_up(int T, int D);      // builds the calling thread's products of T tokens
void attention_products_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                                const AttentionDims& d);
void attention_products_backward(const AttentionBackward& t, const AttentionDims& d);

}  // namespace cpu
}  // namespace PRECISION
