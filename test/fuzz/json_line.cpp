// Any bytes as a line of a .jsonl: the fast scanner finds the text that the JSON library finds, or leaves the
// row to the library.
#include "llmc/io/corpus/json_line.h"
#include "test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string row(reinterpret_cast<const char*>(data), size);
    const std::string padded = row + std::string(kRowPadding, 'x');
    std::vector<char> out(size + kRowPadding);
    size_t bytes = 0;
    if (!scan_json_line({padded.data(), size}, out.data(), bytes)) return 0;
    std::string error;
    const std::string text = parse_json_text(row, error);
    FUZZ_CHECK(error.empty() && text == std::string_view(out.data(), bytes));
    return 0;
}
