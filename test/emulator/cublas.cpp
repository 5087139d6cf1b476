// Plain cuBLAS: products without an epilogue.
#include <cublas_v2.h>

#include <utility>

#include "test/emulator/memory.h"
#include "test/emulator/products.h"
#include "test/emulator/streams.h"

namespace emulator {
struct Plain {
    cudaStream_t stream = nullptr;
    void* workspace = nullptr;
};
}  // namespace emulator

using namespace emulator;

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    if (beside_collectives("cublasCreate") != cudaSuccess) return CUBLAS_STATUS_INTERNAL_ERROR;
    *handle = new Plain;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    *handle = {stream, nullptr};                        // as documented: the workspace is the library's again
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
    if (uintptr_t(workspace) % 256 != 0 || !is_device_memory(workspace, bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                            const void* b, cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx(handle, a_op, b_op, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb,
                                      0, beta, c, c_type, ldc, 0, 1, compute, algorithm);
}

// FP32 or BF16 operands of any alignment; the result in FP32 or in their type.
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t a_op,
                                          cublasOperation_t b_op, int m, int n, int k, const void* alpha,
                                          const void* a, cudaDataType a_type, int lda, long long a_next,
                                          const void* b, cudaDataType b_type, int ldb, long long b_next,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long c_next, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
    if (compute != CUBLAS_COMPUTE_32F || a_type != b_type || (c_type != a_type && c_type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const auto layout = [batch](cudaDataType type, bool transposed, int64_t rows, int64_t columns, int ld,
                                int64_t next) {
        if (transposed) std::swap(rows, columns);
        return MatrixLayout{type, rows, columns, ld, batch, next};
    };
    const bool at = a_op == CUBLAS_OP_T, bt = b_op == CUBLAS_OP_T;
    const MatrixLayout la = layout(a_type, at, m, k, lda, a_next), lb = layout(b_type, bt, k, n, ldb, b_next),
                       lc = layout(c_type, false, m, n, ldc, c_next);
    const bool ok = m > 0 && n > 0 && k > 0 && batch > 0 && apart(lc) && lda >= la.rows && ldb >= lb.rows &&
                    ldc >= m && handle->workspace && is_device_memory(a, la.bytes()) &&
                    is_device_memory(b, lb.bytes()) && is_device_memory(c, lc.bytes());
    if (!ok) return CUBLAS_STATUS_INVALID_VALUE;
    Matmul what;
    what.a_transposed = at, what.b_transposed = bt;
    return start(new Product{what, la, lb, lc, a, b, c, c, *static_cast<const float*>(alpha),
                             *static_cast<const float*>(beta), 4}, handle->stream);
}
