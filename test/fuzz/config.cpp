// Any bytes as a config, and any key=value as a setting: a config that reads back from its own echo, or one
// fatal() with exit code 78.
#include "llmc/base/config/config.h"
#include "test/fuzz/fuzz.h"

static void echo(const Config& cfg) {
    const std::string text = to_json(cfg);
    FUZZ_CHECK(to_json(parse_config(text, "echo")) == text);
    validate(cfg);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    expect_input_error([&] { echo(parse_config(text, "fuzz")); });
    const size_t equal = text.find('=');
    if (equal == std::string::npos || text.find('\0') != std::string::npos) return 0;
    expect_input_error([&] {
        Config cfg;
        set_value(cfg, text.substr(0, equal), text.substr(equal + 1));
        echo(cfg);
    });
    return 0;
}
