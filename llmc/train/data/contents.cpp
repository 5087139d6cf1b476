#include "llmc/train/data/contents.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/terminal.h"

inline namespace data {

FileContent content_of(const std::string& path, int fd, uint64_t begin, uint64_t end, uint64_t size) {
    const uint64_t bytes = end - begin;
    const uint64_t blocks = bytes <= kHashedWhole ? 1 : kHashedBlocks;
    const size_t block = size_t(bytes <= kHashedWhole ? bytes : kHashedBlock);
    std::vector<char> read(block * blocks);
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t at = blocks == 1 ? 0 : (bytes - block) / (blocks - 1) * i;
        const bool last = blocks > 1 && i + 1 == blocks;
        pread_all(fd, read.data() + i * block, block, begin + (last ? bytes - block : at), path);
        beat();
    }
    return {.name = std::filesystem::path(path).filename(), .size = size,
            .hash = XXH3_64bits_withSeed(read.data(), read.size(), bytes)};
}

FileContent content_of_file(const std::string& path) {
    const Fd file = open_read(path);
    const uint64_t bytes = size_of_file(file.fd, path);
    return content_of(path, file.fd, 0, bytes, bytes);
}

std::vector<FileContent> contents_of(const Dataset& set, const std::function<void()>& read) {
    std::vector<FileContent> all;
    for (size_t s = 0; s < set.streams.size(); s++)
        for (const ShardFile& shard : set.streams[s].shards) {
            const ShardInfo& info = shard.info;
            const uint64_t begin = kShardHeaderBytes, bytes = info.tokens * uint64_t(info.id_bytes);
            all.push_back(content_of(info.path, shard.fd.fd, begin, begin + bytes, info.tokens));
            all.back().corpus = s;
            if (read) read();
        }
    return all;
}

bool same_contents(const std::vector<FileContent>& a, const std::vector<FileContent>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const FileContent& x, const FileContent& y) { return x.same(y); });
}

std::string described(const std::vector<FileContent>& files, const std::vector<FileContent>& other) {
    uint64_t size = 0;
    for (const FileContent& f : files) size += f.size;
    std::string text = counted(int64_t(files.size()), "file") + " of " + grouped(int64_t(size));
    for (size_t i = 0; i < std::min(files.size(), other.size()); i++)
        if (!files[i].same(other[i]))
            return text + fmt::format(", {} {:08x}", for_terminal(files[i].name), files[i].hash >> 32);
    return text;
}

Json json_of(const Contents& contents) {
    Json::Members all;
    for (const auto& [key, files] : contents) {
        Json::List list;
        for (const FileContent& f : files)
            list.push_back(Json::Members{{"name", f.name}, {"size", f.size},
                                         {"xxh3", fmt::format("{:016x}", f.hash)}, {"corpus", f.corpus}});
        all.emplace_back(key, std::move(list));
    }
    return all;
}

static FileContent content_of_json(const Json& v) {
    const std::string hash = v.at("xxh3").string();
    if (hash.size() != 16 || hash.find_first_not_of("0123456789abcdef") != hash.npos)
        throw std::runtime_error("a malformed hash of data");
    return {.name = v.at("name").string(), .size = v.at("size").natural(),
            .hash = std::stoull(hash, nullptr, 16), .corpus = v.at("corpus").natural()};
}

Contents contents_of_json(const Json* v) {
    Contents contents;
    if (!v) return contents;
    for (const auto& [key, files] : v->members()) {
        contents[key] = {};
        for (const Json& f : files.list()) contents[key].push_back(content_of_json(f));
    }
    return contents;
}

}  // namespace data
