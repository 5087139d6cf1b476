#include "llmc/io/corpus/json_line.h"

#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "llmc/base/json/json_value.h"
#include "llmc/io/unicode/byte_block.h"
#include "llmc/io/unicode/unicode.h"

inline namespace corpus {

namespace {

static_assert(kBlock == kRowPadding);

// Value of a hexadecimal digit, -1 for other characters.
constexpr auto kDigits = [] {
    std::array<int8_t, 256> value;
    value.fill(-1);
    for (int i = 0; i < 22; i++) value[uint8_t("0123456789abcdefABCDEF"[i])] = int8_t(i < 16 ? i : i - 6);
    return value;
}();
// The byte of a character behind a backslash, 0: no escape.
constexpr auto kEscapes = [] {
    std::array<char, 256> byte = {};
    for (int i = 0; i < 8; i++) byte[uint8_t("\"\\/bfnrt"[i])] = "\"\\/\b\f\n\r\t"[i];
    return byte;
}();

// Reads a row of valid UTF-8 once and checks the whole row. `out` gets the strings, decoded, without
// separators; decoded strings are shorter than in the row. Each function moves p behind its input, or returns
// false.
struct Scanner {
    static constexpr int kDeepest = 64;

    const char *p, *end;
    char* out;

    bool is(char c) { return p < end && *p == c && ++p; }
    void blanks() { while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++; }

    // Four digits of an escape.
    bool digits(uint32_t& code) {
        if (end - p < 4) return false;
        const int8_t* d = kDigits.data();
        const int a = d[uint8_t(p[0])], b = d[uint8_t(p[1])], c = d[uint8_t(p[2])], e = d[uint8_t(p[3])];
        p += 4;
        code = uint32_t(a << 12 | b << 8 | c << 4 | e);
        return (a | b | c | e) >= 0;
    }
    bool escape() {             // behind its backslash
        if (!is('u')) {
            if (p >= end || !kEscapes[uint8_t(*p)]) return false;
            *out++ = kEscapes[uint8_t(*p++)];
            return true;
        }
        uint32_t code, low;
        if (!digits(code) || (code >= 0xdc00 && code < 0xe000)) return false;
        if (code >= 0xd800 && code < 0xdc00) {
            if (!is('\\') || !is('u') || !digits(low) || low < 0xdc00 || low >= 0xe000) return false;
            code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
        }
        out += encode_utf8(code, out);
        return true;
    }
    // Starts behind the quote. Copies blocks unchanged up to the string's end or an escape.
    bool string() {
        for (;;) {
            const Block c(p);
            c.store(out);
            const uint64_t special = c.among(0, ' ') | c.is('"') | c.is('\\');
            const int plain = std::countr_zero(special);        // 64: no special byte
            p += plain;
            out += plain;
            if (p >= end) return false;
            if (special == 0) continue;
            if (is('"')) return true;
            if (*p != '\\') return false;
            while (is('\\'))
                if (!escape()) return false;
        }
    }
    bool number() {
        const char* first = p;
        const auto run = [&] {
            const char* begin = p;
            while (p < end && uint8_t(*p - '0') <= 9) p++;
            return p - begin;
        };
        is('-');
        if (!is('0') && run() == 0) return false;
        if (is('.') && run() == 0) return false;
        const bool finite = p - first < 200;        // also with 99 more places
        if (!is('e') && !is('E')) return finite;
        if (!is('+')) is('-');
        const auto places = run();
        return finite && places >= 1 && places <= 2;
    }
    bool word(std::string_view text) {
        if (!std::string_view(p, size_t(end - p)).starts_with(text)) return false;
        p += text.size();
        return true;
    }
    template <class Item> bool items(char close, Item&& item) {     // behind the opening bracket
        blanks();
        if (is(close)) return true;
        do {
            blanks();
            if (!item()) return false;
            blanks();
        } while (is(','));
        return is(close);
    }
    bool key() {
        if (!is('"') || !string()) return false;
        blanks();
        if (!is(':')) return false;
        blanks();
        return true;
    }
    bool value(int depth) {
        if (p >= end || depth == kDeepest) return false;
        if (is('"')) return string();
        if (is('{')) return items('}', [&] { return key() && value(depth + 1); });
        if (is('[')) return items(']', [&] { return value(depth + 1); });
        switch (*p) {
            case 't': return word("true");
            case 'f': return word("false");
            case 'n': return word("null");
            default: return number();
        }
    }
};

// Takes a string of the outermost object and skips the rest, without building a tree.
struct TextOf {
    std::string_view field;
    std::string text = {};
    std::string names = {};     // of the object's other strings
    std::string last = {};      // the name before the value
    int depth = 0;
    bool found = false, object = false;

    void string(std::string& s) {
        if (last == field) {
            text.swap(s);
            found = true;
        } else if (names.size() < 100) names += (names.empty() ? "" : ", ") + last;
    }
    void take(JsonEvent& e) {
        if (e.kind == JsonEvent::StartObject || e.kind == JsonEvent::StartList) {
            object = object || (depth == 0 && e.kind == JsonEvent::StartObject);
            depth++;
        } else if (e.kind == JsonEvent::EndObject || e.kind == JsonEvent::EndList) depth--;
        else if (auto* s = std::get_if<std::string>(&e.value.value); s && depth == 1) {
            if (e.kind == JsonEvent::Key) last.swap(*s);
            else string(*s);
        }
    }
};

}  // namespace

bool scan_json_line(std::string_view row, char* out, size_t& bytes, std::string_view field) {
    Scanner s{row.data(), row.data() + row.size(), out};
    const char* text = nullptr;         // of several the last
    const auto member = [&] {
        const char* key = s.out;
        if (!s.key()) return false;
        const char* begin = s.out;
        const bool named = std::string_view(key, size_t(begin - key)) == field;
        const bool wanted = named && s.p < s.end && *s.p == '"';
        if (!s.value(1)) return false;
        if (wanted) {
            text = begin;
            bytes = size_t(s.out - begin);
        }
        return true;
    };
    if (!is_utf8(row.data(), row.size())) return false;
    s.blanks();
    if (!s.is('{') || !s.items('}', member)) return false;
    s.blanks();
    if (s.p != s.end || !text) return false;
    memmove(out, text, bytes);
    return true;
}

std::string parse_json_text(std::string_view row, std::string& error, std::string_view field) {
    TextOf result{field};
    error.clear();
    try {
        read_json(row, [&](JsonEvent& e) {
            result.take(e);
            return true;
        });
    } catch (const JsonError& e) {
        error = fmt::format("broken JSON: at its byte {}: {}", e.byte, e.why);
        return std::move(result.text);
    }
    if (!result.object) error = fmt::format("no object: \"{:.60}\"", std::string(row.substr(0, 60)));
    else if (!result.found && result.names.empty())
        error =
            fmt::format("no string \"{}\" in the object: \"{:.60}\"", field, std::string(row.substr(0, 60)));
    else if (!result.found)
        error = fmt::format("no string \"{}\" in the object, but {}: --field=NAME says which is the text",
                            field, result.names);
    return std::move(result.text);
}

}  // namespace corpus
