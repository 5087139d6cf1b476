// Marks are events of the compute stream. Ranges are NVTX's: without a tool attached a call is a test of a
// pointer, and has_profiler() says so beforehand.
#include <vector>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX
#endif

#include "llmc/ops/backend_tuning.h"
#include "llmc/ops/cuda/device/waiting.h"

namespace PRECISION {
namespace cuda {

void make_marks(int count) {
    std::vector<cudaEvent_t>& marks = cuda_device().timed_marks;
    while (int(marks.size()) < count) CUDA_CHECK(cudaEventCreate(&marks.emplace_back()));
}

void set_mark(int mark) {
    make_marks(mark + 1);
    CUDA_CHECK(cudaEventRecord(cuda_device().timed_marks[size_t(mark)], cuda_device().compute));
}

std::vector<double> read_marks(int count) {
    const std::vector<cudaEvent_t>& marks = cuda_device().timed_marks;
    std::vector<double> seconds(static_cast<size_t>(count));
    if (count) host_waits_for(marks[size_t(count) - 1]);
    for (size_t i = 0; i < seconds.size(); i++) {
        float ms = 0;
        CUDA_CHECK(cudaEventElapsedTime(&ms, marks[0], marks[i]));
        seconds[i] = 1e-3 * double(ms);
    }
    return seconds;
}

#ifdef HAVE_NVTX
// Without a tool NVTX makes no domain.
bool has_profiler() {
    static const nvtxDomainHandle_t domain = nvtxDomainCreateA("train_gpt");
    return domain != nullptr;
}
void push_range(const char* name) { nvtxRangePushA(name); }
void pop_range() { nvtxRangePop(); }
#else
bool has_profiler() { return false; }
void push_range(const char*) {}
void pop_range() {}
#endif

}  // namespace cuda
}  // namespace PRECISION
