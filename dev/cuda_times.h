// Measurements for dev/cuda_bench.cpp and dev/cuda_machine.cpp: times, memory, rates of copies and products.
#pragma once
#define PRECISION bf16
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/tuning/workload.h"
#include "llmc/train/run/run_memory.h"

using namespace bf16::cuda;

inline constexpr int kVocab = 50304, kRepeats = 10;
struct Sizes { int B = 16, T = 1024, C = 768, NH = 12, size = 8192; };

// Seconds of a call: the mean of ten calls, the best of three times.
template <class F> double seconds_of(F f) {
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

// Device memory, zeroed, and the scratch lent to ops.
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
inline Walk step_of(const Sizes& o) {
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

struct CopyRate { size_t bytes; double per_second; };       // bytes: read plus written

// A copy too large for L2, of 16 matrices of size x size in BF16.
inline CopyRate copy_rate(int size) {
    const size_t half = 8 * size_t(size) * size_t(size) * sizeof(bfloat16);
    const Memory memory(2 * half, kScratchAlign);
    const double seconds = seconds_of([&] { copy_on_device(memory.data + half, memory.data, half); });
    return {2 * half, 2.0 * double(half) / seconds};
}

struct ProductRate { double flops_per_second, of_first_guess; };

// A product of size x size matrices, by the fastest algorithm and by cuBLASLt's first.
template <class T> ProductRate product_rate(int size, DType type) {
    const size_t n = size_t(size), matrix = n * n * sizeof(T);
    const Memory memory(3 * matrix, kScratchAlign + kGemmWorkspace);
    std::byte* p = memory.data;
    std::vector<T> values(n * n);
    for (size_t i = 0; i < values.size(); i++) values[i] = T(float(i * 7919 % 201) / 100 - 1);
    for (const size_t at : {size_t(0), matrix}) copy_to_device(p + at, values.data(), matrix);
    const Gemm g = {.m = size, .n = size, .k = size, .a_transposed = true, .b_transposed = false, .in = type,
                    .out = type, .accumulate = false, .epilogue = Epilogue::None};
    double best = 1e30, first = 0;
    for (const GemmAlgorithm& algorithm : gemm_algorithms(g)) {
        const GemmTensors t = {.d = p + 2 * matrix, .a = p, .b = p + matrix, .bias = nullptr, .aux = nullptr};
        const double s = seconds_of([&] { gemm(g, t, algorithm, scratch<std::byte>(kGemmWorkspace)); });
        if (first == 0) first = s;
        best = std::min(best, s);
    }
    const double flops = 2.0 * double(n) * double(n) * double(n);
    return {flops / best, flops / first};
}

// Takes an argument --B=, --T=, --C=, --NH= or --size=; false for another argument.
inline bool take_size(Sizes& o, std::string_view a) {
    const size_t equals = a.find('=');
    const std::string_view key = a.substr(0, equals);
    int* value = key == "--B" ? &o.B : key == "--T" ? &o.T : key == "--C" ? &o.C
               : key == "--NH" ? &o.NH : key == "--size" ? &o.size : nullptr;
    if (!value || equals == a.npos) return false;
    *value = atoi(std::string(a.substr(equals + 1)).c_str());
    return true;
}

inline void check_sizes(const Sizes& o) {
    CHECK_INPUT(o.B > 0 && o.T > 0 && o.NH > 0 && o.C >= 8 * o.NH && o.C % (8 * o.NH) == 0 && o.size >= 8 &&
                o.size % 8 == 0, "--C: heads of a multiple of 8; --size: a multiple of 8");
}
