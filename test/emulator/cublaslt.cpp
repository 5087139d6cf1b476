// Products of matrices, column by column as cuBLASLt has them. Two "algorithms": sums over k in 8 or in 16
// parts; plain cuBLAS (cublas.cpp) has 4.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/base/numbers/fp8.h"
#include "test/emulator/memory.h"
#include "test/emulator/products.h"
#include "test/emulator/settings.h"
#include "test/emulator/streams.h"

namespace emulator {

struct Library {};
struct Preference {
    size_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};
    uint32_t reductions = 7;
};
static float load(cudaDataType type, const void* p, int64_t i) {
    if (type == CUDA_R_8F_E4M3) return fp8_value<Fp8::E4M3>(static_cast<const uint8_t*>(p)[i]);
    if (type == CUDA_R_8F_E5M2) return fp8_value<Fp8::E5M2>(static_cast<const uint8_t*>(p)[i]);
    return type == CUDA_R_32F ? static_cast<const float*>(p)[i] : float(static_cast<const bfloat16*>(p)[i]);
}
static void store(cudaDataType type, void* p, int64_t i, float v) {
    if (type == CUDA_R_32F) static_cast<float*>(p)[i] = v;
    else static_cast<bfloat16*>(p)[i] = bfloat16(v);
}

static float gelu(float x) { return x / (1 + std::exp(-1.5957691216057307f * (x + 0.044715f * x * x * x))); }
static float gelu_slope(float x) {
    const float t = std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.7978845608028654f * (1 + 3 * 0.044715f * x * x);
}

// Rows of k elements: op(A)'s rows, or op(B)'s columns. Of the matrix that begins at element `first`.
static std::vector<float> gathered(const MatrixLayout& l, const void* data, int64_t first, bool along_column,
                                   int64_t rows, int64_t k) {
    std::vector<float> out(size_t(rows * k));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < k; j++)
            out[size_t(i * k + j)] = load(l.type, data, first + (along_column ? j + i * l.ld : i + j * l.ld));
    return out;
}

static float dot(const float* a, const float* b, int64_t k, int parts) {
    float sums[16] = {};
    int64_t i = 0;
    for (; i + parts <= k; i += parts)
        for (int j = 0; j < parts; j++) sums[j] += a[i + j] * b[i + j];
    for (; i < k; i++) sums[0] += a[i] * b[i];
    float sum = 0;
    for (int j = 0; j < parts; j++) sum += sums[j];
    return sum;
}

static void compute_one(const Product& p, int64_t which) {
    const int64_t m = p.m(), n = p.n(), k = p.k(), first = which * p.d.offset;
    const std::vector<float> a = gathered(p.a, p.a_data, which * p.a.offset, p.what.a_transposed, m, k),
                             b = gathered(p.b, p.b_data, which * p.b.offset, !p.what.b_transposed, n, k);
    const uint32_t e = p.what.epilogue;
    const cudaDataType bias_type = p.what.bias_type < 0 ? p.d.type : cudaDataType(p.what.bias_type);
    const float scale = p.alpha * (p.a.fp8() ? *p.what.a_scale * *p.what.b_scale : 1);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = first + i + j * p.d.ld, aux = i + j * p.what.aux_ld;
            float v = scale * dot(&a[size_t(i * k)], &b[size_t(j * k)], k, p.parts);
            if (p.beta != 0) v += p.beta * load(p.d.type, p.c_data, at);
            if (e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
                v += load(bias_type, p.what.bias, i);
            if (e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
                store(p.d.type, p.what.aux, aux, v);
                v = gelu(v);
            }
            if (e == CUBLASLT_EPILOGUE_DGELU) v *= gelu_slope(load(p.d.type, p.what.aux, aux));
            store(p.d.type, p.d_data, at, v);
        }
    if (e != CUBLASLT_EPILOGUE_BGRADB) return;
    for (int64_t j = 0; j < n; j++) {           // stored, not added
        float sum = 0;
        for (int64_t i = 0; i < k; i++) sum += b[size_t(j * k + i)];
        store(bias_type, p.what.bias, j, sum);
    }
}

static void compute(const Product& p) {
    for (int64_t i = 0; i < p.d.batch; i++) compute_one(p, i);
}

// The supported cases of cublasLtMatmul() by its documentation, as far as used here.
static bool supported(const Matmul& w, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
                      const MatrixLayout& d) {
    const bool widens = d.type == a.type || (a.type == CUDA_R_16BF && d.type == CUDA_R_32F);
    const bool fp8 = a.fp8() || b.fp8();
    const bool types = c.type == d.type &&
                       (fp8 ? supported_fp8(w, a, b, d) : a.type == b.type && widens && !w.fast);
    const int64_t m = w.a_transposed ? a.columns : a.rows, k = w.a_transposed ? a.rows : a.columns;
    const bool shapes = m == d.rows && k == (w.b_transposed ? b.columns : b.rows) &&
                        d.columns == (w.b_transposed ? b.rows : b.columns) && c.rows == d.rows &&
                        m > 0 && k > 0 && d.columns > 0 &&
                        c.columns == d.columns && c.ld == d.ld && a.ld >= a.rows && b.ld >= b.rows &&
                        d.ld >= d.rows;
    const bool batches = a.batch == d.batch && b.batch == d.batch && c.batch == d.batch && d.batch > 0 &&
                         c.offset == d.offset && apart(d) &&
                         (d.batch == 1 || w.epilogue == CUBLASLT_EPILOGUE_DEFAULT);
    if (!batches) return false;
    const auto next_aligned = [](const MatrixLayout& l) {
        return l.offset * int64_t(l.element()) % 16 == 0;
    };
    const bool aligned = a.ld * int64_t(a.element()) % 16 == 0 && b.ld * int64_t(b.element()) % 16 == 0 &&
                         d.ld * int64_t(d.element()) % 16 == 0 && next_aligned(a) && next_aligned(b) &&
                         next_aligned(d);
    switch (w.epilogue) {
        case CUBLASLT_EPILOGUE_DEFAULT: return types && shapes && aligned;
        case CUBLASLT_EPILOGUE_BIAS: case CUBLASLT_EPILOGUE_BGRADB:
            return types && shapes && aligned && (w.bias_type < 0 || w.bias_type == d.type);
        case CUBLASLT_EPILOGUE_GELU_AUX:
        case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        case CUBLASLT_EPILOGUE_DGELU:
            return types && shapes && aligned && d.type == a.type && w.aux_ld % 8 == 0 &&
                   w.aux_ld >= d.rows && (w.bias_type < 0 || w.bias_type == d.type);
    }
    return false;
}

