// For tests of the emulation: device memory with its content, and a launch without ops/cuda's launch(). The
// memory may be taken and freed while collectives of other threads wait.
#pragma once
#include <cuda_runtime.h>

#include <string>
#include <tuple>
#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "test/emulator/memory.h"
#include "test/emulator/settings.h"

namespace emulator {

// Small whole numbers: every sum is exact, whatever its order.
inline std::vector<bfloat16> whole_numbers(size_t count, unsigned seed) {
    std::vector<bfloat16> v(count);
    for (size_t i = 0; i < count; i++) {
        const size_t mixed = i * 2654435761u + seed * 40503u;
        v[i] = bfloat16(float(int(mixed >> 7 & 15) - 8));
    }
    return v;
}

template <class T> struct Device {
    T* p;
    size_t count;
    explicit Device(size_t count) : Device(std::vector<T>(count)) {}
    explicit Device(const std::vector<T>& v) : count(v.size()) {
        p = static_cast<T*>(allocate(count * sizeof(T)));
        cudaMemcpy(p, v.data(), count * sizeof(T), cudaMemcpyHostToDevice);
    }
    Device(const Device&) = delete;
    ~Device() {
        cudaDeviceSynchronize();
        emulator::release(p);
    }
    std::vector<T> host() const {
        std::vector<T> v(count);
        cudaMemcpy(v.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost);
        return v;
    }
};

template <class... P, class... A>
cudaError_t start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                  A... arguments) {
    std::tuple<P...> values(arguments...);
    return std::apply([&](auto&... v) {
        void* pointers[] = {&v..., nullptr};
        return cudaLaunchKernel(kernel, grid, block, pointers, shared, stream);
    }, values);
}

// The report of a launch, with opt-in to its shared memory; empty where there is nothing to tell.
template <class... P, class... A>
std::string error_of(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... arguments) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
    const cudaError_t error = emulator::start(kernel, grid, block, shared, nullptr, arguments...);
    const std::string text = error == cudaSuccess ? "" : cudaGetErrorString(error);
    cudaGetLastError();
    return text;
}

// Calls `check` with threads in each order, and with what is asynchronous at issue and late.
template <class F> void in_every_order(F check) {
    for (const Order order : {Order::Forward, Order::Reverse, Order::Random})
        for (const bool late : {false, true}) {
            settings.order = order;
            settings.late_copies = late;
            check();
        }
    settings.order = Order::Forward;
    settings.late_copies = true;
}

}  // namespace emulator
