// Messages of the rendezvous between ranks over TCP. Numbers are little-endian, like the machines.
//
//     rank r                                  rank 0
//     Hello, with a random number      ->
//                                      <-     Answer, with a random number and a proof
//     Shown, with a proof; its text    ->
//                                      <-     kMagic: accepted
//                                      <-     all texts: packed_texts() behind its length, and a proof
//
// A proof is an HMAC by the secret over the speaker, both random numbers, the rank and a hash of the text.
#pragma once
#include <sys/random.h>
#include <zstd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/base/sha256.h"
#include "llmc/comm/rendezvous/rendezvous.h"

inline namespace rendezvous {

inline constexpr uint32_t kLongest = 1 << 16;           // bytes of a text
inline constexpr uint64_t kMagic = stream_of("train_gpt rendezvous 4");

using Nonce = std::array<uint8_t, 16>;

struct Hello {
    uint64_t magic, job;
    int32_t rank, world;
    uint64_t has_secret;
    Nonce nonce;
};
struct Answer {
    uint64_t magic, job, has_secret;
    Nonce nonce;
    Sha256 proof;
};
struct Shown {
    Sha256 proof;
    uint32_t length;                                    // of the text that follows
};
static_assert(sizeof(Hello) == 48 && sizeof(Answer) == 72 && sizeof(Shown) == 36, "no byte is left unset");

inline Nonce new_nonce() {
    Nonce nonce;
    CHECK(getrandom(nonce.data(), nonce.size(), 0) == ssize_t(nonce.size()), "getrandom: {}",
          strerror(errno));
    return nonce;
}

// says: the speaker: "rank 0" of an Answer, "rank" of a Shown, "all" of all texts. So a proof is invalid when
// it is sent back to its sender.
inline Sha256 proof_of(const Rendezvous& r, const char* says, const Hello& h, const Nonce& answer,
                       const Sha256& of_text = {}) {
    std::string data = std::string(says) + '\n';
    data.append(reinterpret_cast<const char*>(&h), sizeof h);
    data.append(reinterpret_cast<const char*>(answer.data()), answer.size());
    data.append(reinterpret_cast<const char*>(of_text.data()), of_text.size());
    return hmac_sha256(r.secret, data);
}

// All texts, each behind its length, by zstd: rank 0 sends them to every rank, and they resemble each other.
inline std::string packed_texts(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) {
        const uint32_t n = uint32_t(text.size());
        all.append(reinterpret_cast<const char*>(&n), sizeof n);
        all += text;
    }
    std::string bytes(ZSTD_compressBound(all.size()), '\0');
    const size_t n = ZSTD_compress(bytes.data(), bytes.size(), all.data(), all.size(), ZSTD_CLEVEL_DEFAULT);
    CHECK(!ZSTD_isError(n), "zstd: {}", ZSTD_getErrorName(n));
    bytes.resize(n);
    return bytes;
}

// The texts of so many ranks; empty: the bytes are of another number.
inline std::vector<std::string> unpacked_texts(const std::string& bytes, int world) {
    const uint64_t size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
    if (size > uint64_t(world) * (sizeof(uint32_t) + kLongest)) return {};      // errors are numbers beyond
    std::string all(size_t(size), '\0');
    if (ZSTD_decompress(all.data(), all.size(), bytes.data(), bytes.size()) != all.size()) return {};
    std::vector<std::string> texts;
    uint32_t n = 0;
    for (size_t at = 0; at + sizeof n <= all.size(); at += sizeof n + n) {
        memcpy(&n, all.data() + at, sizeof n);
        if (n > all.size() - at - sizeof n) return {};
        texts.push_back(all.substr(at + sizeof n, n));
    }
    return texts.size() == size_t(world) ? texts : std::vector<std::string>();
}

// "29500, 31007", for messages.
inline std::string ports_of(const Rendezvous& r) {
    std::string text;
    for (const uint16_t p : r.ports) text += (text.empty() ? "" : ", ") + std::to_string(p);
    return text;
}

std::vector<std::string> serve(const Rendezvous& r, const std::string& own);       // rank 0's exchange()

}  // namespace rendezvous