template <class T> static cublasStatus_t set(T* attribute, const void* value, size_t bytes) {
    if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(attribute, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

// Within one allocation of the device, and aligned.
static bool valid(const void* p, size_t bytes) {
    return uintptr_t(p) % 16 == 0 && is_device_memory(p, bytes);
}

cublasStatus_t start(Product* product, cudaStream_t stream) {
    const auto run = [](void* p) {
        compute(*static_cast<Product*>(p));
        delete static_cast<Product*>(p);
    };
    return cudaLaunchHostFunc(stream, run, product) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                   : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace emulator

using namespace emulator;

size_t cublasLtGetVersion() { return 0; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
        case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        default: return "CUBLAS_STATUS_EXECUTION_FAILED";
    }
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    if (beside_collectives("cublasLtCreate") != cudaSuccess) return CUBLAS_STATUS_INTERNAL_ERROR;
    *handle = new Library;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType scale) {
    *desc = new Matmul;
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
    const bool op = attribute == CUBLASLT_MATMUL_DESC_TRANSA || attribute == CUBLASLT_MATMUL_DESC_TRANSB;
    if (!op && desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && settings.refused_attribute)
        return cublasStatus_t(settings.refused_attribute);
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA: return set(&desc->a_transposed, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB: return set(&desc->b_transposed, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&desc->epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&desc->bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(&desc->aux, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(&desc->aux_ld, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(&desc->bias_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return set(&desc->a_scale, value, bytes);
        case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return set(&desc->b_scale, value, bytes);
        case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return set(&desc->fast, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
    *layout = new MatrixLayout{type, int64_t(rows), int64_t(columns), ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(&layout->batch, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(&layout->offset, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new Preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&preference->workspace, value, bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return set(&preference->reductions, value, bytes);
    return set(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
    *found = 0;
    if (wanted <= 0) return CUBLAS_STATUS_INVALID_VALUE;
    const bool plain = desc->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    if (const int status = plain ? settings.refused_product : settings.refused_epilogue)
        return cublasStatus_t(status);
    if (!supported(*desc, *a, *b, *c, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (const uint64_t parts : {8, 16}) {
        if (*found == wanted) break;
        // the algorithm relies on the queried alignment
        cublasLtMatmulAlgo_t algo = {{parts, preference->workspace}};
        for (int i = 0; i < 4; i++) algo.data[2 + i] = preference->alignment[i];
        algo.data[6] = uint64_t(desc->fast);
        results[(*found)++] = {algo, 0, CUBLAS_STATUS_SUCCESS, 1, {}};
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    if (!supported(*desc, *a_layout, *b_layout, *c_layout, *d_layout)) return CUBLAS_STATUS_NOT_SUPPORTED;
    const void* data[] = {a, b, c, d};
    bool ok = algorithm && c == d && valid(a, a_layout->bytes()) && valid(b, b_layout->bytes()) &&
              valid(d, d_layout->bytes()) && (workspace_bytes == 0 || valid(workspace, workspace_bytes)) &&
              uintptr_t(workspace) % 256 == 0;
    for (int i = 0; i < 4 && ok; i++) ok = uintptr_t(data[i]) % algorithm->data[2 + i] == 0;
    ok = ok && workspace_bytes >= algorithm->data[1];
    const uint32_t e = desc->epilogue;
    const size_t bias_length = size_t(e == CUBLASLT_EPILOGUE_BGRADB ? d_layout->columns : d_layout->rows);
    if (e & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADB))
        ok = ok && valid(desc->bias, bias_length * d_layout->element());
    if (e & 128)
        ok = ok && valid(desc->aux, size_t((d_layout->columns - 1) * desc->aux_ld + d_layout->rows) *
                                        d_layout->element());
    for (const float* scale : {desc->a_scale, desc->b_scale})
        ok = ok && (!a_layout->fp8() || is_device_memory(scale, sizeof(float)));
    if (!ok) return CUBLAS_STATUS_INVALID_VALUE;
    auto* product = new Product{*desc,
                                *a_layout,
                                *b_layout,
                                *d_layout,
                                a,
                                b,
                                c,
                                d,
                                *static_cast<const float*>(alpha) * (settings.wrong_products ? 1.1f : 1),
                                *static_cast<const float*>(beta),
                                int(algorithm->data[0])};
    return start(product, stream);
}
