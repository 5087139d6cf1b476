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
    bool fp8() const { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
    size_t element() const {
        if (fp8()) return 1;
        return type == CUDA_R_32F ? 4 : 2;
    }
    size_t bytes() const { return size_t((batch - 1) * offset + (columns - 1) * ld + rows) * element(); }
};
struct Matmul {
    int32_t a_transposed = 0, b_transposed = 0;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;
    void* aux = nullptr;
    int64_t aux_ld = 0;
    int32_t bias_type = -1;
    const float *a_scale = nullptr, *b_scale = nullptr;     // of FP8
    int8_t fast = 0;
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

// Of FP8 operands Hopper takes one layout, and sizes and addresses that divide by 16.
inline bool supported_fp8(const Matmul& w, const MatrixLayout& a, const MatrixLayout& b,
                          const MatrixLayout& d) {
    const bool formats = b.fp8() && (a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3) && !d.fp8();
    const bool sizes = a.rows % 16 == 0 && a.columns % 16 == 0 && b.columns % 16 == 0 && d.batch == 1;
    const uint32_t bias = d.type == CUDA_R_16BF ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    return formats && w.a_transposed && !w.b_transposed && sizes && w.a_scale && w.b_scale &&
           (w.epilogue == CUBLASLT_EPILOGUE_DEFAULT || w.epilogue == bias);
}

// Whether results of a batch lie apart.
inline bool apart(const MatrixLayout& l) {
    return l.batch == 1 || l.offset >= (l.columns - 1) * l.ld + l.rows;
}

// Takes over the product and computes in the order of the stream.
cublasStatus_t start(Product* product, cudaStream_t stream);

}  // namespace emulator
