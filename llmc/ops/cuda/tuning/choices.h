// Room ops/cuda/tuning: times the candidates of products and attention on this GPU, keeps the fastest.
// train/run/kernel_choices calls it before the first step; the kernels ask for their choice.
// The room knows the tasks of a walk. It knows no model.
//
// Choices: which candidate runs each task on this GPU.
//
// A task is a product, or a pass of attention, of given sizes. Its candidates compute the same result by
// different tiles, algorithms or fusions. tuning.cu times the candidates and chooses the fastest. A task
// without a choice runs the first candidate: of a product cuBLASLt's, fused where there is an epilogue, of
// attention the variant with the lowest Floor. Each rank (thread) has its own choices.
//
// Attention is timed over whole rows, with a key head for each query head. A task has no documents, as they
// have any length, no windows and no groups of heads.
#pragma once
#include <array>
#include <compare>
#include <optional>
#include <string>

#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

enum class Op {
    Forward, BiasForward, GeluForward, Relu2Forward, SwigluForward,                     // matmul.h
    Input, GeluInput, Relu2Input, SwigluInput, Weight, WeightBias,
    Fp8Forward, Fp8BiasForward, Fp8Input,                                               // quantized.h
    AttentionForward, AttentionQueries, AttentionKeys,                                  // attention.h
};

// Of a product, and of an activation that follows or whose backward does. Where there is no task for the two,
// as of a gate with biases, that of the product: the activation is an op of its own.
Op forward_op(std::optional<Activation> f, bool bias);
Op input_op(std::optional<Activation> f);

struct Task {
    Op op;
    // product: N, C, OC, and the number of products of a batch (0: no batch); OC is F where an activation
    // follows, C is F where its backward does; attention: B, T, NH, D
    std::array<int, 4> sizes = {};
    auto operator<=>(const Task&) const = default;
};
std::string text_of(const Task& task);  // "attention_keys 4 1024 12 64"

struct Candidate {
    // a product: "fused" or "unfused", by cuBLASLt, or a kernel of fused_products.h; attention: its tiles,
    // "128x64"
    std::string kernel;
    GemmAlgorithm algorithm = {};       // of a product by cuBLASLt
    bool operator==(const Candidate&) const = default;
};
// The rest of a task's line in the text of choices: "64x64", "fused 0000000000000001 ... (8 words)".
std::string text_of(const Task& task, const Candidate& candidate);

const Candidate* chosen_for(const Task& task);          // null: no choice
void choose(const Task& task, const Candidate& candidate);

}  // namespace cuda
}  // namespace PRECISION
