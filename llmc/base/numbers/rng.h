// Counter-based random numbers: the value at (seed, stream, index) is a pure function. Draws do not depend on
// ranks, threads or order.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3").
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

#include "llmc/base/numbers/dtype.h"

inline namespace numbers {

struct Philox { uint32_t x[4]; };

HOST_DEVICE inline Philox philox(uint64_t key, uint64_t stream, uint64_t index) {
    uint32_t c[4] = {uint32_t(index), uint32_t(index >> 32), uint32_t(stream), uint32_t(stream >> 32)};
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = uint64_t(0xD2511F53) * c[0], p1 = uint64_t(0xCD9E8D57) * c[2];
        const uint32_t n0 = uint32_t(p1 >> 32) ^ c[1] ^ k0, n2 = uint32_t(p0 >> 32) ^ c[3] ^ k1;
        c[1] = uint32_t(p1);
        c[3] = uint32_t(p0);
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    return {{c[0], c[1], c[2], c[3]}};
}

// in [0, 1), 53 bits
inline double uniform(uint64_t key, uint64_t stream, uint64_t index) {
    const Philox p = philox(key, stream, index);
    return double((uint64_t(p.x[0]) << 32 | p.x[1]) >> 11) * 0x1p-53;
}

// Standard normal by Box-Muller: a single draw per index.
inline double normal(uint64_t key, uint64_t stream, uint64_t index) {
    const Philox p = philox(key, stream, index);
    const double u = (double((uint64_t(p.x[0]) << 32 | p.x[1]) >> 11) + 0.5) * 0x1p-53;
    const double v = double((uint64_t(p.x[2]) << 32 | p.x[3]) >> 11) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

// A stream id from a name (FNV-1a), for draws of a named tensor or purpose.
constexpr uint64_t stream_of(const char* name) {
    uint64_t h = 0xcbf29ce484222325;
    for (; *name; name++) h = (h ^ uint8_t(*name)) * 0x100000001b3;
    return h;
}

}  // namespace numbers
