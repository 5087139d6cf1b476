// GGUF: blocks of every type, against formulas in plain loops, and files that lie.
#include "llmc/io/files/gguf.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "llmc/base/numbers/dtype.h"
#include "llmc/base/numbers/half.h"
#include "llmc/base/numbers/rng.h"
#include "test/test.h"

using namespace test;
using std::string, std::vector;

TEST(fp16_rounds_to_the_nearest) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float value = half{uint16_t(bits)};
        const uint16_t again = half_of(value).bits;
        if (std::isnan(value)) EXPECT(std::isnan(float(half{again})), "%04x", bits);
        else if (again != bits) EXPECT(false, "%04x becomes %04x", bits, again);
        if ((bits & 0x7fff) >= 0x7bff) continue;
        // halfway to the next goes to the even one, a little more or less to the nearer
        const float next = half{uint16_t(bits + 1)}, middle = (value + next) / 2;
        const uint32_t even = bits % 2 ? bits + 1 : bits;
        if (half_of(middle).bits != even) EXPECT(false, "between %04x and the next", bits);
        if (half_of(std::nextafter(middle, value)).bits != bits) EXPECT(false, "nearer to %04x", bits);
        if (half_of(std::nextafter(middle, next)).bits != bits + 1) EXPECT(false, "nearer than %04x", bits);
    }
    EXPECT(half_of(65519).bits == 0x7bff && half_of(65520).bits == 0x7c00 && half_of(-1e9f).bits == 0xfc00);
}

TEST(no_elements_are_decoded_from_nothing) {
    for (const GgufType type : {GgufType::F32, GgufType::F16, GgufType::BF16, GgufType::Q8_0}) {
        decode(type, nullptr, 0, nullptr);      // under UBSan
        EXPECT(encode(type, nullptr, 0).empty(), "%s", name_of(type));
    }
}

TEST(a_block_of_q8) {
    vector<float> values(64, 0);
    values[0] = 12.7f, values[1] = -12.7f, values[2] = 6.34f, values[31] = 0.06f;      // d = 0.1
    const vector<uint8_t> bytes = encode(GgufType::Q8_0, values.data(), 64);
    EXPECT(bytes.size() == 68 && bytes[0] == 0x66 && bytes[1] == 0x2e, "d is %02x%02x", bytes[1], bytes[0]);
    EXPECT(bytes[2] == 127 && bytes[3] == 0x81 && bytes[4] == 63 && bytes[33] == 1, "%d %d %d %d", bytes[2],
           bytes[3], bytes[4], bytes[33]);
    EXPECT(std::count(bytes.begin() + 34, bytes.end(), 0) == 34, "a block of zeros");
    for (const float odd : {NAN, -INFINITY}) {
        vector<float> lost(32, 1.f), back(32);
        lost[5] = odd;
        decode(GgufType::Q8_0, encode(GgufType::Q8_0, lost.data(), 32).data(), 32, back.data());
        EXPECT(std::isnan(back[0]) && std::isnan(back[5]), "a block with %g", double(odd));
    }
}

// d is 0 in FP16; for the smallest, 1 / d is not finite, which UBSan sees.
TEST(a_block_of_q8_with_tiny_values) {
    for (const float tiny : {1e-30f, 3e-37f, 1e-41f}) {
        vector<float> values(32, tiny), back(32, 1);
        values[3] = 0, values[4] = -tiny / 8;
        const vector<uint8_t> bytes = encode(GgufType::Q8_0, values.data(), 32);
        EXPECT(std::count(bytes.begin(), bytes.end(), 0) == 34, "%g: d and q are 0", double(tiny));
        decode(GgufType::Q8_0, bytes.data(), 32, back.data());
        EXPECT(std::count(back.begin(), back.end(), 0.f) == 32, "%g", double(tiny));
    }
}

TEST(how_far_a_format_is_from_the_values) {
    vector<float> values(32 * 64), read(values.size());
    for (size_t i = 0; i < values.size(); i++)
        values[i] = float(int(philox(1, 2, i).x[0] % 20001) - 10000) * std::ldexp(1.f, -int(i / 256) - 8);
    for (const GgufType type : {GgufType::F32, GgufType::F16, GgufType::BF16, GgufType::Q8_0}) {
        const vector<uint8_t> bytes = encode(type, values.data(), values.size());
        decode(type, bytes.data(), values.size(), read.data());
        double worst = 0;
        for (size_t i = 0; i < values.size(); i++) {
            double most = std::abs(values[i]);
            for (size_t j = i / 32 * 32; type == GgufType::Q8_0 && j < i / 32 * 32 + 32; j++)
                most = std::max<double>(most, std::abs(values[j]));
            worst = std::max(worst, std::abs(double(values[i]) - read[i]) / std::max(most, 1e-30));
        }
        const double allowed = type == GgufType::F32 ? 0 : type == GgufType::F16 ? 0x1p-11 :
                               type == GgufType::BF16 ? 0x1p-8 : 0.5 / 127 + 0x1p-11;
        EXPECT(worst <= allowed && (worst > 0) == (allowed > 0), "%s: %g of the value", name_of(type), worst);
    }
}

