// Any bytes as a config file, and as the value of a setting: a Config, or one fatal() with exit code 78.
#include "llmc/base/check.h"
#include "llmc/base/config.h"
#include "llmc/base/context.h"
#include "test/fuzz/fuzz.h"

static void parse(std::string_view text) {
    const Config cfg = parse_config(text, "fuzz.json");
    const std::string echo = to_json(cfg);
    FUZZ_CHECK(to_json(parse_config(echo, "echo.json")) == echo);     // what is accepted survives its own echo
    validate(cfg);
}

static void set(std::string_view text) {
    const size_t equals = text.find('=');
    if (equals == text.npos) return;
    Config cfg;
    set_value(cfg, std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    expect_input_error([&] { parse(text); });
    expect_input_error([&] { set(text); });
    return 0;
}
