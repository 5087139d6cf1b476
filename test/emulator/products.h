// Products of matrices, described; what the two libraries share.
#pragma once
#include <cublasLt.h>

#include <cstdint>

namespace emulator {

struct MatrixLayout {
    cudaDataType type;
    int64_t rows, columns, ld;
    int32_t batch = 1;
    int64_t offset = 0;         // elements from a matrix of a batch to the next
    size_t element() const { return type == CUDA_R_32F ? 4 : 2; }
    size_t bytes() const { return size_t((batch - 1) * offset + (columns - 1) * ld + rows) * element(); }
};
struct Matmul {
    int32_t a_transposed = 0, b_transposed = 0;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;
    void* aux = nullptr;
    int64_t aux_ld = 0;
    int32_t bias_type = -1;
};

struct Product {
    Matmul what;
    MatrixLayout a, b, d;
    const void *a_data, *b_data, *c_data;
    void* d_data;
    float alpha, beta;
    int parts;                  // of a sum over k
    int64_t m() const { return d.rows; }
    int64_t n() const { return d.columns; }
    int64_t k() const { return what.a_transposed ? a.rows : a.columns; }
};

// Whether results of a batch lie apart.
inline bool apart(const MatrixLayout& l) {
    return l.batch == 1 || l.offset >= (l.columns - 1) * l.ld + l.rows;
}

// Takes over the product and computes in the order of the stream.
cublasStatus_t start(Product* product, cudaStream_t stream);

}  // namespace emulator
