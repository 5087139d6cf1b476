#include "llmc/ops/cuda/tensor_map.h"

#include <map>

#include "llmc/ops/cuda/device/runtime.h"

namespace PRECISION {
namespace cuda {

// CUDA 12.4 has the one function, CUDA 13 the other.
#if defined CUDART_VERSION && CUDART_VERSION < 12050
static cudaError_t find_in_driver(const char* name, void** p, cudaDriverEntryPointQueryResult* found) {
    return cudaGetDriverEntryPoint(name, p, cudaEnableDefault, found);
}
#else
static cudaError_t find_in_driver(const char* name, void** p, cudaDriverEntryPointQueryResult* found) {
    return cudaGetDriverEntryPointByVersion(name, p, 12000, cudaEnableDefault, found);
}
#endif

// The driver's own function: its library is not linked, as machines that build have no driver.
static decltype(&cuTensorMapEncodeTiled) encoder() {
    static const auto entry = [] {
        void* p = nullptr;
        cudaDriverEntryPointQueryResult found = {};
        CUDA_CHECK(find_in_driver("cuTensorMapEncodeTiled", &p, &found));
        CHECK(found == cudaDriverEntryPointSuccess, "this driver has no cuTensorMapEncodeTiled");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(p);
    }();
    return entry;
}

static CUtensorMap encoded(const HeadTensor& t, int rows) {
    CUtensorMap map;
    const cuuint64_t row = t.stride * sizeof(floatX);
    const cuuint64_t sizes[] = {cuuint64_t(t.D), cuuint64_t(t.heads), cuuint64_t(t.T), cuuint64_t(t.B)};
    const cuuint64_t strides[] = {t.D * sizeof(floatX), row, row * cuuint64_t(t.T)};   // bytes, but the first
    const cuuint32_t box[] = {kBoxColumns, 1, cuuint32_t(rows), 1}, each[] = {1, 1, 1, 1};
    const CUresult said = encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<floatX*>(t.first), sizes, strides, box, each,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    CHECK(said == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error {}, for {} sequences of {} rows, {} elements "
          "apart, of {} heads of {} channels", int(said), t.B, t.T, t.stride, t.heads, t.D);
    return map;
}

const CUtensorMap& tensor_map(const HeadTensor& t, int rows) {
    constexpr size_t kMost = 4096;              // far more than a model has tensors
    thread_local std::map<std::pair<HeadTensor, int>, CUtensorMap> kept;
    const auto key = std::pair(t, rows);
    if (const auto at = kept.find(key); at != kept.end()) return at->second;
    if (kept.size() == kMost) kept.clear();
    return kept.emplace(key, encoded(t, rows)).first->second;
}

}  // namespace cuda
}  // namespace PRECISION
