// What matmul.cu asks of gelu.cu.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// dpre = dact * gelu'(pre); dpre may be dact
void gelu_backward(floatX* dpre, const floatX* dact, const floatX* pre, size_t count);

// out += bias (OC), for (N, OC); with GELU: act = gelu(pre), of the rounded pre += bias
void add_bias(floatX* out, const floatX* bias, int N, int OC);
void add_bias_gelu(floatX* act, floatX* pre, const floatX* bias, int N, int OC);

}  // namespace cuda
}  // namespace PRECISION
