// For tests of the emulation: device memory with its content, and a launch without ops/cuda's launch(). The
// memory may be taken and freed while collectives of other threads wait.
#pragma once
#include <cuda_runtime.h>

#include <tuple>
#include <vector>

#include "test/emulator/memory.h"

namespace emulator {

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

}  // namespace emulator
