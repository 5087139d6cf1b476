// Any bytes as an index of documents, with the hash that belongs to them: documents of a shard in their
// order, or one fatal() with exit code 78.
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>

#include "llmc/base/disk/output_file.h"
#include "llmc/io/files/document_index.h"
#include "test/fuzz/fuzz.h"

// A shard of 1,000 tokens with an end-of-text, 0, at each tenth.
static std::string write_shard() {
    static const struct Folder {
        std::string name = "/tmp/fuzz_index_" + std::to_string(getpid());
        Folder() { std::filesystem::create_directory(name); }
        ~Folder() { std::filesystem::remove_all(name); }
    } folder;
    const std::string path = folder.name + "/s.bin";
    std::vector<uint16_t> ids(512 + 1000, 5);
    const int32_t header[256] = {20240520, 1, 1000};
    memcpy(ids.data(), header, sizeof header);
    for (size_t i = 512; i < ids.size(); i += 10) ids[i] = 0;
    write_file(path, {reinterpret_cast<const char*>(ids.data()), ids.size() * 2});
    return path;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const std::string path = write_shard();
    static const ShardFile shard = open_shard_file(path);
    std::string text(reinterpret_cast<const char*>(data), size);
    if (size >= kIndexHeaderBytes && data[20] % 4) {    // the hash of what is there, most of the time
        const uint64_t hash = XXH3_64bits(text.data() + kIndexHeaderBytes, size - kIndexHeaderBytes);
        memcpy(text.data() + 24, &hash, sizeof hash);
    }
    FILE* f = fopen(index_path(path).c_str(), "wb");
    if (!f) return 0;
    fwrite(text.data(), 1, text.size(), f);
    fclose(f);
    expect_input_error([&] {
        const auto index = read_index(shard);
        FUZZ_CHECK(index && index->starts.size() <= 1000);
        for (size_t d = 0; d < index->starts.size(); d++) {
            FUZZ_CHECK(index->starts[d] < 1000 && (d == 0 || index->starts[d - 1] < index->starts[d]));
        }
    });
    return 0;
}
