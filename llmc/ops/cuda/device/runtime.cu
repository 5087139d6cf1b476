#include "llmc/ops/cuda/device/runtime.h"

#include <map>

inline namespace gpu {

void launch_prepare(const void* kernel, size_t shared_bytes) {
    limit_queue();
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
    CHECK(false, "kernel {}<<<({}, {}, {}), ({}, {}, {}), {} bytes of shared memory>>>: {}", name, grid.x,
          grid.y, grid.z, block.x, block.y, block.z, shared_bytes, cudaGetErrorString(error));
}

}  // namespace gpu
