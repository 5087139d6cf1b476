// Any bytes as a tokenizer's file: a vocabulary that encodes and decodes its own input, or one fatal() with
// exit code 78. The first byte chooses the kind of file.
#include <algorithm>

#include "llmc/io/text/tokenizer.h"
#include "test/fuzz/fuzz.h"

static void round_trip(Vocabulary v, std::string_view text) {
    bool same_bytes = !v.nfc && !v.prefix_space;
    same_bytes &= std::find(v.byte_id, v.byte_id + 256, kNoByte) == v.byte_id + 256;
    for (const uint8_t bits : v.added) same_bytes &= !(bits & (kLeftStrip | kRightStrip));
    const Tokenizer tokenizer(std::move(v));
    const std::string decoded = tokenizer.decode(tokenizer.encode(text));
    FUZZ_CHECK(!same_bytes || decoded == text);
    const std::string end(tokenizer.vocabulary.text_of(tokenizer.eot()));
    const std::string file = json_of_vocabulary(tokenizer.vocabulary);
    const Tokenizer again(vocabulary_of_json(file, "again.json", {.text = end}));
    FUZZ_CHECK(again.hash() == tokenizer.hash());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 1) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    expect_input_error([&] {
        const size_t half = text.find('\f');
        const EndOfText end = {.text = "</s>"};
        if (data[0] == 't') round_trip(vocabulary_of_tiktoken(text, "fuzz.tiktoken"), text);
        else if (data[0] == 'g' && half != text.npos)
            round_trip(vocabulary_of_gpt2(text.substr(0, half), text.substr(half + 1), "fuzz", end), text);
        else round_trip(vocabulary_of_json(text, "fuzz.json", end), text);
    });
    return 0;
}
