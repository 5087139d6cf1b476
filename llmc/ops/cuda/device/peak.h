// The rate that a GPU's maker states for dense products of BF16 with FP32 accumulation.
#pragma once
#include <string_view>

inline namespace gpu {

// In 10^12 FLOP/s, for cudaDeviceProp's name and multiProcessorCount. 0: not in the table, as parts of a GPU
// (MIG) and GPUs of laptops, whose clocks their makers choose.
double peak_tflops(std::string_view name, int processors);

}  // namespace gpu
