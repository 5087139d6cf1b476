// Stochastic rounding of weights and moments. The random word of an element depends on the seed, the step,
// and its index in the model.
#pragma once
#include <algorithm>
#include <bit>

#include "llmc/base/numbers/dtype.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

// words[i] = the random word of element first + i: word e % 4 of Philox at (seed, stream, e / 4). first is a
// multiple of 4.
inline void draw(uint32_t* words, uint64_t seed, uint64_t stream, uint64_t first, size_t count) {
    #pragma omp simd
    for (size_t q = 0; q < count / 4; q++) {
        const Philox p = philox(seed, stream, first / 4 + q);
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

// Calls f(i, word) with the random word of element global + i, for i < count.
template <class F>
inline void for_words(size_t count, uint64_t global, uint64_t seed, uint64_t stream, F f) {
    constexpr size_t kDraw = 1024;          // random words drawn at once
    uint32_t words[kDraw];
    for (size_t i = 0; i < count;) {
        const uint64_t first = (global + i) / 4 * 4;
        const size_t skip = size_t(global + i - first), n = std::min(kDraw - skip, count - i);
        draw(words, seed, stream, first, (skip + n + 3) / 4 * 4);
        for (size_t k = 0; k < n; k++) f(i + k, words[skip + k]);
        i += n;
    }
}

// param[i] = master[i], rounded, for i < count. global: index of element 0 in the model.
inline void round_run(floatX* param, const real* master, size_t count, uint64_t global, uint64_t seed,
                      int64_t step) {
    for_words(count, global, seed, uint64_t(step), [=](size_t i, uint32_t word) {
        param[i] = floatX(round_stochastically(float(master[i]), word));
    });
}

// Moments, as moments_stream() says. v and to_v may be null.
inline void round_moments(bfloat16* to_m, bfloat16* to_v, const real* m, const real* v, size_t count,
                          uint64_t global, uint64_t seed, int64_t step) {
    for_words(count, global, seed, moments_stream(step), [=](size_t i, uint32_t word) {
        to_m[i] = round_stochastically(float(m[i]), word);
        if (to_v) to_v[i] = round_stochastically(float(v[i]), word << 16);
    });
}

}  // namespace cpu
}  // namespace PRECISION
