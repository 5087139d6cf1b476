// Needs of the products of matmul.cpp, for oneDNN with `threads` threads.
#pragma once
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

Needs forward_needs(int threads, int N, int C, int OC, bool bias);
Needs activation_forward_needs(int threads, Activation f, int N, int C, int F, bool bias);
Needs backward_input_needs(int threads, int N, int C, int OC);
Needs activation_backward_input_needs(int threads, int N, int F, int OC);
Needs backward_weight_needs(int threads, int N, int C, int OC);
Needs gram_needs(int threads, int rows, int cols);
Needs any_rows_needs(int threads);

}  // namespace cpu
}  // namespace PRECISION
