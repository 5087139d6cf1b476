// Memory is cudaMalloc's; clearing and most copies run on the compute stream, in order with the ops. Copies
// of start_copy_to_device() and start_copy_to_host() run on a stream for each direction. Events order them.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "llmc/base/context.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/progress.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/device/peak.h"
#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/device/waiting.h"

namespace PRECISION {
namespace cuda {

void* device_allocate(size_t bytes) {
    cuda_device();
    void* p = nullptr;
    const cudaError_t error = cudaMalloc(&p, std::max(bytes, size_t(1)));
    size_t available = 0, total = 0;
    if (error == cudaErrorMemoryAllocation) CUDA_CHECK(cudaMemGetInfo(&available, &total));
    CHECK_INPUT(error != cudaErrorMemoryAllocation,
                "no memory for the tensors: {:.2f} GB needed, {:.2f} of the GPU's {:.2f} GB available. Make "
                "train.micro_batch or the model smaller, choose memory.recompute=block, or stop what else "
                "holds memory (--plan prints what needs how much)",
                bytes / 1e9, available / 1e9, total / 1e9);
    CUDA_CHECK(error);
    set_zero(p, bytes);
    return p;
}

void device_free(void* p, size_t) { CUDA_CHECK(cudaFree(p)); }

// Without a device nobody knows: a plan needs none.
size_t device_available() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return 0;
    cuda_device();
    size_t available = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&available, &total));
    return available;
}

size_t device_in_use() {
    cuda_device();
    size_t available = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&available, &total));
    return total - available;
}

std::string device_name() {
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, cuda_device().index));
    const std::string name = properties.name;
    return name.starts_with("emulated") ? name : "cuda: " + name;
}

std::string device_bus_id() {
    char id[32];
    CUDA_CHECK(cudaDeviceGetPCIBusId(id, sizeof id, cuda_device().index));
    return id;
}

double device_tflops() {
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, cuda_device().index));
    return dtype_of<floatX> == DType::BF16 ? peak_tflops(properties.name, properties.multiProcessorCount) : 0;
}

bool reached_by_host() { return false; }

bool on_device(const void* p) {
    cuda_device();
    cudaPointerAttributes attributes;
    CUDA_CHECK(cudaPointerGetAttributes(&attributes, p));
    return attributes.type == cudaMemoryTypeDevice;
}

void synchronize() {
    for (const cudaStream_t lane : cuda_device().copies) host_waits_for(lane);
    host_waits_for(cuda_device().compute);
}

// f(bytes done, bytes) for spans of [0, bytes) that cross no multiple of `unit` from either pointer: a CUDA
// copy may touch one pinned range at a time.
template <class F> static void in_spans(const void* a, const void* b, size_t bytes, size_t unit, F f) {
    const auto room = [=](const void* p, size_t at) { return unit - (uintptr_t(p) + at) % unit; };
    for (size_t at = 0, n; at < bytes; at += n) {
        n = std::min({bytes - at, room(a, at), room(b, at)});
        f(at, n);
    }
}

static void copy_async(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    in_spans(to, from, bytes, cuda_device().pinned_at_once, [=](size_t at, size_t n) {
        CUDA_CHECK(cudaMemcpyAsync(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at,
                                   n, kind, stream));
    });
}

static size_t whole_pages(size_t bytes) { return (std::max(bytes, size_t(1)) + 4095) / 4096 * 4096; }

static void check_host_memory(bool there, size_t bytes, const char* why) {
    CHECK_INPUT(there, "no memory of the host for {:.2f} GB of offloaded tensors, snapshots and images: {}",
                double(bytes) / 1e9, why);
}

