// The emulated twin of llmc/ops/cuda/ptx.h: the same names, as the PTX ISA defines.
#pragma once
#include <cstring>

#include "llmc/base/numbers/fp8.h"
#include "test/emulator/access.h"
#include "test/emulator/device.h"
#include "test/emulator/math.h"

namespace emulator {

struct Mma { float* d; const uint32_t *a, *b; };
void mma_m16n8k16(void** lanes, uint32_t mask);

struct Ldmatrix { const void* row; uint32_t* registers; Site site; };
template <int matrices, bool transposed> void ldmatrix(void** lanes, uint32_t mask);
void check_ldmatrix_row(const void* row, bool used);

void copy_async(void* to, const void* from, bool valid);
void commit_copies();
void wait_for_copies(int groups_left);

}  // namespace emulator

namespace ptx {

EMULATOR_DEVICE uint4 load16(const void* p) {
    emulator::note_read(p, 16, false);
    return *static_cast<const uint4*>(p);
}
EMULATOR_DEVICE uint4 load16_cached(const void* p) { return __ldg(static_cast<const uint4*>(p)); }
EMULATOR_DEVICE uint4 load16_streaming(const void* p) { return __ldcs(static_cast<const uint4*>(p)); }
EMULATOR_DEVICE void store16(void* p, uint4 v) {
    emulator::note_write(p, 16);
    *static_cast<uint4*>(p) = v;
}
EMULATOR_DEVICE void store16_global(void* p, uint4 v) { store16(p, v); }
EMULATOR_DEVICE void store16_streaming(void* p, uint4 v) { __stcs(static_cast<uint4*>(p), v); }
EMULATOR_DEVICE uint2 load8(const void* p) {
    emulator::note_read(p, 8, false);
    return *static_cast<const uint2*>(p);
}
EMULATOR_DEVICE uint2 load8_cached(const void* p) { return __ldg(static_cast<const uint2*>(p)); }
EMULATOR_DEVICE uint2 load8_streaming(const void* p) { return __ldcs(static_cast<const uint2*>(p)); }
EMULATOR_DEVICE void store8(void* p, uint2 v) {
    emulator::note_write(p, 8);
    *static_cast<uint2*>(p) = v;
}
EMULATOR_DEVICE void store8_streaming(void* p, uint2 v) { __stcs(static_cast<uint2*>(p), v); }
template <class T> EMULATOR_DEVICE T load_cached(const T* p) { return __ldg(p); }
template <class T> EMULATOR_DEVICE T load_streaming(const T* p) { return __ldcs(p); }
template <class T> EMULATOR_DEVICE void store_streaming(T* p, T v) { __stcs(p, v); }

EMULATOR_DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMULATOR_PLACE) {
    emulator::Mma lane{d, a, b};
    emulator::collective("mma", ~0u, &lane, emulator::mma_m16n8k16, EMULATOR_HERE);
}

#define EMULATOR_LDMATRIX(name, matrices, transposed)                                                      \
    EMULATOR_DEVICE void name(uint32_t (&r)[matrices], const void* row, EMULATOR_PLACE) {                  \
        emulator::check_ldmatrix_row(row, emulator::current->number % 32 < 8 * matrices);                  \
        emulator::Ldmatrix lane{row, r, nullptr};                                                          \
        emulator::collective(#name, ~0u, &lane, emulator::ldmatrix<matrices, transposed>, EMULATOR_HERE);  \
    }
EMULATOR_LDMATRIX(ldmatrix_x4, 4, false)
EMULATOR_LDMATRIX(ldmatrix_x4_trans, 4, true)
#undef EMULATOR_LDMATRIX

EMULATOR_DEVICE void cp_async16(void* to, const void* from, bool valid) {
    emulator::copy_async(to, from, valid);
}
EMULATOR_DEVICE void cp_async_commit() { emulator::commit_copies(); }
template <int N> EMULATOR_DEVICE void cp_async_wait() { emulator::wait_for_copies(N); }

// With the largest error allowed by the PTX ISA, up or down by the last bit of x.
EMULATOR_DEVICE float exp2_approx(float x) {
    if (fabsf(x) < 0x1p-126f) return 1;
    const float y = exp2f(x) * (std::bit_cast<uint32_t>(x) & 1 ? 1 + 0x1p-22f : 1 - 0x1p-22f);
    return y < 0x1p-126f ? 0 : y;
}

// Rounded as base/numbers/dtype.h rounds.
EMULATOR_DEVICE uint32_t pack_bf16(float low, float high) {
    const auto bits = [](float f) {
        const uint32_t u = std::bit_cast<uint32_t>(f);
        return (u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
    };
    return bits(low) | bits(high) << 16;
}

EMULATOR_DEVICE uint16_t pack_e4m3(float low, float high) {
    return uint16_t(fp8_code<Fp8::E4M3>(low) | fp8_code<Fp8::E4M3>(high) << 8);
}
EMULATOR_DEVICE uint16_t pack_e5m2(float low, float high) {
    return uint16_t(fp8_code<Fp8::E5M2>(low) | fp8_code<Fp8::E5M2>(high) << 8);
}

EMULATOR_DEVICE void opaque(uint4&) {}
EMULATOR_DEVICE int block_again() { return int(blockIdx.x); }

}  // namespace ptx
