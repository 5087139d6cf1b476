// Rates of the GPU, and the fastest candidate of an op: a line "= {JSON}" per figure.
//
//     cuda_bench ceilings | gemm | attention
//                [--B=16] [--T=1024] [--C=768] [--NH=12] [--size=8192]
//
// ceilings: copies, and products of (size, size). gemm, attention: the candidates of
// tuning (ops/backend_tuning.h) for a GPT of these sizes in BF16. The emulation runs the program too; its
// times mean nothing.
#define PRECISION bf16
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/tuning/workload.h"
#include "llmc/train/run/model.h"

using namespace bf16::cuda;

static constexpr int kVocab = 50304, kRepeats = 10;
struct Sizes { int B = 16, T = 1024, C = 768, NH = 12, size = 8192; };

// Seconds of one of ten, the best of three times.
template <class F> static double seconds_of(F f) {
    using clock = std::chrono::steady_clock;
    double best = 1e30;
    f();
    for (int i = 0; i < 3; i++) {
        synchronize();
        const auto begin = clock::now();
        for (int j = 0; j < kRepeats; j++) f();
        synchronize();
        best = std::min(best, std::chrono::duration<double>(clock::now() - begin).count() / kRepeats);
    }
    return best;
}

// Device memory, zeros, and the scratch that ops are lent.
struct Memory {
    Arena arena;
    std::byte *data, *scratch;

    Memory(size_t bytes, size_t scratch_bytes) {
        arena.add("data", &data, bytes);
        arena.add("scratch", &scratch, scratch_bytes);
        arena.allocate(device_allocate, device_free);
        lend_scratch(scratch, scratch_bytes);
    }
    ~Memory() { synchronize(), lend_scratch(nullptr, 0); }
};

// Walks a step of a GPT of a single block of these sizes, for a GPU. Few ids: the products of logits have
// many rows.
static Walk step_of(const Sizes& o) {
    Config cfg;
    cfg.model = {.layers = 1, .heads = o.NH, .channels = o.C, .context = o.T,
                 .vocab = std::min(kVocab, 8 * o.size), .init = "random"};
    cfg.train = {.steps = 1, .batch_tokens = int64_t(o.B) * o.T, .micro_batch = o.B, .max_skips = 0};
    const Target gpu{.backend = Target::Cuda, .threads = 1};
    context.target = &gpu;
    Walk step = bf16::walk_of_run(cfg, Mesh(), {.micro_batch = o.B, .micros = 0});
    context.target = nullptr;
    return step;
}

static void ceilings(const Sizes& o) {
    const size_t n = size_t(o.size), matrix = n * n * sizeof(bfloat16);
    const Memory memory(16 * matrix, kScratchAlign + kGemmWorkspace);
    std::byte* p = memory.data;
    const double copy = seconds_of([&] { copy_on_device(p + 8 * matrix, p, 8 * matrix); });
    printf("= {\"name\": \"copy\", \"bytes\": %zu, \"GBps\": %.1f}\n", 16 * matrix,
           16e-9 * double(matrix) / copy);
    std::vector<bfloat16> values(n * n);
    for (size_t i = 0; i < values.size(); i++) values[i] = bfloat16(float(i * 7919 % 201) / 100 - 1);
    for (const size_t at : {size_t(0), matrix}) copy_to_device(p + at, values.data(), matrix);
    const Gemm g = {.m = int64_t(n), .n = int64_t(n), .k = int64_t(n), .a_transposed = true,
                    .b_transposed = false, .in = DType::BF16, .out = DType::BF16, .accumulate = false,
                    .epilogue = Epilogue::None};
    double best = 1e30, first = 0;
    for (const GemmAlgorithm& algorithm : gemm_algorithms(g)) {
        const GemmTensors t = {.d = p + 2 * matrix, .a = p, .b = p + matrix, .bias = nullptr, .aux = nullptr};
        const double s = seconds_of([&] { gemm(g, t, algorithm, scratch<std::byte>(kGemmWorkspace)); });
        if (first == 0) first = s;
        best = std::min(best, s);
    }
    const double flops = 2.0 * double(n) * double(n) * double(n);
    printf("= {\"name\": \"matmul bf16\", \"size\": %zu, \"TFLOPs\": %.2f, \"of_first_guess\": %.2f}\n", n,
           flops / best / 1e12, flops / first / 1e12);
}

