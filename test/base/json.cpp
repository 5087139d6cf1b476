// JSON values against nlohmann's, on documents drawn at random, and what is refused.
#include <cmath>
#include <nlohmann/json.hpp>

#include "llmc/base/json/json.h"
#include "llmc/base/json/json_value.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/base/terminal.h"
#include "test/test.h"

using nlohmann::ordered_json;
using std::string;

namespace {

struct Draw {
    uint64_t stream, next = 0;
    uint32_t below(uint32_t n) { return philox(11, stream, next++).x[0] % n; }

    ordered_json text() {
        static constexpr const char* kPieces[] = {"a", "key", "\"", "\\", "\n", "\t", "\x01",
                                                  "/", "é", "€", "😀", "\x7F", " "};
        string s;
        for (uint32_t n = below(6); n > 0; n--) s += kPieces[below(std::size(kPieces))];
        return s;
    }
    ordered_json number() {
        switch (below(8)) {
            case 0: return 0;
            case 1: return INT64_MIN;
            case 2: return UINT64_MAX;
            case 3: return -int64_t(below(1000));
            case 4: return 1e300 * below(100);
            case 5: return std::ldexp(double(below(1 << 30)), -int(below(1100)));
            case 6: return double(below(100));
            default: return below(1 << 31);
        }
    }
    ordered_json value(int depth) {
        switch (below(depth > 4 ? 4 : 6)) {
            case 0: return nullptr;
            case 1: return below(2) == 1;
            case 2: return number();
            case 3: return text();
            case 4: {
                ordered_json v = ordered_json::array();
                for (uint32_t n = below(5); n > 0; n--) v.push_back(value(depth + 1));
                return v;
            }
            default: {
                ordered_json v = ordered_json::object();
                for (uint32_t n = below(5); n > 0; n--) v[text().get<string>()] = value(depth + 1);
                return v;
            }
        }
    }
};

}  // namespace

// Type by type and number by number: no library's idea of equality decides.
static bool same(const Json& a, const ordered_json& b) {
    if (b.is_null()) return a.is_null();
    if (b.is_boolean()) return a.is_boolean() && a.boolean() == b.get<bool>();
    if (b.is_number_unsigned()) return a.is_natural() && a.natural() == b.get<uint64_t>();
    if (b.is_number_integer()) return a.is_integer() && a.integer() == b.get<int64_t>();
    if (b.is_number_float()) return a.is_number() && !a.is_integer() && a.number() == b.get<double>();
    if (b.is_string()) return a.is_string() && a.string() == b.get<string>();
    if (b.is_array()) {
        bool equal = a.is_list() && a.list().size() == b.size();
        for (size_t i = 0; equal && i < b.size(); i++) equal = same(a.list()[i], b[i]);
        return equal;
    }
    bool equal = a.is_object() && a.members().size() == b.size();
    size_t i = 0;
    for (const auto& [key, v] : b.items()) {
        equal = equal && a.members()[i].first == key && same(a.members()[i].second, v);
        i++;
    }
    return equal;
}

TEST(random_documents) {
    for (uint64_t n = 0; n < 3000; n++) {
        Draw draw{.stream = n};
        const ordered_json v = draw.value(0);
        for (const int indent : {-1, 1, 3}) {
            const string text = v.dump(indent);
            const Json read = parse_json(text);
            EXPECT(same(read, v), "'%s'", text.c_str());
            const string written = to_text(read, indent);
            EXPECT(same(read, ordered_json::parse(written)), "'%s' written as '%s'", text.c_str(),
                   written.c_str());
            EXPECT(parse_json(written) == read, "'%s'", written.c_str());
        }
    }
}

TEST(written_as_nlohmann_writes) {
    const string text = R"({"a":[1,-2,0.5,1e+100,3.0,[],{}],"b":{"c":null,"d":true},"é":"\"\\\n\t"})";
    for (const int indent : {-1, 0, 1, 4})
        EXPECT(to_text(parse_json(text), indent) == ordered_json::parse(text).dump(indent), "'%s'",
               to_text(parse_json(text), indent).c_str());
    EXPECT(to_text(std::nan("")) == "null", "'%s'", to_text(std::nan("")).c_str());
    EXPECT(for_message(std::nan("")) == "nan" && for_message(-HUGE_VAL) == "-inf", "'%s'",
           for_message(std::nan("")).c_str());
}

