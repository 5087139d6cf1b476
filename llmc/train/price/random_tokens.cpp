#include "llmc/train/price/random_tokens.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/disk/output_file.h"

inline namespace price {

Dataset random_tokens(const ModelConfig& m, size_t count) {
    const uint32_t eot = uint32_t(std::max(2, m.vocab)) - 1;
    const size_t document = std::max<size_t>(1, size_t(m.context) / 4);
    std::vector<uint32_t> ids(kShardHeaderBytes / sizeof(uint32_t) + count);
    const int32_t header[] = {kShardMagic32, kShardVersion32, int32_t(count), m.vocab, int32_t(eot)};
    memcpy(ids.data(), header, sizeof header);
    uint32_t* const tokens = ids.data() + kShardHeaderBytes / sizeof(uint32_t);
    uint32_t h = 1;
    for (size_t i = 0; i < count; i++) {
        h = h * 1664525 + 1013904223;
        const bool begins = m.document_mask && i % document == 0;
        tokens[i] = begins ? eot : (h >> 8) % eot;
    }
    const std::string path =
        fmt::format("{}/train_gpt_{}.bin", std::filesystem::temp_directory_path().string(), int(getpid()));
    write_file(path, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]});
    Dataset set = open_dataset("data.train", {{path}}, m.context, 1, true,
                               {.kind = RowKind::Stream, .eot = eot, .masks = m.document_mask});
    validate_ids(set, m.vocab);
    unlink(path.c_str());
    return set;
}

}  // namespace price
