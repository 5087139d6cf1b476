// The one file that compiles nlohmann's parser, which takes seconds.
#include <cstring>
#include <nlohmann/json.hpp>

#include "llmc/base/json/json_value.h"

inline namespace json_format {

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
    const std::function<bool(JsonEvent&)>& take;

    bool send(JsonEvent::Kind kind, Json v = {}) {
        JsonEvent event{kind, std::move(v)};
        return take(event);
    }
    bool null() { return send(JsonEvent::Value); }
    bool boolean(bool v) { return send(JsonEvent::Value, v); }
    bool number_integer(json::number_integer_t v) { return send(JsonEvent::Value, v); }
    bool number_unsigned(json::number_unsigned_t v) { return send(JsonEvent::Value, v); }
    bool number_float(json::number_float_t v, const std::string&) { return send(JsonEvent::Value, v); }
    bool string(std::string& v) { return send(JsonEvent::Value, std::move(v)); }
    bool binary(json::binary_t&) { return false; }      // not in text
    bool key(std::string& v) { return send(JsonEvent::Key, std::move(v)); }
    bool start_object(size_t) { return send(JsonEvent::StartObject); }
    bool end_object() { return send(JsonEvent::EndObject); }
    bool start_array(size_t) { return send(JsonEvent::StartList); }
    bool end_array() { return send(JsonEvent::EndList); }
    bool parse_error(size_t byte, const std::string&, const json::exception& e) {
        static constexpr int kOutOfRange = 406;
        throw JsonError(e.id == kOutOfRange ? JsonError::Range : JsonError::Syntax, reason(e.what()), byte);
    }
};

}  // namespace

bool read_json(std::string_view text, const std::function<bool(JsonEvent&)>& take) {
    if (const size_t nul = text.find('\0'); nul != text.npos)        // the parser would end here
        throw JsonError(JsonError::Syntax, "a byte of 0", nul + 1);
    Forward forward{take};
    return json::sax_parse(text, &forward);
}

}  // namespace json_format
