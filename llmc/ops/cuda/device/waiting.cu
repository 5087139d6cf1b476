#include "llmc/ops/cuda/device/waiting.h"

#include <sched.h>
#include <unistd.h>

#include "llmc/base/context.h"
#include "llmc/base/guard/progress_page.h"

// The supervisor sees the wait, unless the wait is part of a collective. Kernels of collectives may keep the
// device waiting: the wait counts as one for other ranks.
namespace {
struct Wait {
    RankProgress* const rank = context.progress && !context.progress->collective.text[0] ? context.progress
                                                                                        : nullptr;
    Wait() {
        if (rank) rank->collective = "a wait for the device";
    }
    ~Wait() {
        if (rank) rank->collective = "";
        beat();
    }
};
}  // namespace

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
    const Wait wait;
    if (!while_host_waits) CUDA_CHECK(cudaStreamSynchronize(stream));
    else ask_until_done([=] { return cudaStreamQuery(stream); });
}

void host_waits_for(cudaEvent_t event) {
    const Wait wait;
    if (!while_host_waits) CUDA_CHECK(cudaEventSynchronize(event));
    else ask_until_done([=] { return cudaEventQuery(event); });
}

void limit_queue() {
    static constexpr int kBetween = 128;            // launches from mark to mark
    if (!while_host_waits) return;
    CudaDevice& device = cuda_device();
    if (++device.launches % kBetween) return;
    cudaEvent_t& mark = device.queue_marks[device.launches / kBetween % std::size(device.queue_marks)];
    if (mark) host_waits_for(mark);
    else CUDA_CHECK(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventRecord(mark, device.compute));
}
