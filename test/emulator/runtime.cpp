// Devices and memory of the CUDA runtime.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include <nccl.h>

#include "llmc/base/check.h"
#include "llmc/base/host/machine.h"
#include "test/emulator/l2.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"
#include "test/emulator/streams.h"

using namespace emulator;

// ---------------------------------------------------------------------------------------------------------
// devices

static constexpr int kRuntime = 13000;

// The devices share a memory.
static thread_local int device_of_thread = 0;
int emulator::current_device() { return device_of_thread; }

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    if (settings.driver / 1000 < kRuntime / 1000) return result(cudaErrorInsufficientDriver);
    *count = settings.devices;
    return result(settings.devices > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* device) { *device = device_of_thread; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= settings.devices) return result(cudaErrorInvalidDevice);
    device_of_thread = device;
    return cudaSuccess;
}
// An address without a PCI device.
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
    snprintf(id, size_t(length), "ffff:%02x:00.0", device + 1);
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { *version = settings.driver; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { *version = kRuntime; return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *free = std::min(device_space().bytes - device_bytes_in_use(), available_memory_bytes());
    *total = *free + bytes_allocated() + page_table_bytes();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMultiProcessorCount: *value = settings.processors; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrL2CacheSize: *value = int(l2_bytes()); break;
        case cudaDevAttrComputeCapabilityMajor: *value = settings.arch / 10; break;
        case cudaDevAttrComputeCapabilityMinor: *value = settings.arch % 10; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(shared_limit_of(settings.arch)); break;
        default: return result(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    *p = {};
    const std::string name = settings.name.empty() ? fmt::format("emulated sm_{}",
                                                                 settings.arch) : settings.name;
    snprintf(p->name, sizeof p->name, "%s", name.c_str());
    p->totalGlobalMem = device_space().bytes;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = shared_limit_of(settings.arch);
    p->major = settings.arch / 10;
    p->minor = settings.arch % 10;
    p->multiProcessorCount = settings.processors;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxThreadsPerBlock = 1024;
    p->l2CacheSize = 1 << 20;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    const bool known = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value >= 0;
    return result(known && opt_in(kernel, size_t(value)) ? cudaSuccess : cudaErrorInvalidValue);
}

// Code of exactly this architecture (90a), or of the same generation and at most as new; else PTX at most as
// new, by a driver at least as new as the PTX's toolkit.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    *attributes = {80, settings.arch};
    if (settings.binary.empty()) return cudaSuccess;
    std::istringstream held(settings.binary);
    bool ptx = false;
    for (std::string part; held >> part;) {
        const bool is_ptx = part.starts_with("ptx");
        const int arch = atoi(part.c_str() + (is_ptx ? 3 : 0));
        const bool fits = part.ends_with('a') ? arch == settings.arch
                                              : arch / 10 == settings.arch / 10 && arch <= settings.arch;
        if (!is_ptx && fits) return cudaSuccess;
        ptx |= is_ptx && arch <= settings.arch;
    }
    if (!ptx) return result(cudaErrorNoKernelImageForDevice);
    return result(settings.driver >= kRuntime ? cudaSuccess : cudaErrorUnsupportedPtxVersion);
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
    thread_local std::string last;
    last = kernel_name(kernel);
    *name = last.c_str();
    return cudaSuccess;
}

// ---------------------------------------------------------------------------------------------------------
// memory

cudaError_t cudaMalloc(void** p, size_t bytes) {
    if (const cudaError_t error = beside_collectives("cudaMalloc"); error != cudaSuccess) return error;
    *p = allocate(bytes);
    return result(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* p) {
    if (const cudaError_t error = beside_collectives("cudaFree"); error != cudaSuccess) return error;
    const cudaError_t error = cudaDeviceSynchronize();
    return error != cudaSuccess ? error : result(release(p) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
    if (const cudaError_t error = beside_collectives("cudaHostAlloc"); error != cudaSuccess) return error;
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*p) return result(cudaErrorMemoryAllocation);
    pin(*p, bytes);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t bytes) { return cudaHostAlloc(p, bytes, 0); }
cudaError_t cudaFreeHost(void* p) {
    if (const cudaError_t error = beside_collectives("cudaFreeHost"); error != cudaSuccess) return error;
    unpin(p);
    free(p);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
    if (const cudaError_t error = beside_collectives("cudaHostRegister"); error != cudaSuccess) return error;
    pin(p, bytes);
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
    const cudaError_t error = beside_collectives("cudaHostUnregister");
    if (error != cudaSuccess) return error;
    unpin(p);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
    void* const address = const_cast<void*>(p);
    *attributes = {cudaMemoryTypeUnregistered, 0, nullptr, address};
    if (is_device_memory(p, 0)) *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
    else if (is_pinned(p)) attributes->type = cudaMemoryTypeHost;
    return cudaSuccess;
}

// Each end is device memory or not as `kind` says; a device end lies within one allocation.
static bool copy_is_valid(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0 || kind == cudaMemcpyDefault) return true;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return is_device_memory(to, bytes) == to_device && is_device_memory(from, bytes) == from_device;
}

std::atomic<uint64_t> emulator::copy_calls = 0;

static cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    if (!copy_is_valid(to, from, bytes, kind)) return result(cudaErrorInvalidValue);
    if (crosses_pinned_pieces(to, bytes) || crosses_pinned_pieces(from, bytes))
        return result(cudaErrorInvalidValue);
    const bool from_pageable = !is_pinned(from) && !is_device_memory(from, bytes);
    const bool to_pageable = !is_pinned(to) && !is_device_memory(to, bytes);
    if (from_pageable) {                               // the driver stages, and may wait
        host_waited("cudaMemcpyAsync from pageable memory");
        const auto* bytes_of = static_cast<const std::byte*>(from);
        return add(stream, [to, copy = std::vector(bytes_of, bytes_of + bytes)] {
            memcpy(to, copy.data(), copy.size());
            return true;
        });
    }
    const cudaError_t error = add(stream, [=] { memmove(to, from, bytes); return true; });
    return error == cudaSuccess && to_pageable ? cudaStreamSynchronize(stream) : error;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    emulator::copy_calls++;
    return copy(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (const cudaError_t error = advance_blocking(); error != cudaSuccess) return error;
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    emulator::copy_calls++;
    for (size_t row = 0; row < height; row++) {
        const cudaError_t error =
            copy(static_cast<std::byte*>(to) + row * to_pitch,
                 static_cast<const std::byte*>(from) + row * from_pitch, width, kind, stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
    if (bytes && !is_device_memory(p, bytes)) return result(cudaErrorInvalidValue);
    return add(stream, [=] { memset(p, value, bytes); return true; });
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
    if (const cudaError_t error = advance_blocking(); error != cudaSuccess) return error;
    return cudaMemsetAsync(p, value, bytes, nullptr);
}
