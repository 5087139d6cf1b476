// Copies between host and device, memory, and what the host does while it waits.
#include <chrono>
#include <thread>

#include "test/cuda.h"

#include "llmc/base/guard/wait.h"
#include "llmc/base/progress.h"
#include "llmc/ops/cuda/device/guard.h"
#include "llmc/ops/cuda/device/waiting.h"

namespace PRECISION {

// A ticket stands for the copies before its mark, for the host and for ops. The emulation's lazy streams run
// nothing that nobody waits for.
TEST(copies_up_to_a_mark_are_there_when_awaited) {
    const auto values = normals<real>(5000, 1);
    const OnDevice device(values);
    const size_t bytes = device.bytes();
    real* host = static_cast<real*>(cuda::host_allocate(3 * bytes));
    cuda::CopyTicket first, second, other, never;
    cuda::host_awaits_copies(never);                                        // nothing to wait for
    cuda::await_copies(never);
    cuda::start_copy_to_host(host, device, bytes);
    cuda::mark_copies(first, CopyLane::ToHost);
    cuda::start_copy_to_host(host + 5000, device, bytes);
    cuda::mark_copies(second, CopyLane::ToHost);
    cuda::await_copies(second);
    cuda::start_copy_to_device(device, host, bytes);                    // of the other lane, behind it
    cuda::mark_copies(other, CopyLane::ToDevice);
    cuda::await_copies(other);
    cuda::accumulate(device, device, 5000);
    cuda::host_awaits_copies(first);
    EXPECT(memcmp(host, values.data(), bytes) == 0);
    cuda::host_awaits_copies(second);
    EXPECT(memcmp(host + 5000, values.data(), bytes) == 0);
    EXPECT(device.host()[4999] == 2 * values[4999]);
    cuda::start_copy_to_host(host + 10000, device, bytes);
    cuda::mark_copies(first, CopyLane::ToHost);                             // a ticket serves again
    cuda::host_awaits_copies(first);
    EXPECT(host[14999] == 2 * values[4999]);
    cuda::host_free(host, 3 * bytes);
}

#ifdef CUDA_EMU
// Of lazy streams: what the other lane was given has not run. A copy waits for the ops before it.
TEST(lanes_wait_for_each_other_only_by_tickets) {
    const emulator::Settings before = emulator::settings;
    emulator::settings.lazy_streams = true;
    const auto values = normals<real>(64, 1);
    const OnDevice device(values), other(poisoned<real>(64));
    const size_t bytes = device.bytes();
    real* host = static_cast<real*>(cuda::host_allocate(2 * bytes));
    std::copy(values.begin(), values.end(), host + 64);
    cuda::synchronize();
    cuda::CopyTicket stored, loaded;
    cuda::start_copy_to_host(host, device, bytes);
    cuda::mark_copies(stored, CopyLane::ToHost);
    cuda::start_copy_to_device(other, host + 64, bytes);
    cuda::mark_copies(loaded, CopyLane::ToDevice);
    cuda::host_awaits_copies(loaded);
    EXPECT(host[0] == 0 && same_bits(other.host(), values));
    cuda::host_awaits_copies(stored);
    EXPECT(memcmp(host, values.data(), bytes) == 0);
    cuda::accumulate(device, device, 64);
    cuda::start_copy_to_host(host, device, bytes);
    cuda::mark_copies(stored, CopyLane::ToHost);
    cuda::host_awaits_copies(stored);
    for (size_t i = 0; i < 64; i++) EXPECT(host[i] == 2 * values[i], "[%zu] %g", i, double(host[i]));
    cuda::host_free(host, 2 * bytes);
    emulator::settings = before;
}
#endif

// The time of a step is the device's, however late the host reads the step's statistics.
TEST(a_mark_says_when_its_copies_arrived) {
    const auto values = normals<real>(5000, 1);
    const OnDevice device(values);
    real* host = static_cast<real*>(cuda::host_allocate(device.bytes()));
    double arrived = 0;
    cuda::CopyTicket ticket;
    const double before = seconds_now();
    cuda::start_copy_to_host(host, device, device.bytes());
    cuda::mark_copies(ticket, CopyLane::ToHost, &arrived);
    cuda::host_awaits_copies(ticket);
    EXPECT(arrived >= before && arrived <= seconds_now());

    cuda::start_copy_to_host(host, device, device.bytes());
    cuda::mark_copies(ticket, CopyLane::ToHost, &arrived);
    CUDA_CHECK(cudaDeviceSynchronize());
    const double complete = seconds_now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cuda::host_awaits_copies(ticket);
    EXPECT(arrived <= complete, "%g s after the copies were complete", arrived - complete);
    cuda::host_free(host, device.bytes());
}

TEST(copies_between_host_and_device) {
    const auto values = normals<real>(5000, 1);
    const OnDevice device(values), other(poisoned<real>(5000));
    const size_t bytes = device.bytes();
    real* host = static_cast<real*>(cuda::host_allocate(2 * bytes));
    EXPECT(cuda::on_device(device) && cuda::on_device(device + 4999) && !cuda::on_device(host) &&
           !cuda::on_device(values.data()));
    EXPECT(host[0] == 0 && host[9999] == 0);
    cuda::copy_to_device(host + 5000, values.data(), bytes);               // what is offloaded
    EXPECT(memcmp(host + 5000, values.data(), bytes) == 0);
    cuda::accumulate(device, device, 5000);                                // the copy waits for it
    cuda::start_copy_to_host(host, device, bytes);
    cuda::copy_on_device(other, device, bytes);
    cuda::finish_copies();
    for (size_t i = 0; i < 5000; i++) EXPECT(host[i] == 2 * values[i], "%zu", i);
    cuda::start_copy_to_device(device, host + 5000, bytes);
    cuda::finish_copies();
    cuda::accumulate(other, device, 5000);                                 // waits for the copy
    const auto got = other.host();
    for (size_t i = 0; i < 5000; i++) EXPECT(got[i] == 2 * values[i] + values[i], "%zu", i);
    std::vector<real> back(5000);
    cuda::copy_to_host(back.data(), host + 5000, bytes);
    EXPECT(same_bits(back, values));
    cuda::synchronize();
    cuda::host_free(host, 2 * bytes);
    EXPECT(cuda::device_available() > 0 && !cuda::device_name().empty() && !cuda::reached_by_host());
}

// Memory of the host is cleared and pinned a span at a time, each time with a heartbeat, and copied so.
TEST(a_rank_that_pins_memory_is_alive) {
    CudaDevice& device = cuda_device();
    const size_t before = std::exchange(device.pinned_at_once, size_t(64) << 10), count = 100000;
    RankProgress progress = {};
    context.progress = &progress;
    const size_t bytes = count * sizeof(real);
    real* const host = static_cast<real*>(cuda::host_allocate(bytes));
    EXPECT(progress.beats == 2 * 7 && host[0] == 0 && host[count - 1] == 0, "%d beats", int(progress.beats));
    const OnDevice values(normals<real>(count, 1)), back(poisoned<real>(count));
#ifdef CUDA_EMU
    EXPECT(cudaMemcpyAsync(host, values, bytes, cudaMemcpyDefault, device.compute) != cudaSuccess, "at once");
    cudaGetLastError();
#endif
    cuda::start_copy_to_host(host, values, bytes);
    cuda::finish_copies();
    EXPECT(memcmp(host, values.host().data(), bytes) == 0);
    cuda::copy_to_device(back.p + 1, host + 1, bytes - sizeof(real));
    EXPECT(memcmp(back.host().data() + 1, host + 1, bytes - sizeof(real)) == 0);
    cuda::copy_to_host(host, back, bytes);
    EXPECT(memcmp(host + 1, values.host().data() + 1, bytes - sizeof(real)) == 0);
    cuda::host_free(host, bytes);
    EXPECT(progress.beats >= 14, "%d beats", int(progress.beats));
    context.progress = nullptr;
    device.pinned_at_once = before;
}

TEST(memory_in_use_is_known) {
    constexpr size_t bytes = 32 << 20;          // of a GPU's pages, of 2 MB
    const size_t before = cuda::device_in_use();
    void* p = cuda::device_allocate(bytes);
    const size_t held = cuda::device_in_use();
    cuda::device_free(p, bytes);
    EXPECT(held == before + bytes && cuda::device_in_use() == before, "%zu, then %zu, then %zu", before, held,
           cuda::device_in_use());
}

TEST(what_is_known_of_a_device) {
    EXPECT(!cuda::device_bus_id().empty());
    cuda::warm_up(Walk(cuda::target()));
#ifdef CUDA_EMU
    const emulator::Settings before = emulator::settings;
    EXPECT(cuda::device_tflops() == 0, "a CPU emulates it");
    emulator::settings.name = "NVIDIA H100 80GB HBM3";
    EXPECT((cuda::device_tflops() > 900) == (sizeof(floatX) == 2), "%g", cuda::device_tflops());
    emulator::settings = before;
#endif
}

TEST(the_kernel_of_the_check_moves_nothing) { EXPECT_FLOORS([] { run_nothing(); }); }

// Also of pinned memory, which the device reads when it comes to the copy.
TEST(what_is_copied_to_the_device_may_change_at_once) {
#ifdef CUDA_EMU
    const emulator::Settings before = emulator::settings;
    emulator::settings.lazy_streams = true;
#endif
    const auto values = normals<real>(5000, 1);
    const OnDevice device(poisoned<real>(5000));
    real* host = static_cast<real*>(cuda::host_allocate(device.bytes()));
    std::copy(values.begin(), values.end(), host);
    cuda::copy_to_device(device, host, device.bytes());
    host[4999] = 7;
    EXPECT(same_bits(device.host(), values));
    cuda::host_free(host, device.bytes());
#ifdef CUDA_EMU
    emulator::settings = before;
#endif
}

TEST(the_host_looks_around_while_it_waits) {
    static int looks;
    static bool named;
    RankProgress progress = {};
    context.progress = &progress;
    const auto values = normals<real>(5000, 1);
    const OnDevice device(values);
    real* host = static_cast<real*>(cuda::host_allocate(device.bytes()));
    const std::function<void()> look = [] {
        looks++;
        named = !strcmp(context.progress->wait.text, "a wait for the device");
    };
    in_wait = &look;
    cuda::accumulate(device, device, 5000);
    cuda::synchronize();
    EXPECT(looks >= 2, "for copies and for ops: %d times", looks);
    const int before = looks;
    cuda::CopyTicket ticket;
    cuda::start_copy_to_host(host, device, device.bytes());
    cuda::mark_copies(ticket, CopyLane::ToHost);
    cuda::host_awaits_copies(ticket);
    EXPECT(looks > before && host[4999] == 2 * values[4999]);
    EXPECT(named && !progress.wait.text[0], "the supervisor does not see the wait");
    EXPECT(progress.beats >= 3, "%zu heartbeats", size_t(progress.beats));
    const int queued = looks;
    for (int i = 0; i < 1000; i++) cuda::accumulate(device, device, 8);
    EXPECT(looks > queued, "a queue without a limit");
    in_wait = nullptr;
    context.progress = nullptr;
    cuda::host_free(host, device.bytes());
}

}  // namespace PRECISION
