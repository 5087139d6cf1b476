// Trains, and says where the time of the GPU goes: a line "= {JSON}" per kernel, with its floor.
//
//     cuda_kernels CONFIG.json [--section.key=value ...]
//
// COPY_GBPS and MATMUL_TFLOPS: this GPU's ceilings (cuda_bench ceilings); with both set, a row also has the
// kernel's time as a multiple of its floor.
//
// An event on either side of every launch: a step takes a little longer than without. Products are told apart
// by their floating-point operations.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "llmc/base/guard/obituary.h"
#include "llmc/base/config/options.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/model/depth.h"
#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/train/run/programs.h"

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
// False during tuning at the start.
static bool trains() { return context.progress && context.progress->phase == Phase::Train; }
static void before(void*, const void* kernel, const Floor& floor) {
    if (trains()) launches.push_back({kernel, floor, recorded(), nullptr});
}
static void after(void*, const void*) {
    if (trains()) launches.back().to = recorded();
}
static float microseconds(cudaEvent_t from, cudaEvent_t to) {
    float milliseconds = 0;
    CUDA_CHECK(cudaEventSynchronize(to));
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, from, to));
    return 1000 * milliseconds;
}

static std::string name_of(const void* kernel) {
    const char* name = nullptr;
    return !kernel ? "cuBLASLt" : cudaFuncGetName(&name, kernel) == cudaSuccess ? name : "?";
}

// The least time of the bytes and operations, in microseconds; 0: the ceilings are not set.
static double floor_us(double bytes, double flops) {
    const auto given = [](const char* name) { const char* s = getenv(name); return s ? atof(s) : 0; };
    const double gbps = given("COPY_GBPS"), tflops = given("MATMUL_TFLOPS");
    return gbps > 0 && tflops > 0 ? std::max(bytes / gbps / 1e3, flops / tflops / 1e6) : 0;
}

static void show(int64_t steps) {
    struct Sum { double calls = 0, us = 0, bytes = 0, flops = 0; };
    using Key = std::pair<const void*, double>;
    std::map<Key, Sum> sums;
    double all = 0, gaps = 0;
    const cudaEvent_t* last = nullptr;
    for (const Launch& l : launches) {
        Sum& s = sums[{l.kernel, l.kernel ? 0 : l.floor.mma_flops}];
        const double us = microseconds(l.from, l.to);
        s.calls++, s.us += us, all += us;
        s.bytes += l.floor.bytes, s.flops += l.floor.mma_flops;
        if (last) gaps += microseconds(*last, l.from);
        last = &l.to;
    }
    std::vector<std::pair<Key, Sum>> rows(sums.begin(), sums.end());
    std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second.us > b.second.us; });
    for (const auto& [key, s] : rows) {
        const double least = floor_us(s.bytes, s.flops);
        printf("= {\"kernel\": \"%s\", \"calls\": %.0f, \"us\": %.1f, \"share\": %.4f, \"floor_MB\": %.3f, "
               "\"floor_GFLOP\": %.3f, \"GBps\": %.1f, \"TFLOPs\": %.2f, \"times_floor\": %s}\n",
               name_of(key.first).c_str(), s.calls, s.us, s.us / all, s.bytes / 1e6, s.flops / 1e9,
               s.bytes / s.us / 1e3, s.flops / s.us / 1e6,
               least > 0 ? fmt::format("{:.2f}", s.us / least).c_str() : "null");
    }
    const double each = double(std::max<int64_t>(1, steps));
    printf("= {\"kernels_us_per_step\": %.1f, \"gaps_us_per_step\": %.1f}\n", all / each, gaps / each);
}

int main(int argc, char** argv) {
    Options options = parse_command_line(argc, argv, [](Options& o) { apply_depth(o.config); });
    const int64_t steps = options.config.train.steps;
    if (options.config.run.precision == RunPrecision::Auto) options.config.run.precision = RunPrecision::Bf16;
    const bool bf16 = options.config.run.precision == RunPrecision::Bf16;
    static ProgressPage page;           // the trainer's phase and step
    progress_page = &page;
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
