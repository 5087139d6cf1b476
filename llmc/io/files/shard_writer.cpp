#include "llmc/io/files/shard_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"

inline namespace files {

static std::string shard_path(const std::string& prefix, size_t number) {
    return fmt::format("{}_{:06}.bin", prefix, number);
}

ShardWriter::ShardWriter(std::string prefix, uint32_t vocab, uint64_t tokenizer_hash, uint64_t shard_tokens,
                         std::optional<uint32_t> eot)
    : prefix(std::move(prefix)), vocab(vocab), tokenizer_hash(tokenizer_hash), shard_tokens(shard_tokens),
      eot(eot), id_bytes(vocab <= 65536 ? 2 : 4) {
    CHECK(shard_tokens >= 1 && shard_tokens <= kMaxShardTokens, "shards of {} tokens",
          shard_tokens);
}

template <class Id> static uint32_t largest_of(std::span<const Id> ids, uint32_t largest) {
    Id m = 0;
    for (const Id id : ids) m = std::max(m, id);
    return std::max(largest, uint32_t(m));
}

template <class Id, class F> static void split(ShardWriter& w, std::span<const Id> ids, F&& append_bytes) {
    CHECK(w.id_bytes == sizeof(Id), "ids of {} bytes into shards of {}", sizeof(Id), w.id_bytes);
    while (!ids.empty()) {
        const auto head = ids.first(std::min<uint64_t>(ids.size(), w.shard_tokens - w.tokens));
        w.largest = largest_of(head, w.largest);
        if (w.eot) append_starts(head, *w.eot, w.tokens, w.starts);
        append_bytes(head.data(), head.size());
        ids = ids.subspan(head.size());
    }
}

void ShardWriter::append(std::span<const uint16_t> ids) {
    split(*this, ids, [&](const void* data, uint64_t n) { append_bytes(data, n); });
}

void ShardWriter::append(std::span<const uint32_t> ids) {
    split(*this, ids, [&](const void* data, uint64_t n) { append_bytes(data, n); });
}

void ShardWriter::append_bytes(const void* ids, uint64_t count) {
    if (pending.empty()) {
        const std::string path = shard_path(prefix, paths.size());
        check_output("--out", path, "");
        pending.emplace_back(path + kUnfinished);
        paths.push_back(path);
        const char header[kShardHeaderBytes] = {};      // filled in by close_shard()
        pending[0].write(header, sizeof header);
    }
    pending[0].write(ids, count * uint64_t(id_bytes));
    tokens += count;
    if (tokens == shard_tokens) close_shard();
}

void ShardWriter::close_shard() {
    const bool narrow = id_bytes == 2;
    const ShardHeader header = {
        .magic = narrow ? kShardMagic16 : kShardMagic32,
        .version = narrow ? kShardVersion16 : kShardVersion32,
        .tokens = int32_t(tokens), .vocab = int32_t(vocab), .largest = int32_t(largest),
        .hash_low = int32_t(uint32_t(tokenizer_hash)), .hash_high = int32_t(uint32_t(tokenizer_hash >> 32)),
        .zeros = {}};
    pwrite_all(pending[0].fd.fd, &header, sizeof header, 0, pending[0].path);
    pending[0].commit(false);       // shards can be made again; a sync would cost more than the encoding
    pending.clear();
    if (eot && tokens >= indexed_tokens) {
        indexes.push_back(index_path(paths.back()));
        NewFile index(indexes.back() + kUnfinished);
        const std::string text = index_text({.eot = int32_t(*eot), .starts = std::move(starts)}, tokens);
        index.write(text.data(), text.size());
        index.commit(false);
    }
    starts.clear();
    total += tokens;
    tokens = largest = 0;
}

void ShardWriter::close() { if (!pending.empty()) close_shard(); }

void publish(std::span<const ShardWriter> halves) {
    const auto appears = [](const std::string& path) {
        CHECK_INPUT(rename((path + kUnfinished).c_str(), path.c_str()) == 0, "{}{}: cannot be renamed: {}",
                    path, kUnfinished, strerror(errno));
    };
    for (const ShardWriter& w : halves)
        for (const auto* files : {&w.paths, &w.indexes})
            for (const std::string& path : *files) appears(path);
}

}  // namespace files
