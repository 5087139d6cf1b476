// Which way each matmul goes, and how it is found out which is the fastest.
//
// An op has variants (fused with its neighbours by an epilogue of cuBLASLt, or not), each of them algorithms.
// Until something is chosen, the first variant that cuBLASLt has, which moves the fewest bytes, takes its
// first guess. Choices are text: made on one rank, kept in a file, read by all.
#pragma once
#include <string>
#include <vector>

#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

size_t matmul_scratch(const ScratchSizes& s);

struct MatmulTiming {
    std::string what;               // "gelu_input 4096 3072 768"
    const char* variant;            // "fused" or "unfused"; "" where it has no neighbours
    int algorithm;                  // which of gemm_algorithms()
    bool plain;                     // it is plain cuBLAS
    float microseconds;
    std::string choice;             // a line of matmul_choices()
};
// Times every way of every matmul of a model of these sizes, each `repeats` times after one to warm up, on
// random data in `memory`, and chooses the fastest. Not to be called while anything else runs, nor inside a
// graph.
size_t matmul_tuning_bytes(const ScratchSizes& s);
std::vector<MatmulTiming> matmul_tune(const ScratchSizes& s, void* memory, int repeats);

// Each of them once as it is chosen against unfused plain cuBLAS; ends the program where they differ.
size_t matmul_trial_bytes(const ScratchSizes& s);
void matmul_try(const ScratchSizes& s, void* memory);

std::string matmul_choices();
// Takes what was chosen on the same GPU with the same library; returns how many were taken, 0 where it was
// another.
int use_matmul_choices(const std::string& text);
bool matmul_tuned(const ScratchSizes& s);       // whether each of the model's has been chosen for

}  // namespace cuda
}  // namespace PRECISION
