// Any bytes as a GGUF file: tensors that can be read, and a tokenizer that encodes and answers by its chat
// template, or one fatal() with exit code 78. Likewise the model in it; 77: weights that are not finite.
#include <sys/mman.h>
#include <unistd.h>

#include "llmc/io/text/chat.h"
#include "llmc/io/text/tokenizer_gguf.h"
#include "test/fuzz/open_model.h"

static void read_all(const std::string& path) {
    const GgufFile file(path);
    for (const auto& [name, t] : file.tensors) {
        uint64_t count = 1;
        for (const uint64_t n : t.shape) count *= n;
        std::vector<float> values(count);
        file.read(t, 0, count, values.data());
    }
    if (!has_vocabulary(file)) return;
    const Tokenizer tokenizer(vocabulary_of_gguf(read_gguf_vocabulary(file), path));
    for (const int32_t id : tokenizer.encode("any text 12, the other"))
        FUZZ_CHECK(id >= 0 && size_t(id) < tokenizer.vocab_size());
    FUZZ_CHECK(tokenizer.eos() < int64_t(tokenizer.vocab_size()));
    FUZZ_CHECK(!tokenizer.adds_bos() || tokenizer.bos() >= 0);
    if (!no_chat(tokenizer).empty()) return;
    for (const int32_t id : chat_of(tokenizer, "Hi <|im_end|>").ids)
        FUZZ_CHECK(id >= 0 && id < int32_t(tokenizer.vocab_size()));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const int fd = memfd_create("gguf", 0);
    static const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != ssize_t(size)) return 0;
    expect_input_error([&] { read_all(path); });
    expect_input_error([&] { open_and_read("gguf:" + path); });
    return 0;
}
