#include "llmc/base/json/json_file.h"

#include <algorithm>
#include <cctype>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"

inline namespace json_format {

// Names syntax that other languages allow and JSON refuses, at the place of the error; empty: not recognized.
static std::string hint_of(const JsonHints& hints, std::string_view text, size_t at) {
    const size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    if (first != text.npos && text[first] != '{') return hints.start;
    const char c = at < text.size() ? text[at] : ' ';
    const size_t last = at == 0 ? text.npos : text.find_last_not_of(" \t\r\n", at - 1);
    const char before = last == text.npos ? ' ' : text[last];
    if (c == '\'' || before == '\'') return "names and texts stand in double quotes";
    if (c == '/' || c == '#' || before == '/') return hints.comment;
    if ((c == '}' || c == ']') && before == ',') return "a comma stands between two members only";
    return "";
}

// "file, line 3, column 7: why", and the line with a mark below the place if hints.quotes
[[noreturn]] static void broken(std::string_view text, const std::string& name, const JsonError& e,
                                const JsonHints& hints) {
    size_t at = std::min(e.byte - 1, text.size());
    // the end of a text is where its last line with anything ends
    while (at == text.size() && !text.empty() && isspace(uint8_t(text.back()))) {
        text.remove_suffix(1);
        at--;
    }
    const size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const size_t line = 1 + size_t(std::count(text.begin(), text.begin() + ptrdiff_t(begin), '\n'));
    const size_t crop = at - begin > 60 ? at - 60 : begin;
    std::string shown(text.substr(crop, std::min<size_t>(text.find('\n', at), crop + 90) - crop));
    for (char& c : shown)
        if (uint8_t(c) < 0x20 || uint8_t(c) > 0x7E) c = ' ';
    const std::string what =
        fmt::format("{}, line {}, column {}: this is not JSON: {}", name, line, at - begin + 1, e.why);
    const std::string hint = hint_of(hints, text, at);
    if (!hints.quotes)
        fatal(kExitConfig, __FILE__, __LINE__, "{}{}{}", what, hint.empty() ? "" : "; ", hint);
    fatal(kExitConfig, __FILE__, __LINE__, "{}\n       {}\n       {:>{}}{}{}", what, shown, "^",
          int(at - crop) + 1, hint.empty() ? "" : "\n       ", hint);
}

Json parse_json_text(std::string_view text, const std::string& name, int deepest, const JsonHints& hints) {
    try {
        return parse_json(text, deepest);
    } catch (const JsonError& e) {
        if (e.byte) broken(text, name, e, hints);
        fatal(kExitConfig, __FILE__, __LINE__, "{}: {}", name, e.what());
    }
}

Json parse_json_file(const std::string& path) { return parse_json_text(read_file(path), path); }

}  // namespace json_format
