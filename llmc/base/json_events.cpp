#include "llmc/base/json_events.h"

#include <nlohmann/json.hpp>

using nlohmann::json;

// Why, without the library's name, its error number and the place.
static std::string reason(const std::string& what) {
    const size_t place = what.find("column ");
    const size_t colon = what.find(": ", place == std::string::npos ? 0 : place);
    std::string text = colon == std::string::npos ? what : what.substr(colon + 2);
    const size_t dash = text.find(" - ");
    if (text.starts_with("syntax error") && dash != std::string::npos) text = text.substr(dash + 3);
    for (char& c : text)
        if (uint8_t(c) < 0x20 || uint8_t(c) > 0x7E) c = ' ';
    return text;
}

namespace {

// The library's names for what happens.
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
        to.broken(e.id == kOutOfRange ? 0 : byte, reason(e.what()));
        return false;
    }
};

}  // namespace

bool read_json(std::string_view text, JsonEvents& events) {
    Forward forward{events};
    return json::sax_parse(text, &forward);
}
