#include "llmc/io/files/document_index.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"

inline namespace files {

constexpr int32_t kIndexMagic = 20241120, kIndexVersion = 1;
namespace {
struct IndexHeader { int32_t magic, version, tokens, documents, eot, zero; uint32_t hash[2]; };
static_assert(sizeof(IndexHeader) == kIndexHeaderBytes);
}  // namespace

static uint64_t hash_of(const std::vector<uint32_t>& starts) {
    return XXH3_64bits(starts.data(), starts.size() * sizeof starts[0]);
}

std::string index_path(const std::string& shard) {
    const std::string_view end = ".bin";
    return (shard.ends_with(end) ? shard.substr(0, shard.size() - end.size()) : shard) + kIndexSuffix;
}

std::string index_text(const DocumentIndex& index, uint64_t tokens) {
    const uint64_t hash = hash_of(index.starts);
    const IndexHeader header = {kIndexMagic, kIndexVersion, int32_t(tokens), int32_t(index.starts.size()),
                                index.eot, 0, {uint32_t(hash), uint32_t(hash >> 32)}};
    std::string text(reinterpret_cast<const char*>(&header), sizeof header);
    return text.append(reinterpret_cast<const char*>(index.starts.data()),
                       index.starts.size() * sizeof index.starts[0]);
}

// Blocks without an end-of-text, which are most, are passed at the speed of vectors.
template <class Id>
static void append_places(std::span<const Id> ids, uint32_t eot, uint64_t at, std::vector<uint32_t>& starts) {
    const Id wanted = Id(eot);
    if (wanted != eot) return;
    for (size_t begin = 0; begin < ids.size();) {
        const size_t end = std::min<size_t>(ids.size(), begin + 256);
        Id differs = Id(~Id(0));        // 0 where some id is the one
        for (size_t i = begin; i < end; i++) differs = std::min(differs, Id(ids[i] ^ wanted));
        for (size_t i = begin; i < end && !differs; i++)
            if (ids[i] == wanted) starts.push_back(uint32_t(at + i));
        begin = end;
    }
}

void append_starts(std::span<const uint16_t> ids, uint32_t eot, uint64_t at, std::vector<uint32_t>& starts) {
    append_places(ids, eot, at, starts);
}
void append_starts(std::span<const uint32_t> ids, uint32_t eot, uint64_t at, std::vector<uint32_t>& starts) {
    append_places(ids, eot, at, starts);
}

template <class Id>
static void scan(const ShardFile& shard, const std::function<void(uint64_t)>& read, DocumentIndex& index) {
    std::vector<Id> ids(1 << 19);
    for (uint64_t at = 0; at < shard.info.tokens; at += ids.size()) {
        const size_t n = size_t(std::min<uint64_t>(ids.size(), shard.info.tokens - at));
        pread_all(shard.fd.fd, ids.data(), n * sizeof(Id), kShardHeaderBytes + at * sizeof(Id),
                  shard.info.path);
        append_places<Id>({ids.data(), n}, uint32_t(index.eot), at, index.starts);
        if (read) read(n * sizeof(Id));
    }
}

DocumentIndex scan_documents(const ShardFile& shard, int32_t eot, const std::function<void(uint64_t)>& read) {
    DocumentIndex index{.eot = eot, .starts = {}};
    if (shard.info.id_bytes == 2) scan<uint16_t>(shard, read, index);
    else scan<uint32_t>(shard, read, index);
    return index;
}

static constexpr const char* kRemedy = "remove the file, and the shard is read through for its documents";

void compare_index(const DocumentIndex& index, const ShardFile& shard,
                   const std::function<void(uint64_t)>& read) {
    const auto there = scan_documents(shard, index.eot, read).starts;
    const auto [said, found] =
        std::mismatch(index.starts.begin(), index.starts.end(), there.begin(), there.end());
    if (said == index.starts.end() && found == there.end()) return;
    const auto place = [](const auto& at, const auto& starts) {
        return at == starts.end() ? std::string("nowhere") : fmt::format("at token {}", *at);
    };
    CHECK_INPUT(false, "{}: document {} begins {}, but end-of-text {} stands {} in {}; {}",
                index_path(shard.info.path), said - index.starts.begin(), place(said, index.starts),
                index.eot, place(found, there), shard.info.path, kRemedy);
}

static void check_header(const std::string& path, const IndexHeader& h, uint64_t size, const ShardInfo& s) {
    CHECK_INPUT(size < sizeof h || memcmp(&h, "MMIDIDX", 7) != 0,
                "{}: the index of Megatron's data, not of the documents of {}; {}", path, s.path, kRemedy);
    CHECK_INPUT(size >= sizeof h && h.magic == kIndexMagic && h.version == kIndexVersion,
                "{}: no index of documents: expected magic {}, version {} and a header of {} bytes, found {} "
                "and {} in {} bytes; {}", path, kIndexMagic, kIndexVersion, sizeof h, h.magic, h.version,
                size, kRemedy);
    CHECK_INPUT(uint64_t(h.tokens) == s.tokens,
                "{}: the index of a shard of {} tokens, but {} has {}; {}", path, h.tokens, s.path, s.tokens,
                kRemedy);
    const uint64_t documents = uint64_t(uint32_t(h.documents)), expected = sizeof h + 4 * documents;
    CHECK_INPUT(h.documents >= 0 && documents <= s.tokens,
                "{}: the header says {} documents in {} tokens; {}", path, h.documents, s.tokens, kRemedy);
    CHECK_INPUT(size == expected, "{}: {}: {} documents make {} bytes, the file has {}; {}", path,
                size < expected ? "truncated" : "too long", documents, expected, size, kRemedy);
}

static void check_starts(const std::string& path, const DocumentIndex& index, const ShardFile& shard) {
    const auto& starts = index.starts;
    const size_t n = starts.size();
    for (size_t d = 1; d < n; d++)
        CHECK_INPUT(starts[d - 1] < starts[d],
                    "{}: document {} begins at token {}, but the one before at {}; {}", path, d, starts[d],
                    starts[d - 1], kRemedy);
    CHECK_INPUT(n == 0 || starts.back() < shard.info.tokens,
                "{}: a document begins at token {} of a shard of {}; {}", path, starts.back(),
                shard.info.tokens, kRemedy);
    const size_t looks = std::min<size_t>(n, 64);
    for (size_t k = 0; k < looks; k++) {            // the first and the last among them
        const size_t d = looks == 1 ? 0 : k * (n - 1) / (looks - 1);
        int32_t id;
        read_tokens(shard, starts[d], 1, &id);
        CHECK_INPUT(id == index.eot,
                    "{}: a document begins at token {} of {}, which is id {}, not end-of-text {}; {}", path,
                    starts[d], shard.info.path, id, index.eot, kRemedy);
    }
}

std::optional<DocumentIndex> read_index(const ShardFile& shard) {
    const std::string path = index_path(shard.info.path);
    if (!file_exists(path)) return std::nullopt;
    const Fd fd = open_read(path);
    const uint64_t size = size_of_file(fd.fd, path);
    IndexHeader header = {};
    pread_all(fd.fd, &header, std::min<uint64_t>(size, sizeof header), 0, path);
    check_header(path, header, size, shard.info);
    DocumentIndex index{.eot = header.eot, .starts = std::vector<uint32_t>(size_t(header.documents))};
    pread_all(fd.fd, index.starts.data(), index.starts.size() * 4, sizeof header, path);
    const uint64_t hash = uint64_t(header.hash[1]) << 32 | header.hash[0];
    CHECK_INPUT(hash_of(index.starts) == hash,
                "{}: damaged: its offsets have the hash {:016x}, the header says {:016x}; {}", path,
                hash_of(index.starts), hash, kRemedy);
    check_starts(path, index, shard);
    return index;
}

}  // namespace files