static JsonError refused(const string& text, int deepest = 32) {
    try {
        parse_json(text, deepest);
    } catch (const JsonError& e) {
        return e;
    }
    return {JsonError::Type, "taken"};
}

TEST(broken_text) {
    const struct { const char* text; size_t byte; } cases[] = {
        {"", 1}, {"{", 2}, {"[1,]", 4}, {"{\"a\" 1}", 6}, {"[1] 2", 5}, {"nul", 4}, {"\"\xFF\"", 2},
        {"01", 2}};
    for (const auto& c : cases) {
        const JsonError e = refused(c.text);
        EXPECT(e.kind == JsonError::Syntax && e.byte == c.byte, "'%s': byte %zu, '%s'", c.text, e.byte,
               e.what());
        EXPECT(string(e.what()).find("json.exception") == string::npos, "'%s'", e.what());
    }
    const JsonError range = refused("[1e999]");
    EXPECT(range.kind == JsonError::Range && range.byte == 6 && strstr(range.what(), "1e999"), "'%s'",
           range.what());
    EXPECT(!strstr(range.what(), "json.exception"), "'%s'", range.what());
    const JsonError nul = refused(string("{}\0{}", 5));
    EXPECT(nul.kind == JsonError::Syntax && nul.byte == 3, "'%s'", nul.what());
    for (const string& text : {"[\"" + string(1 << 20, 'a'), "[1e" + string(1 << 20, '9') + "]"})
        EXPECT(strlen(refused(text).what()) < 200, "%zu bytes", strlen(refused(text).what()));
}

TEST(too_deep_and_twice) {
    const auto taken = [](const JsonError& e) { return e.kind == JsonError::Type; };
    EXPECT(taken(refused("[[[]]]", 3)), "'%s'", refused("[[[]]]", 3).what());
    EXPECT(refused("[[{\"a\":[]}]]", 3).kind == JsonError::Deep, "'%s'", refused("[[{\"a\":[]}]]", 3).what());
    EXPECT(refused(string(1 << 20, '[')).kind == JsonError::Deep, "a million");
    const JsonError twice = refused(R"({"a":{"b":1,"c":2,"b":3}})");
    EXPECT(twice.kind == JsonError::Twice && strstr(twice.what(), "\"b\""), "'%s'", twice.what());
    const string key = "\"" + string(1 << 20, 'k') + "\":1";
    EXPECT(strlen(refused("{" + key + "," + key + "}").what()) < 200, "a long key");
    EXPECT(taken(refused(R"({"a":{"a":1},"b":{"a":1}})")), "the same key in different objects");
}

TEST(what_is_not_there) {
    const Json v = parse_json(R"({"a":1,"list":[-1],"big":18446744073709551615})");
    EXPECT(v.find("b") == nullptr && v.get("b").is_null() && Json("a").find("a") == nullptr, "find");
    const auto throws = [](auto&& f) {
        try { f(); } catch (const JsonError& e) { return e.kind == JsonError::Type; }
        return false;
    };
    EXPECT(throws([&] { v.at("b"); }) && throws([&] { v.at("a").at("a"); }), "at");
    EXPECT(throws([&] { v.at("a").string(); }) && throws([&] { v.list(); }), "types");
    EXPECT(throws([&] { v.at("list").list()[0].natural(); }), "a negative number");
    EXPECT(throws([&] { v.at("big").integer(); }), "out of range");
    EXPECT(v.at("a") == 1.0 && !(v.at("a") == true) && !(Json("1") == 1), "equal by value");
}

TEST(numbers_read_back) {
    for (double v : {0.0, 1.0, -1.5, 1.0 / 3, 1e-300, 123456789.123, 5e-324, 1.7976931348623157e308, 3e-4})
        EXPECT(strtod(json_number(v).c_str(), nullptr) == v, "%.17g is written %s", v,
               json_number(v).c_str());
    EXPECT(json_number(0.1) == "0.1" && json_number(2) == "2", "%s", json_number(0.1).c_str());
    EXPECT(json_number(std::nan("")) == "null" && json_number(-1 / 0.0) == "null", "not finite");
}

