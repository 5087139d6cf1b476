// Trains, and says where the time of the GPU goes: a line "= {JSON}" per kernel, with its floor.
//
//     cuda_kernels CONFIG.json [--section.key=value ...]
//
// An event on either side of every launch: a step takes a little longer than without.
#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "llmc/base/last_words.h"
#include "llmc/base/options.h"
#include "llmc/comm/launch.h"
#include "llmc/ops/cuda/runtime.h"
#include "llmc/train/programs.h"

struct Launch {
    const void* kernel;
    Floor floor;
    cudaEvent_t from, to;
};
static std::vector<Launch> launches;

static cudaEvent_t recorded() {
    cudaEvent_t event;
    CUDA_CHECK(cudaEventCreate(&event));
    CUDA_CHECK(cudaEventRecord(event, cuda_device().compute));
    return event;
}
static void before(void*, const void* kernel, const Floor& floor) {
    launches.push_back({kernel, floor, recorded(), nullptr});
}
static void after(void*, const void*) { launches.back().to = recorded(); }

static std::string name_of(const void* kernel) {
    const char* name = nullptr;
    return !kernel ? "cuBLASLt" : cudaFuncGetName(&name, kernel) == cudaSuccess ? name : "?";
}

static void show(int64_t steps) {
    struct Sum { double calls = 0, us = 0, bytes = 0, flops = 0; };
    std::map<const void*, Sum> sums;
    double all = 0;
    for (const Launch& l : launches) {
        float milliseconds = 0;
        CUDA_CHECK(cudaEventSynchronize(l.to));
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, l.from, l.to));
        Sum& s = sums[l.kernel];
        s.calls++, s.us += 1000 * double(milliseconds), all += 1000 * double(milliseconds);
        s.bytes += l.floor.bytes, s.flops += l.floor.mma_flops;
    }
    std::vector<std::pair<const void*, Sum>> rows(sums.begin(), sums.end());
    std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second.us > b.second.us; });
    for (const auto& [kernel, s] : rows)
        printf("= {\"kernel\": \"%s\", \"calls\": %.0f, \"us\": %.1f, \"share\": %.4f, \"floor_MB\": %.3f, "
               "\"floor_GFLOP\": %.3f, \"GBps\": %.1f, \"TFLOPs\": %.2f}\n", name_of(kernel).c_str(),
               s.calls, s.us, s.us / all, s.bytes / 1e6, s.flops / 1e9, s.bytes / s.us / 1e3,
               s.flops / s.us / 1e6);
    printf("= {\"kernels_us_per_step\": %.1f}\n", all / double(std::max<int64_t>(1, steps)));
}

int main(int argc, char** argv) {
    Options options = parse_command_line(argc, argv);
    const int64_t steps = options.config.train.steps;
    if (options.config.run.precision == "auto") options.config.run.precision = "bf16";
    const bool bf16 = options.config.run.precision == "bf16";
    const int code = run_ranks(options.config, [&](Config cfg, const Mesh& mesh) {
        static const LaunchObserver observer = {nullptr, before, after};
        launch_observer = &observer;
        const int ended = bf16 ? bf16::train(cfg, mesh) : fp32::train(cfg, mesh);
        launch_observer = nullptr;
        if (mesh.rank == 0) show(steps);
        return ended;
    });
    ends_on_purpose();
    return code;
}
