#include "llmc/ops/cuda/gemm.h"

#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/ops/gpu_scratch.h"

#define CUBLAS_CHECK(call)                                                                          \
    do {                                                                                            \
        const cublasStatus_t status_ = (call);                                                      \
        CHECK(status_ == CUBLAS_STATUS_SUCCESS, "{}: {}", #call, cublasLtGetStatusString(status_)); \
    } while (0)

inline namespace gpu {

static constexpr int kAlgorithms = 32;
static constexpr uint32_t kAlignment = 16;      // of every tensor, in bytes

struct Plan {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasStatus_t epilogue;                    // cuBLASLt's answer to its attributes
    std::vector<GemmAlgorithm> algorithms;
};

// Of a rank. Never given back: when the process ends, the driver may be gone first.
struct Library {
    cublasLtHandle_t handle = nullptr;
    cublasHandle_t plain = nullptr;             // made when it is first used
    std::map<Gemm, Plan> plans;
};
static Library& library() {
    thread_local Library* const l = [] {
        auto* made = new Library;
        cuda_device();
        CUBLAS_CHECK(cublasLtCreate(&made->handle));
        return made;
    }();
    return *l;
}

// Sums are never rounded to the result's type on the way.
static cublasHandle_t plain_cublas() {
    cublasHandle_t& plain = library().plain;
    if (plain) return plain;
    CUBLAS_CHECK(cublasCreate(&plain));
    CUBLAS_CHECK(cublasSetMathMode(plain, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    CUBLAS_CHECK(cublasSetStream(plain, cuda_device().compute));
    return plain;
}

void open_gemm() { plain_cublas(); }

static cudaDataType type_of(DType t) {
    CHECK(t != DType::F64, "gemm: no FP64 on the GPU");
    if (t == DType::E4M3) return CUDA_R_8F_E4M3;
    if (t == DType::E5M2) return CUDA_R_8F_E5M2;
    return t == DType::F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static cublasLtEpilogue_t epilogue_of(Epilogue e) {
    switch (e) {
        case Epilogue::None: return CUBLASLT_EPILOGUE_DEFAULT;
        case Epilogue::Bias: return CUBLASLT_EPILOGUE_BIAS;
        case Epilogue::GeluBackward: return CUBLASLT_EPILOGUE_DGELU;
        case Epilogue::BiasGradient: return CUBLASLT_EPILOGUE_BGRADB;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

template <class T>
static cublasStatus_t set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
    return cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value);
}

template <class T>
static cublasStatus_t set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    return cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value);
}

static cublasStatus_t set_epilogue(cublasLtMatmulDesc_t desc, const Gemm& g) {
    const cublasStatus_t status = set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(epilogue_of(g.epilogue)));
    if (status != CUBLAS_STATUS_SUCCESS || g.epilogue == Epilogue::None) return status;
    if (g.epilogue == Epilogue::GeluBackward) return set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.m);
    return set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(type_of(g.out)));
}

// FP32 accumulation; FP32 operands are not rounded to TF32.
static Plan described(const Gemm& g) {
    Plan p = {};
    CUBLAS_CHECK(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto op = [](bool transposed) { return int32_t(transposed ? CUBLAS_OP_T : CUBLAS_OP_N); };
    CUBLAS_CHECK(set(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, op(g.a_transposed)));
    CUBLAS_CHECK(set(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, op(g.b_transposed)));
    if (g.in == DType::E4M3 && g.in_b == DType::E4M3)
        CUBLAS_CHECK(set(p.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(1)));
    p.epilogue = set_epilogue(p.desc, g);
    const auto layout = [&g](cublasLtMatrixLayout_t* l, DType type, int64_t rows, int64_t columns,
                             bool transposed) {
        if (transposed) std::swap(rows, columns);
        CUBLAS_CHECK(cublasLtMatrixLayoutCreate(l, type_of(type), uint64_t(rows), uint64_t(columns), rows));
        if (g.batch == 1) return;
        CUBLAS_CHECK(set(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(g.batch)));
        CUBLAS_CHECK(set(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns));
    };
    layout(&p.a, g.in, g.m, g.k, g.a_transposed);
    layout(&p.b, g.in_b, g.k, g.n, g.b_transposed);
    layout(&p.d, g.out, g.m, g.n, false);
    return p;
}

static void set_pointers(const Plan& p, const Gemm& g, const GemmTensors& t) {
    if (g.epilogue == Epilogue::Bias || g.epilogue == Epilogue::BiasGradient)
        CUBLAS_CHECK(set(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, t.bias));
    if (g.epilogue == Epilogue::GeluBackward)
        CUBLAS_CHECK(set(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, t.aux));
    if (!g.fp8()) return;
    CUBLAS_CHECK(set(p.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, t.a_scale));
    CUBLAS_CHECK(set(p.desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, t.b_scale));
}

// The answer also depends on the alignment of bias and aux: the query names addresses of the least alignment.
// cuBLASLt answers NOT_SUPPORTED, INVALID_VALUE, ARCH_MISMATCH or INTERNAL_ERROR to an epilogue that the GPU
// or the version lacks. Any status but success means no algorithm: the op takes another variant.
static std::vector<GemmAlgorithm> heuristics(const Plan& p, const Gemm& g) {
    if (p.epilogue != CUBLAS_STATUS_SUCCESS) return {};
    void* const somewhere = reinterpret_cast<void*>(uintptr_t(kAlignment));
    const float* const scale = static_cast<const float*>(somewhere);
    set_pointers(p, g, {.d = nullptr, .a = nullptr, .b = nullptr, .bias = somewhere, .aux = somewhere,
                        .a_scale = scale, .b_scale = scale});
    cublasLtMatmulPreference_t preference;
    CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
        CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kGemmWorkspace);
    // partial sums are added in FP32, not in BF16, in D or elsewhere
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto matrix :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        prefer(matrix, kAlignment);
    cublasLtMatmulHeuristicResult_t results[kAlgorithms] = {};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library().handle, p.desc, p.a, p.b, p.d, p.d,
                                                                 preference, kAlgorithms, results, &found);
    if (status != CUBLAS_STATUS_SUCCESS) found = 0;
    CUBLAS_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    std::vector<GemmAlgorithm> algorithms;
    for (int i = 0; i < found; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > kGemmWorkspace) continue;
        static_assert(sizeof results[i].algo == sizeof(GemmAlgorithm));
        memcpy(&algorithms.emplace_back(), &results[i].algo, sizeof(GemmAlgorithm));
    }
    return algorithms;
}

