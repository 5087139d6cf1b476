// Any bytes as a safetensors file: tensors that together are all of its data, or one fatal() with exit
// code 78.
#include <sys/mman.h>
#include <unistd.h>

#include "llmc/io/files/safetensors.h"
#include "test/fuzz/fuzz.h"

static void read_all(const std::string& path, std::string_view content) {
    const SafetensorsFile f(path);
    uint64_t at = f.data_start;
    for (const TensorInfo& t : f.tensors) {
        std::string value(size_t(t.bytes()), '\0');
        f.read(t, value.data());
        FUZZ_CHECK(value == content.substr(at, value.size()));
        FUZZ_CHECK(&f.require(t.name, t.dtype, t.shape) == &t);
        at += t.bytes();
    }
    FUZZ_CHECK(at == content.size());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const int fd = memfd_create("safetensors", 0);
    static const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != ssize_t(size)) return 0;
    expect_input_error([&] { read_all(path, {reinterpret_cast<const char*>(data), size}); });
    return 0;
}