// ---------------------------------------------------------------------------------------------------------
// files made here

template <class T> static void put(string& out, T v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
}
static void put(string& out, const string& text) {
    put(out, uint64_t(text.size()));
    out += text;
}

// One tensor of two rows of 32 elements, in blocks of `type`.
static string one_tensor(uint32_t type, const string& data, uint64_t cols = 32, uint64_t offset = 0) {
    string file = "GGUF";
    put(file, uint32_t(3)), put(file, uint64_t(1)), put(file, uint64_t(1));
    put(file, string("general.alignment")), put(file, uint32_t(4)), put(file, uint32_t(64));
    put(file, string("x")), put(file, uint32_t(2)), put(file, cols), put(file, uint64_t(2));
    put(file, type), put(file, offset);
    file.resize((file.size() + 63) / 64 * 64);
    const string path = folder("one.gguf");
    std::ofstream(path, std::ios::binary) << file + data;
    return path;
}

TEST(every_format_of_blocks) {
    const uint16_t half = 0x3800, quarter = 0x3400;         // 0.5 and 0.25 in FP16
    struct Case { uint32_t type; string row; std::function<float(int)> value; };
    string q8, q40, q41, q50, q51, f16, b16, f32;
    put(q8, half), put(q40, half), put(q41, half), put(q41, quarter);
    const uint32_t fifth = 0x80000003;                      // of elements 0, 1 and 31
    put(q50, half), put(q50, fifth), put(q51, half), put(q51, quarter), put(q51, fifth);
    for (int i = 0; i < 32; i++) q8 += char(i - 16);
    for (int i = 0; i < 16; i++) for (string* q : {&q40, &q41, &q50, &q51}) *q += char(i | (15 - i) << 4);
    for (int i = 0; i < 32; i++)
        put(f16, uint16_t(i)), put(b16, bfloat16_bits(float(i))), put(f32, float(i) / 3);
    const auto nibble = [](int i) { return i < 16 ? i : 31 - i; };
    const auto five = [&](int i) { return nibble(i) + 16 * int(fifth >> i & 1); };
    const std::vector<Case> cases = {
        {0, f32, [](int i) { return float(i) / 3; }}, {30, b16, [](int i) { return float(i); }},
        {1, f16, [](int i) { return std::ldexp(float(i), -24); }},
        {8, q8, [](int i) { return 0.5f * float(i - 16); }},
        {2, q40, [&](int i) { return 0.5f * float(nibble(i) - 8); }},
        {3, q41, [&](int i) { return 0.5f * float(nibble(i)) + 0.25f; }},
        {6, q50, [&](int i) { return 0.5f * float(five(i) - 16); }},
        {7, q51, [&](int i) { return 0.5f * float(five(i)) + 0.25f; }}};
    for (const Case& c : cases) {
        const GgufFile file(one_tensor(c.type, string(c.row.size(), '\0') + c.row));
        std::vector<float> values(32);
        file.read(*file.find("x"), 32, 32, values.data());
        for (int i = 0; i < 32; i++)
            EXPECT(values[size_t(i)] == c.value(i), "type %u: [%d] is %g, expected %g", c.type, i,
                   double(values[size_t(i)]), double(c.value(i)));
    }
}

TEST(a_file_that_lies) {
    const auto refused = [](const string& path, const string& word) {
        const Fatal end = fatal_of([&] { GgufFile file(path); });
        EXPECT(end.code == kExitConfig && has(end.what(), word), "no '%s' in '%s'", word.c_str(),
               end.what());
    };
    refused(one_tensor(10, string(256, 'x')), "of type Q2_K (10), expected one of F32, F16");
    refused(one_tensor(77, string(256, 'x')), "of type ? (77)");
    refused(one_tensor(0, string(255, 'x')), "beyond the end");
    refused(one_tensor(8, string(68, 'x'), 31), "rows of 31");
    refused(one_tensor(8, string(68, 'x'), uint64_t(1) << 63), "beyond the end");
    refused(one_tensor(0, string(512, 'x'), 32, 4), "multiple of 64");
    refused(one_tensor(0, string(512, 'x'), 32, ~uint64_t(63)), "beyond the end");
    const auto count = [&](size_t at, uint64_t n, const string& word) {
        const string path = one_tensor(0, string(256, 'x'));
        std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(std::streamoff(at));
        file.write(reinterpret_cast<const char*>(&n), sizeof n);
        file.close();
        refused(path, word);
    };
    count(8, 1 << 20, "a count of 1048576");
    count(16, uint64_t(1) << 60, "a count of");
    count(24, uint64_t(1) << 40, "a text of");
}