// To touch and to pin 100 GB takes longer than a rank may be silent: spans, with a heartbeat after each.
void* host_allocate(size_t bytes) {
    const size_t unit = cuda_device().pinned_at_once, size = whole_pages(bytes);
    const size_t available = available_memory_bytes();
    check_host_memory(available == 0 || size <= available, bytes,
                      fmt::format("{:.2f} GB are available. Make the model or train.batch_tokens smaller, or "
                                  "memory.offload less", double(available) / 1e9).c_str());
    void* const mapped = mmap(nullptr, size + unit, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check_host_memory(mapped != MAP_FAILED, bytes, strerror(errno));
    std::byte* const first = static_cast<std::byte*>(mapped);
    const size_t head = (unit - uintptr_t(first) % unit) % unit;
    std::byte* const start = first + head;
    if (head) munmap(first, head);
    if (head < unit) munmap(start + size, unit - head);
    in_spans(start, start, size, unit, [=](size_t at, size_t n) {
        memset(start + at, 0, n);
        beat();
    });
    pin(start, bytes);
    return start;
}

void pin(void* p, size_t bytes) {
    std::byte* const start = static_cast<std::byte*>(p);
    in_spans(p, p, whole_pages(bytes), cuda_device().pinned_at_once, [=](size_t at, size_t n) {
        const cudaError_t error = cudaHostRegister(start + at, n, cudaHostRegisterDefault);
        check_host_memory(error == cudaSuccess, bytes, cudaGetErrorString(error));
        beat();
    });
}

void unpin(void* p, size_t bytes) {
    std::byte* const start = static_cast<std::byte*>(p);
    in_spans(p, p, whole_pages(bytes), cuda_device().pinned_at_once, [=](size_t at, size_t) {
        CUDA_CHECK(cudaHostUnregister(start + at));
        beat();
    });
}

void host_free(void* p, size_t bytes) {
    unpin(p, bytes);
    munmap(p, whole_pages(bytes));
}

static cudaStream_t stream_of(CopyLane lane) { return cuda_device().copies[size_t(lane)]; }

// Behind the ops called so far.
static void start_copy(CopyLane lane, void* to, const void* from, size_t bytes) {
    const CudaDevice& device = cuda_device();
    CUDA_CHECK(cudaEventRecord(device.reached, device.compute));
    CUDA_CHECK(cudaStreamWaitEvent(stream_of(lane), device.reached, 0));
    copy_async(to, from, bytes, cudaMemcpyDefault, stream_of(lane));
}
void start_copy_to_device(void* to, const void* from, size_t bytes) {
    if (walked(start_copy_cost, CopyLane::ToDevice, bytes)) return;
    start_copy(CopyLane::ToDevice, to, from, bytes);
}
void start_copy_to_host(void* to, const void* from, size_t bytes) {
    if (walked(start_copy_cost, CopyLane::ToHost, bytes)) return;
    start_copy(CopyLane::ToHost, to, from, bytes);
}

static void write_time(void* seconds) { *static_cast<double*>(seconds) = seconds_now(); }
static cudaEvent_t event_of(const CopyTicket& ticket) { return static_cast<cudaEvent_t>(ticket.event); }

CopyTicket::~CopyTicket() {
    if (event) cudaEventDestroy(event_of(*this));
}

void mark_copies(CopyTicket& ticket, CopyLane lane, double* arrived) {
    number_in_walk(ticket);
    if (walked(mark_copies_cost, ticket, lane)) return;
    if (!ticket.event) {                                // nobody is in a hurry: the host sleeps
        cudaEvent_t event;
        CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
        ticket.event = event;
    }
    if (arrived) CUDA_CHECK(cudaLaunchHostFunc(stream_of(lane), write_time, arrived));
    CUDA_CHECK(cudaEventRecord(event_of(ticket), stream_of(lane)));
}

void await_copies(const CopyTicket& ticket) {
    if (walked(await_copies_cost, "await_copies", ticket)) return;
    if (ticket.event) CUDA_CHECK(cudaStreamWaitEvent(cuda_device().compute, event_of(ticket), 0));
}
void host_awaits_copies(const CopyTicket& ticket) {
    if (walked(await_copies_cost, "host_awaits_copies", ticket)) return;
    if (ticket.event) host_waits_for(event_of(ticket));
}
void finish_copies() {
    if (walked(finish_copies_cost)) return;
    for (const cudaStream_t lane : cuda_device().copies) host_waits_for(lane);
}

void lend_scratch(void* memory, size_t bytes) {
    context.scratch = static_cast<std::byte*>(memory);
    context.scratch_bytes = bytes;
}

void warm_up(const Walk&) { cuda_device(); }
void open_device() { open_gemm(); }

void set_zero(void* p, size_t bytes) {
    if (walked(vector_cost, "set_zero", 0, bytes)) return;
    CUDA_CHECK(cudaMemsetAsync(p, 0, bytes, cuda_device().compute));
}

void copy_to_device(void* to, const void* from, size_t bytes) {
    if (walked(host_copy_cost, CopyLane::ToDevice, bytes)) return;
    const auto kind = on_device(to) ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
    copy_async(to, from, bytes, kind, cuda_device().compute);
    host_waits_for(cuda_device().compute);      // the device reads pinned memory, and may read any, later
}
void copy_to_host(void* to, const void* from, size_t bytes) {
    if (walked(host_copy_cost, CopyLane::ToHost, bytes)) return;
    const auto kind = on_device(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
    if (in_wait) host_waits_for(cuda_device().compute);        // to unpinned memory it waits itself
    copy_async(to, from, bytes, kind, cuda_device().compute);
    host_waits_for(cuda_device().compute);
}
void copy(floatX* out, const floatX* in, size_t count) {
    if (walked(copy_cost, "copy", count * sizeof(floatX))) return;
    const Unrecorded same;
    copy_on_device(out, in, count * sizeof(floatX));
}
void copy_on_device(void* to, const void* from, size_t bytes) {
    if (walked(copy_cost, "copy_on_device", bytes)) return;
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_device().compute));
}

}  // namespace cuda
}  // namespace PRECISION
