// Streams: an order that nothing asks for is not kept.
#include <cuda_runtime.h>

#include "test/emulator/settings.h"
#include "test/emulator/testing.h"
#include "test/test.h"

using emulator::Device;
using emulator::settings;
using emulator::start;

static __global__ void off_by_one(int* out) { out[threadIdx.x + 1] = 7; }
static __global__ void add_one(int* p) { *p += 1; }
static __global__ void double_it(int* p) { *p *= 2; }

// On two streams: (0 + 1) * 2. Without an event between them, the order is open.
static int two_streams(bool with_event, bool second_first) {
    Device<int> value(1);
    cudaStream_t a, b;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    start(add_one, 1, 1, 0, a, value.p);
    cudaEventRecord(event, a);
    if (with_event) cudaStreamWaitEvent(b, event);
    start(double_it, 1, 1, 0, b, value.p);
    cudaStreamSynchronize(second_first ? b : a);
    cudaStreamSynchronize(second_first ? a : b);
    const int result = value.host()[0];
    cudaEventDestroy(event);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    return result;
}
TEST(lazy_streams_show_a_missing_event_wait) {
    EXPECT(two_streams(false, true) == 2);
    settings.lazy_streams = true;
    EXPECT(two_streams(true, true) == 2 && two_streams(true, false) == 2);
    EXPECT(two_streams(false, true) == 1, "a missing wait should show");
    settings.lazy_streams = false;
}

TEST(lazy_copies_from_pinned_memory_read_late) {
    settings.lazy_streams = true;
    int *pinned, pageable = 5;
    cudaMallocHost(&pinned, sizeof(int));
    *pinned = 5;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    {
        Device<int> a(1), b(1);
        cudaMemcpyAsync(a.p, pinned, 4, cudaMemcpyHostToDevice, stream);
        cudaMemcpyAsync(b.p, &pageable, 4, cudaMemcpyHostToDevice, stream);
        *pinned = pageable = 6;                          // pageable memory was staged by the call
        cudaStreamSynchronize(stream);
        EXPECT(a.host()[0] == 6 && b.host()[0] == 5);
    }
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    settings.lazy_streams = false;
}

TEST(a_lazy_launch_reports_its_failure_where_it_is_waited_for) {
    settings.lazy_streams = true;
    Device<int> out(32);
    EXPECT(start(off_by_one, 1, 32, 0, nullptr, out.p) == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    settings.lazy_streams = false;
    cudaGetLastError();
}
