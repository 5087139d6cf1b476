#include "llmc/ops/cuda/device/waiting.h"

#include <sched.h>
#include <unistd.h>

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