// Two tensors of 8 elements, the second at `second`, in `bytes` bytes of data.
static string two_tensors(uint32_t type, uint64_t second, size_t bytes) {
    string file = "GGUF";
    put(file, uint32_t(3)), put(file, uint64_t(2)), put(file, uint64_t(0));
    for (const char* name : {"a", "b"}) {
        put(file, string(name)), put(file, uint32_t(1)), put(file, uint64_t(8)), put(file, type);
        put(file, *name == 'a' ? uint64_t(0) : second);
    }
    file.resize((file.size() + 31) / 32 * 32);
    const string path = folder("two.gguf");
    std::ofstream(path, std::ios::binary) << file + string(bytes, 'x');
    return path;
}

TEST(tensors_tile_the_file) {
    const auto refused = [](const string& path, const string& word) {
        const Fatal end = fatal_of([&] { GgufFile file(path); });
        EXPECT(end.code == kExitConfig && has(end.what(), word), "no '%s' in '%s'", word.c_str(), end.what());
    };
    GgufFile file(two_tensors(0, 32, 64));
    EXPECT(GgufFile(two_tensors(1, 32, 48)).tensors.size() == 2, "without the padding at the end");
    refused(two_tensors(0, 0, 64),
            "\"b\" begins at byte 0 of the data, expected 32, where \"a\" of type F32 ends");
    refused(two_tensors(0, 64, 96), "begins at byte 64 of the data, expected 32");
    refused(two_tensors(0, 32, 128), "128 bytes of data, but \"b\" of type F32 ends at 64");
    refused(one_tensor(1, string(256, 'x')), "256 bytes of data, but \"x\" of type F16 ends at 128");
}

// Blocks of 256 packed here from integers q, and s and m of each run.
TEST(blocks_of_256) {
    const float d = 0.5f, e = 0.25f;
    const auto random = [](int i, int most) { return int(philox(7, 3, uint64_t(i)).x[0] % uint32_t(most)); };
    for (const int bits : {4, 5, 6}) {
        vector<uint8_t> block(bits == 4 ? 144 : bits == 5 ? 176 : 210);
        vector<int> q(256), s(16), m(8);
        for (int i = 0; i < 256; i++) q[size_t(i)] = random(i, 1 << bits);
        for (int i = 0; i < 16; i++)
            s[size_t(i)] = bits == 6 ? random(300 + i, 256) - 128 : random(300 + i, 64);
        for (int i = 0; i < 8; i++) m[size_t(i)] = random(400 + i, 64);
        const auto set = [&](size_t at, int value, int shift) { block[at] |= uint8_t(value << shift); };
        const auto half_at = [&](size_t at, float v) {
            const half h = half_of(v);
            memcpy(&block[at], &h, sizeof h);
        };
        if (bits == 6) half_at(208, d);
        else half_at(0, d), half_at(2, e);
        for (size_t j = 0; bits == 6 && j < 16; j++) block[192 + j] = uint8_t(int8_t(s[j]));
        for (size_t j = 0; bits < 6 && j < 8; j++) {            // 6 bits of each in 12 bytes
            const size_t low = 4 + j % 4;
            if (j < 4) set(low, s[j], 0), set(low + 4, m[j], 0);
            else set(low + 8, s[j] & 15, 0), set(low + 8, m[j] & 15, 4),
                 set(low, s[j] >> 4, 6), set(low + 4, m[j] >> 4, 6);
        }
        for (size_t i = 0; i < 256; i++) {
            const size_t pair = i / 64, at = i % 32, half = i / 128, run = i / 32 % 4;
            if (bits == 6) {
                set(64 * half + 32 * (run % 2) + at, q[i] & 15, run < 2 ? 0 : 4);
                set(128 + 32 * half + at, q[i] >> 4, int(2 * run));
                continue;
            }
            set((bits == 5 ? 48 : 16) + 32 * pair + at, q[i] & 15, i / 32 % 2 ? 4 : 0);
            if (bits == 5) set(16 + at, q[i] >> 4, int(i / 32));
        }
        vector<float> values(256);
        decode(GgufType(8 + bits), block.data(), 256, values.data());
        for (size_t i = 0; i < 256; i++) {
            const float expected = bits == 6 ? d * float(s[i / 16] * (q[i] - 32))
                                             : d * float(s[i / 32] * q[i]) - e * float(m[i / 32]);
            EXPECT(values[i] == expected, "Q%d_K: [%zu] is %g, expected %g", bits, i, double(values[i]),
                   double(expected));
        }
    }
}
