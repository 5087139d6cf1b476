// Stochastic rounding of weights and moments. The random word of an element depends on the seed, the step,
// and its index in the model.
#pragma once
#include <bit>

#include "llmc/base/numbers/rng.h"
#include "llmc/ops/cuda/kernel.h"

namespace PRECISION {
namespace cuda {

// Rounds to bfloat16: away from zero with probability (discarded bits) / 2^16. NaN and infinity stay NaN and
// infinity.
template <class T = floatX>
static __device__ __forceinline__ T round_stochastically(float x, uint32_t random) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7f800000) == 0x7f800000) return T(x);
    return T(std::bit_cast<float>((u + (random >> 16)) & 0xffff0000));
}

// The random word of element e: word e % 4 of Philox at (seed, stream, e / 4).
static __device__ __forceinline__ uint32_t random_word(uint64_t seed, uint64_t stream, uint64_t e) {
    const Philox p = philox(seed, stream, e / 4);
    return e % 4 == 0 ? p.x[0] : e % 4 == 1 ? p.x[1] : e % 4 == 2 ? p.x[2] : p.x[3];
}

}  // namespace cuda
}  // namespace PRECISION
