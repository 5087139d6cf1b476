// What GPUs have said of the variants of hot kernels (variants.h, matmul.h), committed: winners.h.
//
// What a run has timed itself comes first (ops/tuning.h). Else the variant that was the fastest on this GPU
// is taken; where none has judged, the one with the lowest floor. What failed on this GPU is out. GPUs are
// asked in BF16, and only there it counts.
#pragma once
#include <cstring>
#include <span>

enum class Verdict { None, Fastest, Failed };
struct Judged {
    const char *gpu, *part;             // cudaDeviceProp's name; "attention_keys", "gelu_input"
    int D;                              // head size; 0 where there are no heads
    const char* variant;
    Verdict verdict;
};

#include "llmc/ops/cuda/winners.h"

inline thread_local std::span<const Judged> judged = kJudged;       // another in tests

inline Verdict verdict_of(const char* gpu, const char* part, int D, const char* variant) {
    for (const Judged& j : judged)
        if (j.D == D && !strcmp(j.part, part) && !strcmp(j.variant, variant) && !strcmp(j.gpu, gpu))
            return j.verdict;
    return Verdict::None;
}
