// The runtime loads the program's code for the device's architecture, or for an older architecture of the
// same generation (sm_80 on 8.6); else the driver compiles the PTX. The runtime names its choice for a kernel
// without a launch.
#include "llmc/ops/cuda/device/guard.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "llmc/ops/cuda/device/runtime.h"

#ifndef CUDA_ARCHS
#define CUDA_ARCHS "sm_80, PTX"
#endif

inline namespace gpu {

// FLOOR none
static __global__ void nothing_kernel() {}
void run_nothing() { launch(nothing_kernel, dim3(1), dim3(32), 0, {}); }

// 13000 as 13.0
static std::string text_of(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

struct Versions { int driver = 0, runtime = 0; };       // the latest CUDA that the driver knows; 0: no driver
static Versions versions() {
    Versions v;
    if (cudaDriverGetVersion(&v.driver) != cudaSuccess) v.driver = 0;
    if (cudaRuntimeGetVersion(&v.runtime) != cudaSuccess) v.runtime = 0;
    return v;
}

static std::string found(const std::string& gpu) {
    const Versions v = versions();
    return fmt::format("found: {}; {}; this program: CUDA {}, code for {}", gpu,
                         v.driver ? "a driver for CUDA " + text_of(v.driver) : "no driver",
                         text_of(v.runtime), CUDA_ARCHS);
}

// What the kernel module says where the runtime cannot: "Model:      NVIDIA H200".
static std::string gpus_of_the_module() {
    std::error_code none;
    std::string names;
    for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
        std::ifstream file(gpu.path() / "information");
        for (std::string line; std::getline(file, line);) {
            if (!line.starts_with("Model:")) continue;
            const size_t at = line.find_first_not_of(" \t", 6);
            if (at != std::string::npos) names += (names.empty() ? "" : ", ") + line.substr(at);
        }
    }
    return names.empty() ? "no GPU" : names;
}

int usable_devices() {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return count;
    const Versions v = versions();
    const std::string here = found(gpus_of_the_module());
    CHECK_INPUT(v.driver == 0 || v.driver / 1000 >= v.runtime / 1000,
                "the GPU's driver is older than this program.\n       {}.\n       Install a driver for CUDA "
                "{} or newer, or build with a toolkit that this driver knows:\n       make DEVICE=cuda "
                "CUDA_HOME=/usr/local/cuda-{}", here, text_of(v.runtime / 1000 * 1000),
                text_of(v.driver));
    fatal(kExitConfig, __FILE__, __LINE__,
          "no CUDA device can be used: {} ({}).\n       {}.\n       Does nvidia-smi list one, and does "
          "CUDA_VISIBLE_DEVICES leave one? A program for the CPU: make DEVICE=cpu",
          error == cudaSuccess ? "there is none" : cudaGetErrorString(error), cudaGetErrorName(error),
          here);
}

void check_kernels_run_on(int device) {
    cudaDeviceProp gpu;
    CUDA_CHECK(cudaGetDeviceProperties(&gpu, device));
    const int arch = 10 * gpu.major + gpu.minor;
    const std::string here = found(fmt::format("{}, compute capability {}.{}", gpu.name, gpu.major,
                                               gpu.minor));
    CHECK_INPUT(gpu.major >= 8, "device {} is too old: kernels here need compute capability 8.0 or newer.\n"
                "       {}.\n       A program for the CPU: make DEVICE=cpu", device, here);
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, nothing_kernel);
    if (error == cudaSuccess) return;
    const std::string make = fmt::format("make DEVICE=cuda ARCH={}", arch);
    const bool old_driver = error == cudaErrorUnsupportedPtxVersion;
    CHECK_INPUT(!old_driver && error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidPtx &&
                error != cudaErrorJitCompilerNotFound && error != cudaErrorJitCompilationDisabled,
                "this program has no code that runs on device {}: {} ({}).\n       {}.\n       Build for "
                "this GPU:  {}{}", device, cudaGetErrorString(error), cudaGetErrorName(error), here,
                make, old_driver ? "\n       or install a newer driver, which compiles the PTX" : "");
    CUDA_CHECK(error);
}

}  // namespace gpu
