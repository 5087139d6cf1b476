#include "llmc/io/files/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/base/numbers/half.h"

GgufBlock block_of(GgufType type) {
    switch (type) {
        case GgufType::F32: return {1, 4};
        case GgufType::F16: return {1, 2};
        case GgufType::BF16: return {1, 2};
        case GgufType::Q4_0: return {32, 18};
        case GgufType::Q4_1: return {32, 20};
        case GgufType::Q8_0: return {32, 34};
    }
    return {0, 0};
}

const char* name_of(GgufType type) {
    switch (type) {
        case GgufType::F32: return "F32";
        case GgufType::F16: return "F16";
        case GgufType::BF16: return "BF16";
        case GgufType::Q4_0: return "Q4_0";
        case GgufType::Q4_1: return "Q4_1";
        case GgufType::Q8_0: return "Q8_0";
    }
    return "?";
}

void decode(GgufType type, const uint8_t* in, size_t count, float* out) {
    const auto number = [&]<class T>(T, size_t at) {
        T v;
        memcpy(&v, in + at, sizeof v);
        return float(v);
    };
    if (count == 0) return;         // a tensor without elements: memcpy takes no null pointers
    if (type == GgufType::F32) memcpy(out, in, count * sizeof(float));
    if (type == GgufType::F16)
        for (size_t i = 0; i < count; i++) out[i] = number(half(), 2 * i);
    if (type == GgufType::BF16)
        for (size_t i = 0; i < count; i++) out[i] = number(bfloat16(), 2 * i);
    if (type == GgufType::Q8_0)
        for (size_t i = 0; i < count; i++) {
            const size_t block = i / 32 * 34;
            out[i] = number(half(), block) * float(int8_t(in[block + 2 + i % 32]));
        }
    if (type != GgufType::Q4_0 && type != GgufType::Q4_1) return;
    const bool shifted = type == GgufType::Q4_1;
    for (size_t i = 0; i < count; i++) {
        const size_t block = i / 32 * (shifted ? 20 : 18), j = i % 32;
        const uint8_t pair = in[block + (shifted ? 4 : 2) + j % 16];
        const int q = j < 16 ? pair & 15 : pair >> 4;
        const float d = number(half(), block);
        out[i] = shifted ? d * float(q) + number(half(), block + 2) : d * float(q - 8);
    }
}

template <class T> static void put(uint8_t* to, T v) { memcpy(to, &v, sizeof v); }

// d is the largest of the 32 over 127; no number where one of them is not finite. Where d is 0 in FP16, so
// are the values.
static void encode_q8(const float* in, uint8_t* out) {
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++) {
        largest = std::max(largest, std::abs(in[i]));
        finite &= std::isfinite(in[i]);
    }
    const float d = finite ? largest / 127 : NAN;
    const half stored = half_of(d);
    const float inverse = float(stored) > 0 ? 1 / d : 0;
    put(out, stored);
    for (int i = 0; i < 32; i++)
        out[2 + i] = finite ? uint8_t(int8_t(std::round(in[i] * inverse))) : 0;
}

std::vector<uint8_t> encode(GgufType type, const float* in, size_t count) {
    const GgufBlock block = block_of(type);
    CHECK(count % block.elements == 0, "{} elements of {}", count, name_of(type));
    if (count == 0) return {};
    std::vector<uint8_t> out(count / block.elements * block.bytes);
    if (type == GgufType::F32) memcpy(out.data(), in, out.size());
    else if (type == GgufType::F16)
        for (size_t i = 0; i < count; i++) put(&out[2 * i], half_of(in[i]));
    else if (type == GgufType::BF16)
        for (size_t i = 0; i < count; i++) put(&out[2 * i], bfloat16_bits(in[i]));
    else if (type == GgufType::Q8_0)
        for (size_t i = 0; i < count / 32; i++) encode_q8(in + 32 * i, &out[34 * i]);
    else CHECK(false, "{} is not written", name_of(type));
    return out;
}
