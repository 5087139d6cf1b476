// Sums over ranks for each wire type, and copies between ranks that are threads of one process.
#pragma once
#include <cstddef>

#include "llmc/base/numbers/dtype.h"

// Copies of bytes have no precision: callers of any precision use these. copy_between(): memory of the host
// or a device; the copy is complete on return. settle(): waits for this rank's ops and copies on the device
// of `memory`.
namespace fp32::inline comm {
void copy_between(void* out, const void* in, size_t bytes);
void settle(const void* memory);
bool is_on_device(const void* memory);
void sum_of_terms(float* out, const float* const* terms, int number, size_t count);
}  // namespace fp32::comm

// Sums of terms, by the ops of each precision. On a device the sums run in order with other ops.
namespace fp64::inline comm {
void sum_of_terms(double* out, const double* const* terms, int number, size_t count);
}  // namespace fp64::comm
namespace bf16::inline comm {
void sum_of_terms(bfloat16* out, const bfloat16* const* terms, int number, size_t count);
// Sums of FP32 values rounded to bf16. sum_rounded_terms() rounds the terms; sum_widened_terms() receives
// terms that their senders have rounded by round_for_wire().
void sum_rounded_terms(float* out, const float* const* terms, int number, size_t count);
void sum_widened_terms(float* out, const bfloat16* const* terms, int number, size_t count);
void round_for_wire(bfloat16* out, const float* in, size_t count);
}  // namespace bf16::comm
