// Elements of GGUF's tensors, in blocks of a row.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

// Q: blocks of 32 elements of a row, with an FP16 scale d: Q8_0 d q of 8 bits; Q4_0 d (q - 8) of 4 bits;
// Q4_1 d q + m, with an FP16 m.
enum class GgufType : uint32_t { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, BF16 = 30 };

struct GgufBlock { uint64_t elements, bytes; };
GgufBlock block_of(GgufType type);              // of another type: {0, 0}
const char* name_of(GgufType type);

// Whole blocks. encode() rounds to nearest, of types without Q, and Q8_0.
void decode(GgufType type, const uint8_t* in, size_t count, float* out);
std::vector<uint8_t> encode(GgufType type, const float* in, size_t count);
