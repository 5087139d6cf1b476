// What the GPU can do, and which way of an op is the fastest there: a line "= {JSON}" per figure.
//
//     cuda_bench ceilings | gemm | attention | variants
//                [--B=16] [--T=1024] [--C=768] [--NH=12] [--size=8192]
//
// ceilings: copies, and products of (size, size). gemm, attention, variants (of all other kernels): every way
// that the tuner knows (ops/tuning.h), for a GPT of these sizes in BF16. The emulation runs it too, where
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
#include "llmc/ops/cuda/attention.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/matmul.h"
#include "llmc/ops/cuda/scratch.h"

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

    Memory(size_t bytes, const ScratchSizes& s) {
        arena.add("data", &data, bytes);
        arena.add("scratch", &scratch, scratch_bytes(s));
        arena.allocate(device_allocate, device_free);
        lend_scratch(scratch, scratch_bytes(s));
    }
    ~Memory() { synchronize(), lend_scratch(nullptr, 0); }
};

static ScratchSizes sizes_of(const Sizes& o) {
    return {.N = o.B * o.T, .T = o.T, .C = o.C, .NH = o.NH, .D = o.C / o.NH, .F = 4 * o.C,
            .chunk = std::min(logit_rows(), o.B * o.T), .Vp = std::min(kVocab, 8 * o.size)};
}

static void ceilings(const Sizes& o) {
    const size_t n = size_t(o.size), matrix = n * n * sizeof(bfloat16);
    const Memory memory(16 * matrix, sizes_of({.B = 1, .T = 64}));
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

// Whether `what` gives the results of the simplest way when it is chosen by that line; `choices` come back.
template <class Use, class Try> static bool is_right(const std::string& choices, const std::string& what,
                                                     const std::string& line, Use use, Try try_it) {
    use(choices.substr(0, choices.find('\n') + 1) + line + '\n');
    context.throw_on_fatal = true;
    bool right = true;
    try {
        try_it();
    } catch (const Fatal& e) {                          // of all that is wrong
        right = std::string(e.what()).find(what + ',') == std::string::npos;
        if (!right) printf("%s: %s\n", line.c_str(), e.what());
    }
    context.throw_on_fatal = false;
    use(choices);
    return right;
}
static void print_variant(const std::string& what, const char* variant, double us, bool right) {
    printf("= {\"op\": \"%s\", \"variant\": \"%s\", \"us\": %.1f, \"right\": %s}\n", what.c_str(), variant,
           us, right ? "true" : "false");
}

static void time_gemm(const Sizes& o) {
    const ScratchSizes s = sizes_of(o);
    const Memory memory(std::max(matmul_tuning_bytes(s), matmul_trial_bytes(s)), s);
    struct Way { double first = 0, cublas = 0; MatmulTiming best; };
    std::map<std::string, Way> ways;
    std::map<std::pair<std::string, std::string>, MatmulTiming> variants;
    for (const MatmulTiming& t : matmul_tune(s, memory.data, kRepeats)) {
        Way& way = ways[t.what];
        if (way.first == 0) way.first = t.microseconds, way.best = t;
        if (t.plain) way.cublas = t.microseconds;      // with the kernels of what is not fused
        if (t.microseconds < way.best.microseconds) way.best = t;
        MatmulTiming& best = variants.try_emplace({t.what, t.variant}, t).first->second;
        if (t.microseconds < best.microseconds) best = t;
    }
    for (const auto& [what, way] : ways) {
        double N = 0, C = 0, OC = 0;
        CHECK(sscanf(what.c_str(), "%*s %lf %lf %lf", &N, &C, &OC) == 3, "'%s'", what.c_str());
        printf("= {\"op\": \"%s\", \"first_us\": %.1f, \"cublas_us\": %.1f, \"best_us\": %.1f, "
               "\"best\": \"%s\", \"algorithm\": %d, \"TFLOPs\": %.1f}\n", what.c_str(), way.first,
               way.cublas, double(way.best.microseconds), way.best.variant, way.best.algorithm,
               2e-6 * N * C * OC / double(way.best.microseconds));
    }
    for (const auto& [key, t] : variants)
        if (*t.variant)
            print_variant(t.what, t.variant, double(t.microseconds),
                          is_right(matmul_choices(), t.what, t.choice, use_matmul_choices,
                                   [&] { matmul_try(s, memory.data); }));
}

// What `tune` has timed, each tried by `try_it`.
template <class Tune, class Try> static void time_variants(size_t bytes, const ScratchSizes& s, Tune tune,
                                                           Try try_it) {
    const Memory memory(bytes, s);
    for (const VariantTiming& t : tune(s, memory.data, kRepeats))
        print_variant(t.what, t.variant, double(t.microseconds),
                      is_right(variant_choices(), t.what, t.what + ' ' + t.variant, use_variant_choices,
                               [&] { try_it(s, memory.data); }));
}
static void time_attention(const Sizes& o) {
    const ScratchSizes s = sizes_of(o);
    time_variants(std::max(attention_tuning_bytes(s), attention_trial_bytes(s)), s, attention_tune,
                  attention_try);
}
static void time_streaming(const Sizes& o) {
    const ScratchSizes s = sizes_of(o);
    time_variants(std::max(streaming_tuning_bytes(s), streaming_trial_bytes(s)), s, streaming_tune,
                  streaming_try);
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
    else if (what == "gemm") time_gemm(o);
    else if (what == "attention") time_attention(o);
    else if (what == "variants") time_streaming(o);
    else CHECK_INPUT(false, "cuda_bench '%s': ceilings, gemm, attention or variants", what.c_str());
}
