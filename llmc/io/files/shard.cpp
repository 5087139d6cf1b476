#include "llmc/io/files/shard.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "llmc/base/check.h"

constexpr int32_t kMagic16 = 20240520, kVersion16 = 1, kMagic32 = 20240801, kVersion32 = 7;
enum {
    kMagic, kFormat, kCount, kVocab, kLargest, kHashLow, kHashHigh, kFields = 256
};

static uint64_t join(int32_t low, int32_t high) { return uint64_t(uint32_t(high)) << 32 | uint32_t(low); }
static int32_t low_of(uint64_t v) { return int32_t(uint32_t(v)); }
static int32_t high_of(uint64_t v) { return int32_t(uint32_t(v >> 32)); }

// Whether the head may be ids of 16 bits: GPT-2's end at 50,256. Random bytes pass with a chance of 10^-59.
static bool all_ids(std::string_view head) {
    if (head.size() < 32) return false;
    std::vector<uint16_t> ids(head.size() / 2);
    memcpy(ids.data(), head.data(), ids.size() * 2);
    return std::all_of(ids.begin(), ids.end(), [](uint16_t id) { return id <= 50256; });
}

// Kind of a file that is no shard, with the remedy.
static std::string looks_like(std::string_view head) {
    auto starts = [&](std::string_view s) {
        return head.size() >= s.size() && std::equal(s.begin(), s.end(), head.begin(), [](char a, char b) {
                   return a == (b | 0x20) || a == b;
               });
    };
    while (!head.empty() && (head[0] == ' ' || head[0] == '\n' || head[0] == '\r')) head.remove_prefix(1);
    if (starts("version https://git-lfs"))
        return "this is a Git LFS pointer, not the data: run \"git lfs pull\" where it was cloned";
    if (starts("<!doctype") || starts("<html"))
        return "this is an HTML page, likely an error page saved by a download: download the file again";
    if (starts("\x1f\x8b") || starts("\x28\xb5\x2f\xfd"))
        return "this is compressed: unpack it first";
    if (starts("\x93numpy"))
        return "this is an array of NumPy: data/README.md has the lines that make shards of it";
    if (starts("par1"))
        return "this is a Parquet table: write its column of text as .jsonl and make shards with ./tokenize "
               "encode (data/README.md)";
    const bool text = std::all_of(head.begin(), head.end(),
                                  [](char c) { return c >= 32 || c == '\n' || c == '\t' || c < 0; });
    if (text && !head.empty()) return "this looks like text: make shards of it with ./tokenize encode";
    if (all_ids(head))
        return "this looks like ids of 2 bytes without a header, as nanoGPT writes them: data/README.md has "
               "the lines that make shards of it";
    return "make shards with ./tokenize encode";
}

static void check_magic(const char* path, std::string_view head, int32_t magic, int32_t version) {
    const bool known = magic == kMagic16 || magic == kMagic32;
    CHECK_INPUT(known && head.size() == kShardHeaderBytes,
                "{}: not a token shard: expected magic {} or {} and a header of {} bytes, found {} in a "
                "file of {}{} bytes\n"
                "       {}",
                path, kMagic16, kMagic32, kShardHeaderBytes, magic,
                head.size() == kShardHeaderBytes ? "at least " : "", head.size(), looks_like(head));
    const int32_t expected = magic == kMagic16 ? kVersion16 : kVersion32;
    CHECK_INPUT(version == expected, "{}: a token shard of version {}, expected version {} for magic {}",
                path, version, expected, magic);
}

// The fields that llm.c leaves zero.
static void read_ours(const int32_t* header, ShardInfo& info) {
    const char* path = info.path.c_str();
    const int32_t vocab = header[kVocab], largest = header[kLargest];
    const int32_t most = info.id_bytes == 2 ? 1 << 16 : int32_t(kMaxVocabulary);
    CHECK_INPUT(vocab >= 0 && vocab <= most,
                "{}: the header says a vocabulary of {}, expected at most {} in {}-byte ids: the file is "
                "damaged", path, vocab, most, info.id_bytes);
    CHECK_INPUT(largest >= 0 && largest <= std::max(0, vocab - 1),
                "{}: the header says largest id {} in a vocabulary of {}: the file is damaged", path, largest,
                vocab);
    if (vocab == 0) return;
    info.vocab = uint32_t(vocab);
    info.has_largest = true;
    info.largest = uint32_t(largest);
    info.tokenizer_hash = join(header[kHashLow], header[kHashHigh]);
}

