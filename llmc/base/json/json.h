// Room base/json: the one writer and the one reader of JSON (RFC 8259). Settings, manifests, logs and pages
// call it. The room knows no key.
//
// json.h writes text, value by value: numbers in the shortest form that reads back the same. json_value.h
// holds a value, json_file.h reads files.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

inline namespace json_format {

std::string json_number(double v);              // null where v is not finite
std::string json_string(std::string_view s);    // quoted; invalid UTF-8 becomes U+FFFD

inline std::string json_text(bool v) { return v ? "true" : "false"; }
inline std::string json_text(int v) { return std::to_string(v); }
inline std::string json_text(int64_t v) { return std::to_string(v); }
inline std::string json_text(uint64_t v) { return std::to_string(v); }
inline std::string json_text(double v) { return json_number(v); }
inline std::string json_text(std::string_view v) { return json_string(v); }
inline std::string json_text(const char* v) { return json_string(v); }

// A list of what text_of(x) returns for each element.
template <class List, class F>
std::string json_list(const List& list, F&& text_of, std::string_view comma = ",") {
    std::string text = "[";
    for (const auto& x : list) {
        if (text.size() > 1) text += comma;
        text += text_of(x);
    }
    return text + "]";
}
template <class T> std::string json_text(const std::vector<T>& list) {
    return json_list(list, [](const T& x) { return json_text(x); });
}

// An object: JsonObject().add("step", 3).add("loss", 4.2).str() is {"step":3,"loss":4.2}.
struct JsonObject {
    std::string text = "{";
    std::string_view comma, colon;

    explicit JsonObject(std::string_view comma = ",", std::string_view colon = ":")
        : comma(comma), colon(colon) {}
    JsonObject& raw(std::string_view key, std::string_view json);       // a value that is JSON text
    template <class T> JsonObject& add(std::string_view key, const T& v) { return raw(key, json_text(v)); }
    std::string str() const { return text + "}"; }
};
inline std::string json_text(const JsonObject& v) { return v.str(); }

// An object on a line, with a newline: JsonLine("train").add("step", 3).str() is {"event":"train","step":3}.
struct JsonLine {
    JsonObject object;

    explicit JsonLine(std::string_view event) { add("event", event); }
    JsonLine& raw(std::string_view key, std::string_view json) {
        object.raw(key, json);
        return *this;
    }
    template <class T> JsonLine& add(std::string_view key, const T& v) { return raw(key, json_text(v)); }
    std::string str() const { return object.str() + "\n"; }
};

}  // namespace json_format
