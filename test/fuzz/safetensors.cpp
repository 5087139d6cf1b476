// Any bytes as a safetensors file: an error of the user's, or a file whose tensors can be read to the last byte.
//
// Needs llmc/io/safetensors.cpp llmc/base/{check,files,json}.cpp
#include "llmc/io/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/context.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    context.throw_on_fatal = true;
    const Fd memory(memfd_create("fuzz", MFD_CLOEXEC));
    write_all(memory.fd, data, size, "fuzz");
    try {
        const SafetensorsFile f(strf("/proc/self/fd/%d", memory.fd));
        uint64_t bytes = f.data_start;
        for (const TensorInfo& t : f.tensors) {
            std::string value(size_t(t.bytes()), '\0');
            f.read(t, value.data());
            CHECK(std::equal(value.begin(), value.end(), reinterpret_cast<const char*>(data) + bytes), "other bytes");
            CHECK(&f.require(t.name, t.dtype, t.shape) == &t, "another tensor of this name");
            bytes += t.bytes();
        }
        CHECK(bytes == size, "bytes that belong to no tensor");
    } catch (const Fatal& e) {
        if (e.code != kExitConfig) __builtin_trap();
    }
    return 0;
}