TEST(strings_are_valid_utf8) {
    const std::pair<string, string> cases[] = {
        {"", "\"\""}, {"a\"\\\n\t", R"("a\"\\\n\t")"}, {string("\0\x7f", 2), R"("\u0000\u007f")"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\x80", "\"\uFFFD\""}, {"\xc0\xaf", "\"\uFFFD\uFFFD\""},              // not the shortest form
        {"\xed\xa0\x80", "\"\uFFFD\uFFFD\uFFFD\""},                            // a surrogate
        {"\xf4\x90\x80\x80", "\"\uFFFD\uFFFD\uFFFD\uFFFD\""},                  // above U+10FFFF
        {"\xe2\x82", "\"\uFFFD\uFFFD\""}, {"\xf0\x9f\x98x", "\"\uFFFD\uFFFD\uFFFDx\""}};
    for (const auto& [text, want] : cases) EXPECT(json_string(text) == want, "%s", json_string(text).c_str());
}

TEST(objects_and_lists) {
    JsonObject inner(", ", ": ");
    inner.add("b\"", "text").add("c", true).raw("d", "[]");
    JsonObject outer;
    outer.add("int", -1).add("double", 2.0).add("list", std::vector<int64_t>{1, 2}).add("object", inner);
    EXPECT(JsonObject().str() == "{}" && json_text(std::vector<double>()) == "[]", "empty");
    EXPECT(outer.str() ==
               R"({"int":-1,"double":2,"list":[1,2],"object":{"b\"": "text", "c": true, "d": []}})", "%s",
           outer.str().c_str());
    EXPECT(JsonLine("done").add("step", 3).str() == "{\"event\":\"done\",\"step\":3}\n", "a row");
}

TEST(reading_stops_where_it_is_told) {
    size_t events = 0;
    const auto take = [&](JsonEvent& e) { return ++events < 4 || e.kind != JsonEvent::Value; };
    EXPECT(read_json("{\"a\": [1, 2]}", [](JsonEvent&) { return true; }), "to its end");
    EXPECT(!read_json("[{}, 5, broken", take) && events == 4, "%zu events", events);
}

TEST(what_a_terminal_gets) {
    EXPECT(printable("a\nb\tc\x1b\r\xc2\x9b\xff\xc3\xa9") == "a\nb\tc\uFFFD\uFFFD\uFFFD\uFFFD\xc3\xa9", "%s",
           printable("\x1b").c_str());
    const string odd = for_terminal("a\tb\nc\x1b[2J\r\x7f\xc2\x9b\xff\xc3\xa9\u20ac");
    EXPECT(odd == "a\tb\nc\\x1b[2J\\x0d\\x7f\\u009b\\xff\xc3\xa9\u20ac", "'%s'", odd.c_str());
    const string lines = for_terminal(string(100, '\n'));
    EXPECT(std::count(lines.begin(), lines.end(), '\n') == kMessageLines && lines.ends_with("\\n\\n") &&
               lines.size() == 2 * 100 - kMessageLines, "'%s'", lines.c_str());
    for (const string& piece : {string("a"), string("\x1b"), string("\u20ac")}) {
        string whole = "begin";
        for (int i = 0; i < 1000000; i++) whole += piece;
        const string shown = for_terminal(whole + "end");
        EXPECT(shown.size() <= kMessageBytes && shown.starts_with("begin") && shown.ends_with("end"),
               "%zu bytes", shown.size());
        EXPECT(for_terminal(shown) == shown, "escaped twice, or cut within a character: '%s'", shown.c_str());
    }
    EXPECT(json_string("\x1b\x7f\xc2\x9b\xc3\xa9") == "\"\\u001b\\u007f\\u009b\xc3\xa9\"", "%s",
           json_string("\xc2\x9b").c_str());
    const std::pair<const char*, size_t> whole[] = {
        {"", 0}, {"a", 1}, {"a\xe2\x82", 1}, {"a\xe2", 1}, {"\u20ac", 3}, {"\xf0\x9f\x98", 0},
        {"\x80\x80\x80\x80", 4}};
    for (const auto& [text, bytes] : whole) EXPECT(whole_characters(text) == bytes, "'%s'", text);
}
