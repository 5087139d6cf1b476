#include "llmc/io/files/shard.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "llmc/base/check.h"

static uint64_t join(int32_t low, int32_t high) { return uint64_t(uint32_t(high)) << 32 | uint32_t(low); }

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
    if (starts("\xe0\xda\x34\x01"))
        return "this is the index of a shard's documents: name the .bin beside it";
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

static void check_magic(const std::string& path, std::string_view head, int32_t magic, int32_t version) {
    const bool known = magic == kShardMagic16 || magic == kShardMagic32;
    CHECK_INPUT(known && head.size() == kShardHeaderBytes,
                "{}: not a token shard: expected magic {} or {} and a header of {} bytes, found {} in a "
                "file of {}{} bytes\n"
                "       {}",
                path, kShardMagic16, kShardMagic32, kShardHeaderBytes, magic,
                head.size() == kShardHeaderBytes ? "at least " : "", head.size(), looks_like(head));
    const int32_t expected = magic == kShardMagic16 ? kShardVersion16 : kShardVersion32;
    CHECK_INPUT(version == expected, "{}: a token shard of version {}, expected version {} for magic {}",
                path, version, expected, magic);
}

// The fields that llm.c leaves zero.
static void read_ours(const ShardHeader& header, ShardInfo& info) {
    const std::string& path = info.path;
    const int32_t vocab = header.vocab, largest = header.largest;
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
    info.tokenizer_hash = join(header.hash_low, header.hash_high);
}

std::vector<std::string> shard_files(const std::string& glob) {
    std::vector<std::string> paths = glob_files(glob);
    std::erase_if(paths, [&](const std::string& p) { return p.ends_with(kIndexSuffix) && p != glob; });
    return paths;
}

ShardFile open_shard_file(const std::string& path) {
    ShardFile s{open_read(path), {.path = path}};
    const uint64_t size = size_of_file(s.fd.fd, path);
    ShardHeader header = {};
    const size_t have = std::min<uint64_t>(size, kShardHeaderBytes);
    pread_all(s.fd.fd, &header, have, 0, path);
    check_magic(path, {reinterpret_cast<const char*>(&header), have}, header.magic,
                header.version);

    ShardInfo& info = s.info;
    info.id_bytes = header.magic == kShardMagic16 ? 2 : 4;
    CHECK_INPUT(header.tokens >= 0, "{}: the header says {} tokens: the file is damaged", path,
                header.tokens);
    info.tokens = uint64_t(header.tokens);
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
