// Opens the device of a rank.
#include "llmc/ops/cuda/device/guard.h"
#include "llmc/ops/cuda/device/runtime.h"

inline namespace gpu {

// The device of this thread.
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
    for (cudaStream_t& lane : device.copies)
        CUDA_CHECK(cudaStreamCreateWithFlags(&lane, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&device.reached, cudaEventDisableTiming));
    return device;
}

CudaDevice& cuda_device() {
    thread_local CudaDevice device = open_device();
    return device;
}

}  // namespace gpu
