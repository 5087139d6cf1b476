// Room base/numbers: number formats, vectors of a CPU, random numbers by a counter.
// Called by rooms that compute or store numbers: io/files, ops, comm, model, train.
// The room knows values and arrays. It knows no tensor.
//
// Number formats, and the namespace per precision.
//
// Numeric files are compiled once per precision with -DPRECISION=fp32, bf16 or fp64. Each definition is
// in `namespace PRECISION { ... }`. There
//
//     floatX   is the type of weights and activations,
//     real     is the type of master weights, moments, gradients, losses and statistics.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

// nvcc compiles the conversions for the device too, where rounding is a single instruction.
#ifdef __CUDACC__
#include <cuda_bf16.h>
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

inline namespace numbers {

// The bits of f as bfloat16, rounded to nearest, ties to even; NaN stays NaN.
#ifdef __CUDA_ARCH__
HOST_DEVICE inline uint16_t bfloat16_bits(float f) { return __bfloat16_as_ushort(__float2bfloat16_rn(f)); }
#else
HOST_DEVICE inline uint16_t bfloat16_bits(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return uint16_t((u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : rounded);
}
#endif

// bfloat16: the upper half of an FP32.
struct [[gnu::may_alias]] bfloat16 {
    uint16_t bits;

    bfloat16() = default;
    HOST_DEVICE explicit bfloat16(float f) : bits(bfloat16_bits(f)) {}
    HOST_DEVICE operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

enum class DType { F32, BF16, F64, E4M3, E5M2 };     // the last two: fp8.h

constexpr size_t size_of(DType t) {
    if (t == DType::F64) return 8;
    if (t == DType::E4M3 || t == DType::E5M2) return 1;
    return t == DType::F32 ? 4 : 2;
}
constexpr const char* name_of(DType t) {
    if (t == DType::F64) return "F64";
    if (t == DType::E4M3 || t == DType::E5M2) return t == DType::E4M3 ? "F8_E4M3" : "F8_E5M2";
    return t == DType::F32 ? "F32" : "BF16";
}

template <class T> inline constexpr DType dtype_of = DType::F32;
template <> inline constexpr DType dtype_of<bfloat16> = DType::BF16;
template <> inline constexpr DType dtype_of<double> = DType::F64;

}  // namespace numbers

namespace fp32::inline numbers { using floatX = float;    using real = float;  }
namespace bf16::inline numbers { using floatX = bfloat16; using real = float;  }
namespace fp64::inline numbers { using floatX = double;   using real = double; }
