// Sizes and hashes of the files that a run reads. Each checkpoint has them: a resumed run refuses changed
// data under an old name, and accepts equal data under a new name.
//
// A file's hash is XXH3 of its bytes, a shard's of its ids. A file above kHashedWhole bytes is hashed in
// part: kHashedBlocks blocks, spread evenly from first to last byte. A start thus reads at most 2 MiB
// of each large shard. Time stamps do not count. A replaced, cut or shifted file differs in its size or in
// nearly every block. The hash may miss an edit of a few ids in the middle of a large shard.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llmc/base/json/json_value.h"
#include "llmc/train/data/dataset.h"

inline namespace data {

inline constexpr uint64_t kHashedWhole = 8 << 20, kHashedBlock = 64 << 10;
inline constexpr uint64_t kHashedBlocks = 32;

struct FileContent {
    std::string name;               // without folder
    uint64_t size = 0;              // tokens of a shard, ids of a tokenizer, bytes of a task
    uint64_t hash = 0;
    uint64_t corpus = 0;            // index of a shard's corpus in its set
    bool same(const FileContent& o) const {
        return size == o.size && hash == o.hash && corpus == o.corpus;      // whatever the name
    }
};

// By setting: data.train, data.val, data.tokenizer, eval.tasks. A setting that a run does not read has no
// entry.
using Contents = std::map<std::string, std::vector<FileContent>>;

// read: called after each file.
std::vector<FileContent> contents_of(const Dataset& set, const std::function<void()>& read = {});
FileContent content_of_file(const std::string& path);
FileContent content_of(const std::string& path, int fd, uint64_t begin, uint64_t end, uint64_t size);

// For a table: files, their sum of sizes, and of two lists the first file that differs. `now` may be empty.
std::string described(const std::vector<FileContent>& files, const std::vector<FileContent>& other);
bool same_contents(const std::vector<FileContent>& a, const std::vector<FileContent>& b);

Json json_of(const Contents& contents);
Contents contents_of_json(const Json* v);       // null: none; throws std::runtime_error

}  // namespace data
