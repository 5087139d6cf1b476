// Memory is cudaMalloc's; clearing and most copies run on the compute stream, in order with the ops. Those of
// start_copy() have a stream of their own, which waits for the compute stream and is waited for by events.
#include <algorithm>
#include <cstring>

#include "llmc/base/context.h"
#include "llmc/ops/cuda/attention.h"
#include "llmc/ops/cuda/matmul.h"
#include "llmc/ops/cuda/peak.h"
#include "llmc/ops/cuda/runtime.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/waiting.h"

namespace PRECISION {
namespace cuda {

void* device_allocate(size_t bytes) {
    cuda_device();
    void* p = nullptr;
    const cudaError_t error = cudaMalloc(&p, std::max(bytes, size_t(1)));
    size_t available = 0, total = 0;
    if (error == cudaErrorMemoryAllocation) CUDA_CHECK(cudaMemGetInfo(&available, &total));
    CHECK_INPUT(error != cudaErrorMemoryAllocation,
                "no memory for the tensors: %.2f GB needed, %.2f of the GPU's %.2f GB available. Make "
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
    host_waits_for(cuda_device().copies);
    host_waits_for(cuda_device().compute);
}

void* host_allocate(size_t bytes) {
    cuda_device();
    void* p = nullptr;
    const cudaError_t error = cudaHostAlloc(&p, std::max(bytes, size_t(1)), cudaHostAllocDefault);
    CHECK_INPUT(error == cudaSuccess, "no memory of the host for %.2f GB of offloaded tensors and snapshots: "
                "%s", bytes / 1e9, cudaGetErrorString(error));
    memset(p, 0, bytes);
    return p;
}
void host_free(void* p, size_t) { CUDA_CHECK(cudaFreeHost(p)); }

// `first` goes no further before `second` is where it is now.
static void wait_for(cudaStream_t first, cudaStream_t second) {
    CudaDevice& device = cuda_device();
    CUDA_CHECK(cudaEventRecord(device.reached, second));
    CUDA_CHECK(cudaStreamWaitEvent(first, device.reached, 0));
}

void start_copy(void* out, const void* in, size_t bytes) {
    CudaDevice& device = cuda_device();
    wait_for(device.copies, device.compute);
    CUDA_CHECK(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault, device.copies));
    device.copies_to_host |= !on_device(out);
}

void finish_copies() {
    CudaDevice& device = cuda_device();
    if (device.copies_to_host) host_waits_for(device.copies);
    else wait_for(device.compute, device.copies);
    device.copies_to_host = false;
}

static_assert(kMarks == std::extent_v<decltype(CudaDevice::marks)>);
void mark_copies(int mark) {
    CudaDevice& device = cuda_device();
    CUDA_CHECK(cudaEventRecord(device.marks[mark], device.copies));
    device.copies_to_host = false;
}
void await_copies(int mark) { host_waits_for(cuda_device().marks[mark]); }

size_t scratch_bytes(const ScratchSizes& s) {
    return kScratchAlign + std::max({encoder_scratch(s.N, s.C, s.Vp), layernorm_scratch(s.N, s.C),
                     bias_scratch(s.N, std::max(3 * s.C, s.F)), matmul_scratch(s),
                     attention_scratch(s.N, s.NH)});
}

size_t library_bytes(const ScratchSizes&) { return 0; }        // the workspace of products is lent

void lend_scratch(void* memory, size_t bytes) {
    context.scratch = static_cast<std::byte*>(memory);
    context.scratch_bytes = bytes;
}

void warm_up(const ScratchSizes&) { cuda_device(); }

void set_zero(void* p, size_t bytes) { CUDA_CHECK(cudaMemsetAsync(p, 0, bytes, cuda_device().compute)); }

void copy_to_device(void* to, const void* from, size_t bytes) {
    const auto kind = on_device(to) ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, cuda_device().compute));
    if (kind == cudaMemcpyHostToHost) host_waits_for(cuda_device().compute);
}
void copy_to_host(void* to, const void* from, size_t bytes) {
    const auto kind = on_device(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
    if (while_host_waits) host_waits_for(cuda_device().compute);        // to unpinned memory it waits itself
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, cuda_device().compute));
    host_waits_for(cuda_device().compute);
}
void copy(floatX* out, const floatX* in, size_t count) { copy_on_device(out, in, count * sizeof(floatX)); }
void copy_on_device(void* to, const void* from, size_t bytes) {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_device().compute));
}

}  // namespace cuda
}  // namespace PRECISION
