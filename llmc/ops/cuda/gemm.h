// Products of matrices by cuBLASLt, or plain cuBLAS. Matrices are column-major, as in BLAS.
//
//     D (m, n) = op(A) (m, k) op(B) (k, n) [+ D]
//
// A row-major matrix is a transposed column-major matrix: no copies. Of FP8 codes cuBLASLt multiplies
// A transposed by B not transposed, with all sizes multiples of 16, and not E5M2 by E5M2. Without gradients,
// so in E4M3 by E4M3, sums may be less exact and faster (FAST_ACCUM).
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/base/numbers/dtype.h"

inline namespace gpu {

enum class Epilogue {
    None,
    Bias,               // D = ... + bias (m)
    GeluBackward,       // D = ... * gelu'(aux)
    BiasGradient,       // bias (n) = sums over k of op(B); stored, in D's type
};

struct Gemm {
    int64_t m, n, k;
    bool a_transposed, b_transposed;
    DType in, out;              // of A and B; of D, bias and aux
    bool accumulate;            // + D
    Epilogue epilogue;
    int64_t batch = 1;          // number of products; the matrices of A, of B and of D follow one another
    DType in_b = in;            // of B, where the two differ: E5M2 beside E4M3

    bool fp8() const { return size_of(in) == 1; }
    auto operator<=>(const Gemm&) const = default;
};

struct GemmTensors {
    void* d;
    const void *a, *b;
    void *bias, *aux;           // as the epilogue wants; aux has D's shape
    const float *a_scale = nullptr, *b_scale = nullptr;     // FP8: values of A are its codes times *a_scale
};

// cuBLASLt's algorithm: opaque words, valid for a version of the library and a kind of GPU.
struct GemmAlgorithm {
    uint64_t words[8];
    auto operator<=>(const GemmAlgorithm&) const = default;
};

// Plain cuBLAS, which has heuristics of its own and no epilogue.
inline constexpr GemmAlgorithm kPlainCublas = {{~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull}};

// Best first as cuBLASLt guesses, then kPlainCublas where the product has no epilogue. Empty: cuBLASLt lacks
// this epilogue here.
const std::vector<GemmAlgorithm>& gemm_algorithms(const Gemm& g);

void open_gemm();           // makes the handles of both libraries, which take memory of the GPU

// workspace: of kGemmWorkspace bytes (ops/gpu_scratch.h)
void gemm(const Gemm& g, const GemmTensors& t, const GemmAlgorithm& algorithm, void* workspace);

// "cuBLASLt 130100, NVIDIA H200": the library and the GPU for which algorithms are valid
const char* gemm_platform();

}  // namespace gpu
