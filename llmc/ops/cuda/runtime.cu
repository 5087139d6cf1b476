#include "llmc/ops/cuda/runtime.h"

#include <sched.h>
#include <unistd.h>

#include <map>

#include "llmc/ops/cuda/guard.h"
#include "llmc/ops/cuda/waiting.h"

// The one that the thread has chosen.
static CudaDevice open_device() {
    CudaDevice device;
    usable_devices();
    CUDA_CHECK(cudaGetDevice(&device.index));
    CUDA_CHECK(cudaSetDevice(device.index));
    check_kernels_run_on(device.index);
    int major = 0, minor = 0, limit = 0, l2 = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
    CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index));
    CUDA_CHECK(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
    CUDA_CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device.index));
    CUDA_CHECK(cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, device.index));
    device.arch = 10 * major + minor;
    device.shared_limit = size_t(limit), device.l2_bytes = size_t(l2);
    CUDA_CHECK(cudaStreamCreateWithFlags(&device.compute, cudaStreamNonBlocking));
    CUDA_CHECK(cudaStreamCreateWithFlags(&device.copies, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&device.reached, cudaEventDisableTiming));
    for (cudaEvent_t& mark : device.marks)          // nobody is in a hurry: the host sleeps
        CUDA_CHECK(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming | cudaEventBlockingSync));
    return device;
}

CudaDevice& cuda_device() {
    thread_local CudaDevice device = open_device();
    return device;
}

template <class Query> static void ask_until_done(Query query) {
    static constexpr int kLook = 16, kInHaste = 5000;       // polls
    for (int polls = 1;; polls++) {
        const cudaError_t state = query();
        if (state != cudaErrorNotReady || polls % kLook == 0) while_host_waits();
        if (state != cudaErrorNotReady) {
            CUDA_CHECK(state);
            return;
        }
        polls < kInHaste ? sched_yield() : usleep(50);
    }
}

void host_waits_for(cudaStream_t stream) {
    if (!while_host_waits) CUDA_CHECK(cudaStreamSynchronize(stream));
    else ask_until_done([=] { return cudaStreamQuery(stream); });
}

void host_waits_for(cudaEvent_t event) {
    if (!while_host_waits) CUDA_CHECK(cudaEventSynchronize(event));
    else ask_until_done([=] { return cudaEventQuery(event); });
}

void launch_prepare(const void* kernel, size_t shared_bytes) {
    if (shared_bytes == 0) return;
    thread_local std::map<const void*, size_t> allowed;     // the most so far: less would lower it
    if (allowed[kernel] >= shared_bytes) return;
    // a limit too high is refused here; launch_check tells what was asked for
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)) ==
        cudaSuccess)
        allowed[kernel] = shared_bytes;
}

void launch_check(cudaError_t error, const void* kernel, dim3 grid, dim3 block, size_t shared_bytes) {
    if (error == cudaSuccess) [[likely]] return;
    const char* name = nullptr;
    if (cudaFuncGetName(&name, kernel) != cudaSuccess) name = "?";
    CHECK(false, "kernel %s<<<(%u, %u, %u), (%u, %u, %u), %zu bytes of shared memory>>>: %s", name, grid.x,
          grid.y, grid.z, block.x, block.y, block.z, shared_bytes, cudaGetErrorString(error));
}
