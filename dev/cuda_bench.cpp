// Rates of the GPU, and the fastest candidate of an op: a line "= {JSON}" per figure.
//
//     cuda_bench ceilings | gemm | attention
//                [--B=16] [--T=1024] [--C=768] [--NH=12] [--size=8192]
//
// ceilings: copies, and products of (size, size). gemm, attention: the candidates of
// tuning (ops/backend_tuning.h) for a GPT of these sizes in BF16. The emulation runs the program too; its
// times mean nothing.
#include "dev/cuda_times.h"

#include <cstdio>
#include <map>
#include <string>

static void ceilings(const Sizes& o) {
    const CopyRate copy = copy_rate(o.size);
    printf("= {\"name\": \"copy\", \"bytes\": %zu, \"GBps\": %.1f}\n", copy.bytes, 1e-9 * copy.per_second);
    const ProductRate product = product_rate<bfloat16>(o.size, DType::BF16);
    printf("= {\"name\": \"matmul bf16\", \"size\": %d, \"TFLOPs\": %.2f, \"of_first_guess\": %.2f}\n",
           o.size, 1e-12 * product.flops_per_second, 1e-12 * product.of_first_guess);
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
    for (int i = 1; i < argc; i++)
        if (!take_size(o, argv[i])) what = argv[i];
    check_sizes(o);
    printf("%s\n", device_name().c_str());
    if (what == "ceilings") ceilings(o);
    else if (what == "gemm" || what == "attention") time_tasks(o, what == "attention");
    else CHECK_INPUT(false, "cuda_bench '{}': ceilings, gemm or attention", what);
}
