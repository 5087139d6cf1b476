// Stochastic rounding of weights. The random word of an element depends on the seed, the step, and its index
// in the model.
#pragma once
#include <algorithm>
#include <bit>

#include "llmc/base/numbers/dtype.h"
#include "llmc/base/numbers/rng.h"

namespace PRECISION {
namespace cpu {

// words[i] = the random word of element first + i: word e % 4 of Philox at (seed, step, e / 4). first is a
// multiple of 4.
inline void draw(uint32_t* words, uint64_t seed, uint64_t step, uint64_t first, size_t count) {
    #pragma omp simd
    for (size_t q = 0; q < count / 4; q++) {
        const Philox p = philox(seed, step, first / 4 + q);
        for (int k = 0; k < 4; k++) words[4 * q + k] = p.x[k];
    }
}

// Rounds to bfloat16: away from zero with probability (discarded bits) / 2^16. NaN and infinity stay NaN and
// infinity.
inline bfloat16 round_stochastically(float x, uint32_t random) {
    const uint32_t u = std::bit_cast<uint32_t>(x), up = (u + (random >> 16)) >> 16;
    bfloat16 nearest(x), result;
    result.bits = uint16_t((u & 0x7f800000) == 0x7f800000 ? nearest.bits : up);
    return result;
}

// param[i] = master[i], rounded, for i < count. global: index of element 0 in the model.
inline void round_run(floatX* param, const real* master, size_t count, uint64_t global, uint64_t seed,
                      int64_t step) {
    constexpr size_t kDraw = 1024;          // random words drawn at once
    uint32_t words[kDraw];
    for (size_t i = 0; i < count;) {
        const uint64_t first = (global + i) / 4 * 4;
        const size_t skip = size_t(global + i - first), n = std::min(kDraw - skip, count - i);
        draw(words, seed, uint64_t(step), first, (skip + n + 3) / 4 * 4);
        for (size_t k = 0; k < n; k++)
            param[i + k] = floatX(round_stochastically(float(master[i + k]), words[skip + k]));
        i += n;
    }
}

}  // namespace cpu
}  // namespace PRECISION
