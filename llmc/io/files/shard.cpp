#include "llmc/io/files/shard.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "llmc/base/check.h"

inline namespace files {

static uint64_t join(int32_t low, int32_t high) { return uint64_t(uint32_t(high)) << 32 | uint32_t(low); }

template <class Id> static std::vector<Id> ids_in(std::string_view bytes) {
    std::vector<Id> ids(bytes.size() / sizeof(Id));
    memcpy(ids.data(), bytes.data(), ids.size() * sizeof(Id));
    return ids;
}

// Whether every second number is below `limit`.
template <class Id> static bool every_second_below(const std::vector<Id>& ids, Id limit) {
    for (size_t i = 1; i < ids.size(); i += 2)
        if (ids[i] >= limit) return false;
    return true;
}

// The upper half of an id of 32 bits.
constexpr uint16_t kUpperHalf = kMaxVocabulary >> 16;

// Bytes of the ids that the head of a file may be; 0: none. GPT-2's ids end at 50,256. Random bytes pass with
// a chance of 10^-59.
static int bytes_of_ids(std::string_view head) {
    if (head.size() < 32) return 0;
    const auto narrow = ids_in<uint16_t>(head);
    const auto wide = ids_in<uint32_t>(head);
    if (every_second_below<uint16_t>(narrow, kUpperHalf))
        return every_second_below<uint32_t>(wide, 1) ? 8 : 4;
    return std::all_of(narrow.begin(), narrow.end(), [](uint16_t id) { return id <= 50256; }) ? 2 : 0;
}

// The type of an array's elements, as NumPy's header says: '<i4'.
static std::string numpy_type(std::string_view head) {
    const size_t key = head.find("'descr'"), begin = head.find('\'', key + 7);
    if (key == head.npos || begin == head.npos) return "an unknown type";
    return std::string(head.substr(begin + 1, std::min<size_t>(head.find('\'', begin + 1) - begin - 1, 20)));
}

// Kind of a file that is no shard, with the remedy.
static std::string looks_like(std::string_view head) {
    const int id_bytes = bytes_of_ids(head);
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
        return fmt::format(
            "this is an array of NumPy, of {}: data/README.md has the lines that make shards of it",
            numpy_type(head));
    if (starts("mmididx"))
        return "this is the index of Megatron's data, whose ids are in the .bin beside it: data/README.md "
               "has the "
               "lines that make shards of it";
    if (starts("par1"))
        return "this is a Parquet table: write its column of text as .jsonl and make shards with ./tokenize "
               "encode (data/README.md)";
    const bool text = std::all_of(head.begin(), head.end(),
                                  [](char c) { return c >= 32 || c == '\n' || c == '\t' || c < 0; });
    if (text && !head.empty()) return "this looks like text: make shards of it with ./tokenize encode";
    if (id_bytes)
        return fmt::format(
            "this looks like ids of {} bytes without a header, as {} writes them: data/README.md has "
            "the lines that make shards of it",
            id_bytes, id_bytes == 2 ? "nanoGPT" : "Megatron");
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

// Refuses a size that contradicts the header.
static void check_size(const ShardInfo& s, uint64_t size) {
    const int other = s.id_bytes == 2 ? 4 : 2;
    const auto expected = [&](int id_bytes) { return kShardHeaderBytes + s.tokens * uint64_t(id_bytes); };
    CHECK_INPUT(
        s.tokens == 0 || size != expected(other),
        "{}: the header's magic says ids of {} bytes, but {} tokens in {} bytes have ids of {} bytes: "
        "these need magic {}, version {}",
        s.path, s.id_bytes, s.tokens, size, other, other == 4 ? kShardMagic32 : kShardMagic16,
        other == 4 ? kShardVersion32 : kShardVersion16);
    CHECK_INPUT(size == expected(s.id_bytes),
                "{}: {}: header says {} tokens = {} bytes, file has {}\n       copy or make it again", s.path,
                size < expected(s.id_bytes) ? "truncated" : "too long", s.tokens, expected(s.id_bytes), size);
}

// Refuses ids of 4 bytes that are counted as twice as many of 2: every second one is an upper half.
static void check_width(const ShardFile& shard) {
    const ShardInfo& s = shard.info;
    std::vector<int32_t> ids(size_t(std::min<uint64_t>(s.tokens, 512)));
    if (s.id_bytes != 2 || s.vocab || ids.size() < 64) return;
    read_tokens(shard, 0, ids.size(), ids.data());
    CHECK_INPUT(
        !every_second_below<int32_t>(ids, kUpperHalf) || *std::max_element(ids.begin(), ids.end()) < 256,
        "{}: the header's magic says ids of 2 bytes, but every second one is below {}: these are ids of 4 "
        "bytes, which need magic {}, version {} and half the count (data/README.md has lines that write it)",
        s.path, kUpperHalf, kShardMagic32, kShardVersion32);
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
    check_size(info, size);
    read_ours(header, info);
    check_width(s);
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

}  // namespace files
