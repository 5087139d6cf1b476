// Elements of GGUF's tensors, in blocks of a row.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

// A block of a Q type: 32 integers q, elements of a row, with an FP16 scale d and for Q4_1 an FP16 offset m.
//
//     type   bits of q   value
//     Q8_0   8           d q
//     Q4_0   4           d (q - 8)
//     Q4_1   4           d q + m
enum class GgufType : uint32_t { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, BF16 = 30 };

struct GgufBlock { uint64_t elements, bytes; };
GgufBlock block_of(GgufType type);              // {0, 0}: an unknown type
const char* name_of(GgufType type);

// count: elements of whole blocks. encode() supports F32, F16, BF16 and Q8_0, and rounds to nearest.
void decode(GgufType type, const uint8_t* in, size_t count, float* out);
std::vector<uint8_t> encode(GgufType type, const float* in, size_t count);
