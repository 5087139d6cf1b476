// Token shards for tests, written here by hand rather than by the project's writer.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "llmc/base/numbers/rng.h"
#include "test/test.h"

namespace test {

struct ShardHeader {
    uint32_t vocab = 0, largest = 0;     // 0: llm.c's, which does not say
    uint64_t hash = 0;
    int id_bytes = 2;
};

inline void write_header(FILE* f, uint64_t tokens, const ShardHeader& h) {
    int32_t header[256] = {h.id_bytes == 2 ? 20240520 : 20240801,
                           h.id_bytes == 2 ? 1 : 7,
                           int32_t(tokens),
                           int32_t(h.vocab),
                           int32_t(h.largest),
                           int32_t(uint32_t(h.hash)),
                           int32_t(uint32_t(h.hash >> 32))};
    fwrite(header, 1, sizeof header, f);
}

inline std::string write_shard(const std::string& path, const std::vector<int32_t>& ids,
                               const ShardHeader& h = {}) {
    FILE* f = fopen(path.c_str(), "wb");
    CHECK(f, "cannot write {}", path);
    write_header(f, ids.size(), h);
    for (const int32_t id : ids) fwrite(&id, 1, size_t(h.id_bytes), f);     // little endian
    fclose(f);
    return path;
}

inline std::vector<int32_t> random_ids(size_t count, int vocab, uint64_t seed = 1) {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < count; i++) ids[i] = int32_t(philox(seed, 0, i).x[0] % uint32_t(vocab));
    return ids;
}

// A sequence to learn: mostly a fixed map, some noise.
inline std::vector<int32_t> learnable_ids(size_t count, int vocab, uint64_t seed = 1) {
    std::vector<int32_t> ids = random_ids(count, vocab, seed);
    for (size_t i = 1; i < count; i++)
        if (philox(seed, 1, i).x[0] % 5) ids[i] = (ids[i - 1] * 5 + 3) % vocab;
    return ids;
}

// What a refused file or setting has to be told with.
inline void expect_words(const char* what, const Fatal& e, const std::vector<std::string>& words) {
    EXPECT(e.code == kExitConfig, "%s: code %d, '%s'", what, e.code, e.what());
    for (const std::string& w : words)
        EXPECT(strstr(e.what(), w.c_str()), "%s: no '%s' in '%s'", what, w.c_str(), e.what());
}

}  // namespace test
