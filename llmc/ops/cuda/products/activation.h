// Room ops/cuda/products: products of matrices on GPUs, with bias, activation and their gradients.
// Called through ops:: as decl/matmul.h; cuBLASLt computes the products (ops/cuda/gemm.h), or on Hopper the
// kernels of fused_products.h.
// The room knows sizes. It knows no layer.
//
// What matmul.cu asks of activation.cu.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// out += bias (OC), for (N, OC); with GELU: act = gelu(pre), of the rounded pre += bias
void add_bias(floatX* out, const floatX* bias, int N, int OC);
void add_bias_gelu(floatX* act, floatX* pre, const floatX* bias, int N, int OC);

}  // namespace cuda
}  // namespace PRECISION
