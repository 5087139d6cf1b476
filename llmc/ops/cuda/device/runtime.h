// Room ops/cuda/device: the CUDA runtime: devices, streams, checked calls, waits, the launch of kernels.
// Called by the other rooms of ops/cuda, and by comm/transport for NCCL. The room knows no operation.
//
// The CUDA runtime for host code: checked calls, this rank's device and stream, and launch(), the only launch
// of kernels.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <vector>

#include "llmc/base/check.h"

#define CUDA_CHECK(call)                                                                                  \
    do {                                                                                                  \
        const cudaError_t error_ = (call);                                                                \
        CHECK(error_ == cudaSuccess, "{}: {} ({})", #call, cudaGetErrorString(error_),                    \
              cudaGetErrorName(error_));                                                                  \
    } while (0)

inline namespace gpu {

// The device of this rank. Set up by the first call of cuda_device() on the rank's thread.
struct CudaDevice {
    int index = -1;
    int arch = 0;                    // 80, 86, 90, ...
    int processors = 0;              // streaming multiprocessors
    size_t shared_limit = 0;         // bytes of shared memory that one block can opt in to
    size_t pinned_at_once = 1 << 30; // bytes of a chunk of pinned host memory, a power of two: short enough
                                     // to send a heartbeat between chunks
    size_t l2_bytes = 0;
    cudaStream_t compute = nullptr;  // every op runs here
    cudaStream_t copies[2] = {};     // to the device, to the host: of each CopyLane
    cudaEvent_t reached = nullptr;   // by the ops, where a lane waits for them
    std::vector<cudaEvent_t> timed_marks;       // of set_mark()
    uint64_t launches = 0;           // so far; of limit_queue()
    cudaEvent_t queue_marks[4] = {};
};
CudaDevice& cuda_device();

inline size_t shared_limit() { return cuda_device().shared_limit; }

// Lower bound of a launch's work, for counters and gpu_check: bytes read and written once each, and
// tensor-core FLOPs (2 m n k per instruction).
struct Floor {
    double bytes = 0, mma_flops = 0;
    bool at_most = false;            // the data decides: these are the most
    bool scattered = false;          // the data decides where: not in whole sectors of 32 bytes
};

// Told of every launch on this thread, and of cuBLASLt's products, which have no kernel to name; null outside
// tests and benchmarks.
struct LaunchObserver {
    void* self;
    void (*before)(void* self, const void* kernel, const Floor& floor);
    void (*after)(void* self, const void* kernel);
};
inline thread_local const LaunchObserver* launch_observer = nullptr;

// Before a launch, where other ranks may keep the device waiting: bounds the compute stream to about 512
// launches. CUDA's queue holds 1,024 operations. In a launch into a full queue, the host could neither look
// for errors nor name its wait (waiting.h).
void limit_queue();
// Before the launch: limits the queue, and asks CUDA for dynamic shared memory, per kernel and device.
// Without asking, a kernel has 48 KB of static and dynamic shared memory together.
void launch_prepare(const void* kernel, size_t shared_bytes);
// After it: ends the program with the kernel's name and the launch's shape if it was refused.
void launch_check(cudaError_t error, const void* kernel, dim3 grid, dim3 block, size_t shared_bytes);

// kernel<<<grid, block, shared_bytes>>>(args...) on the compute stream. A grid of no blocks, which CUDA
// refuses, is no work and no launch. `floor` has the numbers of the kernel's FLOOR line.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, const Floor& floor,
            const A&... args) {
    static_assert(sizeof...(P) == sizeof...(A), "a launch with another number of arguments than the kernel");
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    std::tuple<std::remove_cv_t<P>...> values(static_cast<P>(args)...);
    const void* entry = reinterpret_cast<const void*>(kernel);
    launch_prepare(entry, shared_bytes);
    if (launch_observer) launch_observer->before(launch_observer->self, entry, floor);
    std::apply([&](auto&... value) {
        void* pointers[] = {&value..., nullptr};
        launch_check(cudaLaunchKernel(kernel, grid, block, pointers, shared_bytes, cuda_device().compute),
                     entry, grid, block, shared_bytes);
    }, values);
    if (launch_observer) launch_observer->after(launch_observer->self, entry);
}

}  // namespace gpu
