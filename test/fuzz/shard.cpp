// Any bytes as a token shard: read to its last token, or one fatal() with exit code 78.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "llmc/io/files/shard.h"
#include "test/fuzz/fuzz.h"

static void read_all(const std::string& path) {
    const ShardFile shard = open_shard_file(path);
    const uint32_t largest = scan_largest(shard);
    std::vector<int32_t> ids(shard.info.tokens);
    read_tokens(shard, 0, ids.size(), ids.data());
    uint32_t found = 0;
    for (const int32_t id : ids) found = std::max(found, uint32_t(id));
    FUZZ_CHECK(found == largest);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const int fd = memfd_create("shard", 0);
    static const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != ssize_t(size)) return 0;
    expect_input_error([&] { read_all(path); });
    return 0;
}