static Plan& plan_of(const Gemm& g) {
    auto& plans = library().plans;
    const auto found = plans.find(g);
    if (found != plans.end()) return found->second;
    Plan p = described(g);
    p.algorithms = heuristics(p, g);
    if (g.epilogue == Epilogue::None && !g.fp8()) p.algorithms.push_back(kPlainCublas);
    return plans.emplace(g, std::move(p)).first->second;
}

const std::vector<GemmAlgorithm>& gemm_algorithms(const Gemm& g) { return plan_of(g).algorithms; }

static Floor floor_of(const Gemm& g) {
    const double in = double(g.m * g.k + g.k * g.n), out = double(g.m * g.n * (g.accumulate ? 2 : 1));
    return {.bytes = double(g.batch) * (in * double(size_of(g.in)) + out * double(size_of(g.out))),
            .mma_flops = 2.0 * double(g.batch) * double(g.m) * double(g.n) * double(g.k)};
}

static void gemm_by_lt(const Gemm& g, const GemmTensors& t, const GemmAlgorithm& algorithm, void* workspace) {
    const Plan& p = plan_of(g);
    set_pointers(p, g, t);
    cublasLtMatmulAlgo_t algo;
    memcpy(&algo, &algorithm, sizeof algo);
    const float one = 1, beta = g.accumulate ? 1 : 0;
    CUBLAS_CHECK(cublasLtMatmul(library().handle, p.desc, &one, t.a, p.a, t.b, p.b, &beta, t.d, p.d, t.d, p.d,
                                &algo, workspace, kGemmWorkspace, cuda_device().compute));
}

static void gemm_by_cublas(const Gemm& g, const GemmTensors& t, void* workspace) {
    CHECK(g.epilogue == Epilogue::None && std::max({g.m, g.n, g.k}) <= INT32_MAX,
          "gemm: plain cuBLAS has no epilogue and sizes of 32 bits");
    CUBLAS_CHECK(cublasSetWorkspace(plain_cublas(), workspace, kGemmWorkspace));
    const float one = 1, beta = g.accumulate ? 1 : 0;
    const auto op = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const int lda = int(g.a_transposed ? g.k : g.m), ldb = int(g.b_transposed ? g.n : g.k), ldd = int(g.m);
    if (g.batch == 1)
        CUBLAS_CHECK(cublasGemmEx(plain_cublas(), op(g.a_transposed), op(g.b_transposed), int(g.m), int(g.n),
                                  int(g.k), &one, t.a, type_of(g.in), lda, t.b, type_of(g.in), ldb, &beta,
                                  t.d, type_of(g.out), ldd, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    else
        CUBLAS_CHECK(cublasGemmStridedBatchedEx(
            plain_cublas(), op(g.a_transposed), op(g.b_transposed), int(g.m), int(g.n), int(g.k), &one, t.a,
            type_of(g.in), lda, g.m * g.k, t.b, type_of(g.in), ldb, g.k * g.n, &beta, t.d, type_of(g.out),
            ldd, g.m * g.n, int(g.batch), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

void gemm(const Gemm& g, const GemmTensors& t, const GemmAlgorithm& algorithm, void* workspace) {
    const uintptr_t bits =
        uintptr_t(t.d) | uintptr_t(t.a) | uintptr_t(t.b) | uintptr_t(t.bias) | uintptr_t(t.aux);
    CHECK(bits % kAlignment == 0, "gemm of ({}, {}, {}): a tensor is not aligned to {} bytes",
          g.m, g.n, g.k, kAlignment);
    limit_queue();
    if (launch_observer) launch_observer->before(launch_observer->self, nullptr, floor_of(g));
    if (algorithm == kPlainCublas) gemm_by_cublas(g, t, workspace);
    else gemm_by_lt(g, t, algorithm, workspace);
    if (launch_observer) launch_observer->after(launch_observer->self, nullptr);
}

const char* gemm_platform() {
    thread_local const std::string platform = [] {
        cudaDeviceProp properties;
        CUDA_CHECK(cudaGetDeviceProperties(&properties, cuda_device().index));
        return fmt::format("cuBLASLt {}, {}", cublasLtGetVersion(), properties.name);
    }();
    return platform.c_str();
}

}  // namespace gpu
