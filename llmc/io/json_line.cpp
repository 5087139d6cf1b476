#include "llmc/io/json_line.h"

#include <nlohmann/json.hpp>

#include "llmc/base/check.h"

namespace {

// Takes "text" of the outermost object and skips the rest, without building a tree.
struct TextOf {
    std::string& text;
    int depth = 0;
    bool wanted = false, found = false, object = false;
    std::string error;

    using json = nlohmann::json;
    bool null() { return value(); }
    bool boolean(bool) { return value(); }
    bool number_integer(json::number_integer_t) { return value(); }
    bool number_unsigned(json::number_unsigned_t) { return value(); }
    bool number_float(json::number_float_t, const std::string&) { return value(); }
    bool binary(json::binary_t&) { return value(); }
    bool string(std::string& s) {
        if (depth == 1 && wanted) text.swap(s), found = true;
        return value();
    }
    bool key(std::string& s) { wanted = depth == 1 && s == "text"; return true; }
    bool start_object(size_t) { object = object || depth == 0; depth++; return value(); }
    bool start_array(size_t) { depth++; return value(); }
    bool end_object() { depth--; return true; }
    bool end_array() { depth--; return true; }
    bool value() { wanted = false; return true; }
    bool parse_error(size_t, const std::string&, const json::exception& e) { error = e.what(); return false; }
};

}  // namespace

void parse_json_line(std::string_view row, const std::string& path, uint64_t line, std::string& text) {
    TextOf result{.text = text, .error = {}};
    const bool parsed = nlohmann::json::sax_parse(row, &result);
    CHECK_INPUT(parsed, "%s:%llu: broken JSON: %s", path.c_str(), (unsigned long long)line,
                result.error.c_str());
    CHECK_INPUT(result.object && result.found, "%s:%llu: no \"text\" string in the object: \"%.60s\"",
                path.c_str(), (unsigned long long)line, std::string(row).c_str());
}
