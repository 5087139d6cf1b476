#include "llmc/base/json_events.h"

#include <cstring>
#include <nlohmann/json.hpp>

using nlohmann::json;

// Why, without the library's name, its error number and the place.
static std::string reason(const std::string& what) {
    const auto after = [](const std::string& text, const char* mark, size_t from = 0) {
        const size_t at = text.find(mark, from);
        return at == text.npos ? text : text.substr(at + strlen(mark));
    };
    std::string text = after(what, "] ");
    if (text.starts_with("parse error at ")) text = after(text, ": ", text.find("column "));
    if (text.starts_with("syntax error")) text = after(text, " - ");
    for (char& c : text)
        if (uint8_t(c) < 0x20 || uint8_t(c) > 0x7E) c = ' ';
    return text.size() > 160 ? text.substr(0, 157) + "..." : text;
}

namespace {

// The library's names of the events.
struct Forward {
    JsonEvents& to;

    bool null() { return to.null(); }
    bool boolean(bool v) { return to.boolean(v); }
    bool number_integer(json::number_integer_t v) { return to.negative(v); }
    bool number_unsigned(json::number_unsigned_t v) { return to.natural(v); }
    bool number_float(json::number_float_t v, const std::string&) { return to.real(v); }
    bool string(std::string& v) { return to.string(v); }
    bool binary(json::binary_t&) { return false; }      // not in text
    bool key(std::string& v) { return to.key(v); }
    bool start_object(size_t) { return to.start_object(); }
    bool end_object() { return to.end_object(); }
    bool start_array(size_t) { return to.start_list(); }
    bool end_array() { return to.end_list(); }
    bool parse_error(size_t byte, const std::string&, const json::exception& e) {
        static constexpr int kOutOfRange = 406;
        to.broken(byte, e.id == kOutOfRange, reason(e.what()));
        return false;
    }
};

}  // namespace

bool read_json(std::string_view text, JsonEvents& events) {
    if (const size_t nul = text.find('\0'); nul != text.npos) {       // the parser would end here
        events.broken(nul + 1, false, "a byte of 0");
        return false;
    }
    Forward forward{events};
    return json::sax_parse(text, &forward);
}
