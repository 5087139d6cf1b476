// Elements of GGUF's tensors, in blocks of a row.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

inline namespace files {

// Blocks of 32 elements of a row: integers q, an FP16 scale d, and for some an FP16 offset m.
//
//     type   bits of q   value
//     Q8_0   8           d q
//     Q4_0   4           d (q - 8)
//     Q4_1   4           d q + m
//     Q5_0   5           d (q - 16)
//     Q5_1   5           d q + m
//
// Blocks of 256 elements: also integers s and m, of each run of 32 elements, or 16 for Q6_K.
//
//     Q4_K   4           d s q - e m; d, e: FP16; s, m: 6 bits
//     Q5_K   5           the same
//     Q6_K   6           d s (q - 32); s: 8 bits with a sign
enum class GgufType : uint32_t { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8,
                                 Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30 };

struct GgufBlock { uint64_t elements, bytes; };
GgufBlock block_of(GgufType type);              // {0, 0}: a type that is not read
const char* name_of(GgufType type);             // also of types that are not read; "?": unknown
std::string readable_types();                   // "F32, F16, ..."

// count: elements of whole blocks. encode() supports F32, F16, BF16 and Q8_0, and rounds to nearest.
void decode(GgufType type, const uint8_t* in, size_t count, float* out);
std::vector<uint8_t> encode(GgufType type, const float* in, size_t count);

}  // namespace files
