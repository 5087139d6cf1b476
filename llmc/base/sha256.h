// SHA-256 (FIPS 180-4) and its keyed hash, HMAC (RFC 2104).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

inline namespace base {

using Sha256 = std::array<uint8_t, 32>;

inline thread_local uint64_t sha256_bytes = 0;     // hashed by this thread so far; tests count
Sha256 sha256(std::string_view data);
Sha256 hmac_sha256(std::string_view key, std::string_view data);

// Takes the same time for every difference.
bool same_hash(const Sha256& a, const Sha256& b);

}  // namespace base
