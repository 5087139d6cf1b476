// Any bytes as a checkpoint's manifest, with the right hash so that the parser gets to see them: accepted, or
// refused with a reason; what is accepted is written and read back the same.
#include "llmc/io/files/manifest.h"
#include "test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    std::string error;
    FUZZ_CHECK(parse_manifest(text, &error) || !error.empty());
    error.clear();
    const std::optional<Manifest> m = parse_manifest(with_hash(text), &error);
    FUZZ_CHECK(m || !error.empty());
    if (m) {
        const std::string written = to_json(*m);
        const std::optional<Manifest> again = parse_manifest(written, &error);
        FUZZ_CHECK(again && to_json(*again) == written);
    }
    (void)parse_note(text);
    return 0;
}
