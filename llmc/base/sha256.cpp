#include "llmc/base/sha256.h"

#include <bit>
#include <string>

inline namespace base {

static constexpr size_t kBlock = 64;        // bytes

static constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t word_at(const char* bytes) {
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) word = word << 8 | uint8_t(bytes[i]);
    return word;
}

// Section 6.2.2 of the standard.
static void add_block(uint32_t (&hash)[8], const char* block) {
    uint32_t w[64];
    for (int t = 0; t < 16; t++) w[t] = word_at(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        const uint32_t x = w[t - 15], y = w[t - 2];
        const uint32_t s0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3;
        const uint32_t s1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = std::to_array(hash);
    for (int t = 0; t < 64; t++) {
        const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
        const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[t] + w[t];
        const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
        const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    const uint32_t after[] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) hash[i] += after[i];
}

Sha256 sha256(std::string_view data) {
    uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const size_t whole = data.size() / kBlock * kBlock;
    sha256_bytes += data.size();
    for (size_t at = 0; at < whole; at += kBlock) add_block(hash, data.data() + at);
    std::string rest(data.substr(whole));
    rest += char(0x80);
    rest.append((kBlock + 56 - rest.size() % kBlock) % kBlock, 0);
    for (int shift = 56; shift >= 0; shift -= 8) rest += char(uint64_t(data.size()) * 8 >> shift);
    for (size_t at = 0; at < rest.size(); at += kBlock) add_block(hash, rest.data() + at);
    Sha256 bytes;
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(hash[i / 4] >> (24 - 8 * (i % 4)));
    return bytes;
}

static std::string_view view_of(const Sha256& hash) {
    return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

Sha256 hmac_sha256(std::string_view key, std::string_view data) {
    std::string inner(key.size() > kBlock ? view_of(sha256(key)) : key);
    inner.resize(kBlock, 0);
    std::string outer = inner;
    for (char& c : inner) c = char(c ^ 0x36);
    for (char& c : outer) c = char(c ^ 0x5c);
    const Sha256 hash = sha256(inner.append(data));
    return sha256(outer.append(view_of(hash)));
}

bool same_hash(const Sha256& a, const Sha256& b) {
    unsigned different = 0;
    for (size_t i = 0; i < a.size(); i++) different |= unsigned(a[i] ^ b[i]);
    return different == 0;
}

}  // namespace base
