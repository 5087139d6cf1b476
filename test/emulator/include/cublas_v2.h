// The part of cuBLAS that this project uses; see cublasLt.h.
#pragma once
#include <cublasLt.h>

enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };

namespace emulator { struct Plain; }
typedef emulator::Plain* cublasHandle_t;

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes);
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                            const void* b, cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm);
// a_next, b_next, c_next: elements from a matrix of the batch to the next
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t a_op,
                                          cublasOperation_t b_op, int m, int n, int k, const void* alpha,
                                          const void* a, cudaDataType a_type, int lda, long long a_next,
                                          const void* b, cudaDataType b_type, int ldb, long long b_next,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long c_next, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t algorithm);
