// Activations of a run of features, for the products of matmul.cpp: in blocks of fixed length, so that every
// value passes the same instructions wherever the run begins. Not parallel.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

// act[j] = f(pre[j], pre[F + j]) for j < count; the second is read where f has a gate.
void activate(floatX* act, const floatX* pre, Activation f, size_t count, int F);

// dpre[j] (and dpre[F + j]): gradient of pre, given the gradient dact[j] of act[j]; rounded once.
void activate_backward(floatX* dpre, const real* dact, const floatX* pre, Activation f, size_t count, int F);

}  // namespace cpu
}  // namespace PRECISION
