// 64 bytes at a time, compared at once: bit i of a result is of byte i.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AVX512BW__) || defined(__AVX2__)
#include <immintrin.h>
#endif

inline namespace unicode {

constexpr size_t kBlock = 64;

#if defined(__AVX512BW__)

struct Block {
    __m512i c;

    explicit Block(const char* s) : c(_mm512_loadu_si512(s)) {}
    explicit Block(__m512i c) : c(c) {}
    void store(char* to) const { _mm512_storeu_si512(to, c); }
    Block with_bits(char bits) const { return Block(_mm512_or_si512(c, _mm512_set1_epi8(bits))); }
    uint64_t is(char x) const { return _mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8(x)); }
    uint64_t among(uint8_t first, uint8_t count) const {      // first, first + 1, ...
        return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(c, _mm512_set1_epi8(char(first))),
                                      _mm512_set1_epi8(char(count)));
    }
    uint64_t high() const { return _mm512_movepi8_mask(c); }    // not ASCII
};

#elif defined(__AVX2__)

struct Block {
    __m256i c[2];

    explicit Block(const char* s) {
        for (int i = 0; i < 2; i++) c[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + 32 * i));
    }
    void store(char* to) const {
        for (int i = 0; i < 2; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32 * i), c[i]);
    }
    template <class F> uint64_t bits(F&& f) const {
        const auto half = [&](int i) { return uint64_t(uint32_t(_mm256_movemask_epi8(f(c[i])))); };
        return half(0) | half(1) << 32;
    }
    Block with_bits(char bits) const {
        Block b = *this;
        for (__m256i& half : b.c) half = _mm256_or_si256(half, _mm256_set1_epi8(bits));
        return b;
    }
    uint64_t is(char x) const {
        return bits([&](__m256i v) { return _mm256_cmpeq_epi8(v, _mm256_set1_epi8(x)); });
    }
    uint64_t among(uint8_t first, uint8_t count) const {
        return bits([&](__m256i v) {
            const __m256i d = _mm256_sub_epi8(v, _mm256_set1_epi8(char(first)));
            return _mm256_cmpeq_epi8(_mm256_min_epu8(d, _mm256_set1_epi8(char(count - 1))), d);
        });
    }
    uint64_t high() const { return bits([](__m256i v) { return v; }); }
};

#else

struct Block {
    uint8_t c[kBlock];

    explicit Block(const char* s) { memcpy(c, s, kBlock); }
    void store(char* to) const { memcpy(to, c, kBlock); }
    Block with_bits(char bits) const {
        Block b = *this;
        for (uint8_t& x : b.c) x |= uint8_t(bits);
        return b;
    }
    template <class F> uint64_t bits(F&& f) const {
        uint64_t all = 0;
        for (size_t i = 0; i < kBlock; i++) all |= uint64_t(f(c[i])) << i;
        return all;
    }
    uint64_t is(char x) const { return bits([&](uint8_t b) { return b == uint8_t(x); }); }
    uint64_t among(uint8_t first, uint8_t count) const {
        return bits([&](uint8_t b) { return uint8_t(b - first) < count; });
    }
    uint64_t high() const { return bits([](uint8_t b) { return b >> 7; }); }
};

#endif

}  // namespace unicode