ShardFile open_shard_file(const std::string& path) {
    ShardFile s{open_read(path), {.path = path}};
    const uint64_t size = size_of_file(s.fd.fd, path);
    int32_t header[kFields] = {};
    const size_t have = std::min<uint64_t>(size, kShardHeaderBytes);
    pread_all(s.fd.fd, header, have, 0, path);
    check_magic(path.c_str(), {reinterpret_cast<const char*>(header), have}, header[kMagic],
                header[kFormat]);

    ShardInfo& info = s.info;
    info.id_bytes = header[kMagic] == kMagic16 ? 2 : 4;
    CHECK_INPUT(header[kCount] >= 0, "{}: the header says {} tokens: the file is damaged", path,
                header[kCount]);
    info.tokens = uint64_t(header[kCount]);
    const uint64_t expected = kShardHeaderBytes + info.tokens * uint64_t(info.id_bytes);
    CHECK_INPUT(size == expected,
                "{}: {}: header says {} tokens = {} bytes, file has {}\n       copy or make it again",
                path, size < expected ? "truncated" : "too long", info.tokens,
                expected, size);
    read_ours(header, info);
    return s;
}

void read_tokens(const ShardFile& shard, uint64_t first, uint64_t count, int32_t* out) {
    const ShardInfo& s = shard.info;
    CHECK(first <= s.tokens && count <= s.tokens - first, "{}: tokens {} + {} of {}", s.path,
          first, count, s.tokens);
    const uint64_t offset = kShardHeaderBytes + first * uint64_t(s.id_bytes);
    // u16 ids are read into the upper half of out and widened from its front, which never overtakes the rest.
    char* raw = reinterpret_cast<char*>(out) + (s.id_bytes == 2 ? count * 2 : 0);
    pread_all(shard.fd.fd, raw, count * uint64_t(s.id_bytes), offset, s.path);
    for (uint64_t i = 0; s.id_bytes == 2 && i < count; i++) {
        uint16_t id;
        memcpy(&id, raw + 2 * i, 2);
        out[i] = id;
    }
}

uint32_t scan_largest(const ShardFile& shard) {
    std::vector<int32_t> ids(1 << 18);
    uint32_t largest = 0;
    for (uint64_t at = 0; at < shard.info.tokens; at += ids.size()) {
        const uint64_t n = std::min<uint64_t>(ids.size(), shard.info.tokens - at);
        read_tokens(shard, at, n, ids.data());
        for (uint64_t i = 0; i < n; i++) largest = std::max(largest, uint32_t(ids[i]));
    }
    return largest;
}

static std::string shard_path(const std::string& prefix, size_t number) {
    return fmt::format("{}_{:06}.bin", prefix, number);
}

std::string replacement_mark(const std::string& prefix) { return prefix + ".replacing"; }

// PREFIX of a shard PREFIX_train_NNNNNN.bin or PREFIX_val_NNNNNN.bin; empty for other names.
static std::string set_of(const std::string& path) {
    const std::string number = "_000000.bin";
    if (path.size() < number.size()) return "";
    std::string end = path.substr(path.size() - number.size());
    std::replace_if(end.begin(), end.end(), [](char c) { return c >= '0' && c <= '9'; }, '0');
    const std::string half = path.substr(0, path.size() - number.size());
    for (const std::string_view name : {"_train", "_val"})
        if (end == number && half.ends_with(name)) return half.substr(0, half.size() - name.size());
    return "";
}

void check_sets(const std::vector<ShardInfo>& shards) {
    std::set<std::string> sets;
    for (const ShardInfo& s : shards)
        if (const std::string set = set_of(s.path); !set.empty() && sets.insert(set).second)
            CHECK_INPUT(!file_exists(replacement_mark(set)),
                        "{}: the shards do not belong together: ./tokenize encode was stopped while it "
                        "replaced the set ({} is there);\n       encode the text again", s.path,
                        replacement_mark(set));
}

ShardWriter::ShardWriter(std::string prefix, uint32_t vocab, uint64_t tokenizer_hash, uint64_t shard_tokens)
    : prefix(std::move(prefix)), vocab(vocab), tokenizer_hash(tokenizer_hash), shard_tokens(shard_tokens),
      id_bytes(vocab <= 65536 ? 2 : 4) {
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
        const auto part = ids.first(std::min<uint64_t>(ids.size(), w.shard_tokens - w.tokens));
        w.largest = largest_of(part, w.largest);
        append_bytes(part.data(), part.size());
        ids = ids.subspan(part.size());
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
    int32_t header[kFields] = {};
    header[kMagic] = id_bytes == 2 ? kMagic16 : kMagic32;
    header[kFormat] = id_bytes == 2 ? kVersion16 : kVersion32;
    header[kCount] = int32_t(tokens);
    header[kVocab] = int32_t(vocab);
    header[kLargest] = int32_t(largest);
    header[kHashLow] = low_of(tokenizer_hash), header[kHashHigh] = high_of(tokenizer_hash);
    pwrite_all(pending[0].fd.fd, header, sizeof header, 0, pending[0].path);
    pending[0].commit(false);       // shards can be made again; a sync would cost more than the encoding
    pending.clear();
    total += tokens;
    tokens = largest = 0;
}

void ShardWriter::close() { if (!pending.empty()) close_shard(); }

void publish(std::span<const ShardWriter> halves) {
    for (const ShardWriter& w : halves)
        for (const std::string& path : w.paths)
            CHECK_INPUT(rename((path + kUnfinished).c_str(), path.c_str()) == 0,
                        "{}{}: cannot be renamed: {}", path, kUnfinished, strerror(errno));
}