// The fastest candidate of each kernel (fused or not; tiles), and whether its results are right.
static void show_kernels(const Task& task, const std::vector<Timing>& timings, void* memory) {
    std::map<std::string, Timing> best;
    for (const Timing& t : timings) {
        Timing& fastest = best.try_emplace(t.candidate.kernel, t).first->second;
        if (t.microseconds < fastest.microseconds) fastest = t;
    }
    for (const auto& [kernel, t] : best) {
        const std::string wrong = differences(task, t.candidate, memory);
        if (!wrong.empty()) printf("%s: %s\n", kernel.c_str(), wrong.c_str());
        printf("= {\"op\": \"%s\", \"kernel\": \"%s\", \"us\": %.1f, \"right\": %s}\n",
               text_of(task).c_str(), kernel.c_str(), double(t.microseconds),
               wrong.empty() ? "true" : "false");
    }
}

static void show_product(const Task& task, const std::vector<Timing>& timings) {
    const Timing *best = &timings[0], *cublas = nullptr;
    for (const Timing& t : timings) {
        if (t.candidate.algorithm == kPlainCublas) cublas = &t;     // and the kernels of unfused epilogues
        if (t.microseconds < best->microseconds) best = &t;
    }
    const auto [N, C, OC, none] = task.sizes;
    printf("= {\"op\": \"%s\", \"first_us\": %.1f, \"cublas_us\": %.1f, \"best_us\": %.1f, "
           "\"best\": \"%s\", \"algorithm\": %d, \"TFLOPs\": %.1f}\n", text_of(task).c_str(),
           double(timings[0].microseconds), cublas ? double(cublas->microseconds) : 0,
           double(best->microseconds), best->candidate.kernel.c_str(), int(best - timings.data()),
           2e-6 * N * C * OC / double(best->microseconds));
}

static void time_tasks(const Sizes& o, bool attention) {
    const Walk step = step_of(o);
    for (const Task& task : tasks_of(step)) {
        if ((task.op >= Op::AttentionForward) != attention) continue;
        const Memory memory(workload_bytes(task), step.needs().scratch);
        const auto timings = time_candidates(task, memory.data, kRepeats);
        if (timings.empty()) continue;
        if (!attention) show_product(task, timings);
        if (attention || timings[0].candidate.kernel != timings.back().candidate.kernel)
            show_kernels(task, timings, memory.data);
    }
}

int main(int argc, char** argv) {
    Sizes o;
    std::string what;
    for (int i = 1; i < argc; i++) {
        const std::string a = argv[i], key = a.substr(0, a.find('='));
        int* value = key == "--B" ? &o.B : key == "--T" ? &o.T : key == "--C" ? &o.C
                   : key == "--NH" ? &o.NH : key == "--size" ? &o.size : nullptr;
        if (value && key.size() < a.size()) *value = atoi(a.c_str() + key.size() + 1);
        else what = a;
    }
    CHECK_INPUT(o.B > 0 && o.T > 0 && o.NH > 0 && o.C >= 8 * o.NH && o.C % (8 * o.NH) == 0 && o.size >= 8 &&
                o.size % 8 == 0, "--C: heads of a multiple of 8; --size: a multiple of 8");
    printf("%s\n", device_name().c_str());
    if (what == "ceilings") ceilings(o);
    else if (what == "gemm" || what == "attention") time_tasks(o, what == "attention");
    else CHECK_INPUT(false, "cuda_bench '{}': ceilings, gemm or attention", what);
}
