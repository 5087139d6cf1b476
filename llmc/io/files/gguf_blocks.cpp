#include "llmc/io/files/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/base/numbers/half.h"

inline namespace files {

namespace {

// ggml's types by their numbers; without a block: types that this program does not read.
struct TypeRow { uint32_t number; const char* name; GgufBlock block = {0, 0}; };
constexpr TypeRow kTypes[] = {
    {0, "F32", {1, 4}}, {1, "F16", {1, 2}}, {30, "BF16", {1, 2}}, {2, "Q4_0", {32, 18}},
    {3, "Q4_1", {32, 20}}, {6, "Q5_0", {32, 22}}, {7, "Q5_1", {32, 24}}, {8, "Q8_0", {32, 34}},
    {12, "Q4_K", {256, 144}}, {13, "Q5_K", {256, 176}}, {14, "Q6_K", {256, 210}},
    {9, "Q8_1"}, {10, "Q2_K"}, {11, "Q3_K"}, {15, "Q8_K"},
    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
    {22, "IQ2_S"}, {23, "IQ4_XS"}, {24, "I8"}, {25, "I16"}, {26, "I32"}, {27, "I64"}, {28, "F64"},
    {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"}, {39, "MXFP4"}};

const TypeRow* row_of(GgufType type) {
    for (const TypeRow& row : kTypes)
        if (row.number == uint32_t(type)) return &row;
    return nullptr;
}

}  // namespace

GgufBlock block_of(GgufType type) {
    const TypeRow* row = row_of(type);
    return row ? row->block : GgufBlock{0, 0};
}

const char* name_of(GgufType type) {
    const TypeRow* row = row_of(type);
    return row ? row->name : "?";
}

std::string readable_types() {
    std::string text;
    for (const TypeRow& row : kTypes)
        if (row.block.bytes) text += (text.empty() ? "" : ", ") + std::string(row.name);
    return text;
}

// ---------------------------------------------------------------------------------------------------------
// decoding

template <class T = half> static float number(const uint8_t* from) {
    T v;
    memcpy(&v, from, sizeof v);
    return float(v);
}

// 32 integers of 4 or 5 bits: element j < 16 is in the low half of byte j, j + 16 in its high half. fifth:
// bit j is the fifth bit of element j.
static void decode_32(const uint8_t* q, uint32_t fifth, float d, float m, float* out) {
    for (int j = 0; j < 32; j++) {
        const uint32_t low = j < 16 ? q[j] & 15u : q[j - 16] >> 4;
        out[j] = d * float(low | (fifth >> j & 1) << 4) + m;
    }
}

// Q4_K and Q5_K: d, e, 12 bytes with s and m, the fifth bits of Q5_K, 128 bytes with 4 bits of each q. Of a
// byte of these, 32 at a time, the low half is in one run and the high half in the next.
static void decode_k(const uint8_t* in, bool five, float* out) {
    const float d = number(in), e = number(in + 2);
    const uint8_t *scales = in + 4, *fifth = in + 16, *q = in + (five ? 48 : 16);
    for (int run = 0; run < 8; run++) {
        int s = scales[run & 3] & 63, m = scales[4 + (run & 3)] & 63;
        if (run >= 4) {
            s = (scales[run + 4] & 15) | scales[run - 4] >> 6 << 4;
            m = scales[run + 4] >> 4 | scales[run] >> 6 << 4;
        }
        const float factor = d * float(s), offset = e * float(m);
        for (int i = 0; i < 32; i++) {
            int v = q[run / 2 * 32 + i] >> (run % 2 * 4) & 15;
            if (five) v |= (fifth[i] >> run & 1) << 4;
            *out++ = factor * float(v) - offset;
        }
    }
}

// Q6_K: 128 bytes with 4 bits of each q, 64 with 2 more, 16 scales, d. Each half of the block has 4 runs.
static void decode_q6(const uint8_t* in, float* out) {
    const float d = number(in + 208);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, run = i % 128 / 32, at = i % 32;
        const int low = in[64 * half + 32 * (run % 2) + at] >> (run / 2 * 4) & 15;
        const int high = in[128 + 32 * half + at] >> (2 * run) & 3;
        out[i] = d * float(int8_t(in[192 + i / 16])) * float((low | high << 4) - 32);
    }
}

static void decode_block(GgufType type, const uint8_t* in, float* out) {
    const float d = number(in);
    uint32_t fifth = 0;
    switch (type) {
        case GgufType::Q8_0:
            for (int i = 0; i < 32; i++) out[i] = d * float(int8_t(in[2 + i]));
            return;
        case GgufType::Q4_0: return decode_32(in + 2, 0, d, -8 * d, out);
        case GgufType::Q4_1: return decode_32(in + 4, 0, d, number(in + 2), out);
        case GgufType::Q5_0:
            memcpy(&fifth, in + 2, sizeof fifth);
            return decode_32(in + 6, fifth, d, -16 * d, out);
        case GgufType::Q5_1:
            memcpy(&fifth, in + 4, sizeof fifth);
            return decode_32(in + 8, fifth, d, number(in + 2), out);
        case GgufType::Q4_K: return decode_k(in, false, out);
        case GgufType::Q5_K: return decode_k(in, true, out);
        case GgufType::Q6_K: return decode_q6(in, out);
        default: CHECK(false, "{} has no blocks", name_of(type));
    }
}

void decode(GgufType type, const uint8_t* in, size_t count, float* out) {
    if (count == 0) return;         // a tensor without elements: memcpy takes no null pointers
    if (type == GgufType::F32) return void(memcpy(out, in, count * sizeof(float)));
    const GgufBlock block = block_of(type);
    if (type == GgufType::F16)
        for (size_t i = 0; i < count; i++) out[i] = number(in + 2 * i);
    else if (type == GgufType::BF16)
        for (size_t i = 0; i < count; i++) out[i] = number<bfloat16>(in + 2 * i);
    else for (size_t i = 0; i < count / block.elements; i++)
        decode_block(type, in + i * block.bytes, out + i * block.elements);
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

}  // namespace files
