#include "llmc/ops/cuda/device/waiting.h"

inline namespace gpu {

// With nothing to look for meanwhile, the driver waits. A lost rank may have ended the awaited kernels: the
// last look tells.
template <class Query, class Block> static void wait_for_device(Query query, Block block) {
    static constexpr const char* kName = "a wait for the device";
    const Waiting named(kName);
    cudaError_t state = cudaErrorNotReady;
    if (!in_wait) {
        state = block();
    } else {
        wait_until({.what = kName, .yields = 5000, .nap = 50e-6},
                   [&] { return (state = query()) != cudaErrorNotReady; });
        (*in_wait)();
    }
    CUDA_CHECK(state);
}

void host_waits_for(cudaStream_t stream) {
    wait_for_device([=] { return cudaStreamQuery(stream); }, [=] { return cudaStreamSynchronize(stream); });
}

void host_waits_for(cudaEvent_t event) {
    wait_for_device([=] { return cudaEventQuery(event); }, [=] { return cudaEventSynchronize(event); });
}

void limit_queue() {
    static constexpr int kBetween = 128;            // launches from mark to mark
    if (!in_wait) return;
    CudaDevice& device = cuda_device();
    if (++device.launches % kBetween) return;
    cudaEvent_t& mark = device.queue_marks[device.launches / kBetween % std::size(device.queue_marks)];
    if (mark) host_waits_for(mark);
    else CUDA_CHECK(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventRecord(mark, device.compute));
}

}  // namespace gpu
