// A JSON value: read from text, looked into, built and written.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

inline namespace json_format {

struct Json {
    using List = std::vector<Json>;
    using Members = std::vector<std::pair<std::string, Json>>;      // of an object, in the order of the text

    // int64_t: integers below 0; uint64_t: other integers; double: with a point or an exponent
    std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, List, Members> value;

    Json();
    Json(std::nullptr_t);
    template <std::same_as<bool> T> Json(T v) : value(v) {}     // excludes pointers
    Json(int v) : Json(int64_t(v)) {}
    Json(int64_t v);
    Json(uint32_t v) : Json(uint64_t(v)) {}
    Json(uint64_t v);
    Json(double v);
    Json(const char* v);
    Json(std::string_view v);
    Json(std::string v);
    Json(List v);
    Json(Members v);
    // Defined in the .cpp: the variant's take long to compile.
    Json(const Json&);
    Json(Json&&) noexcept;
    Json& operator=(const Json&);
    Json& operator=(Json&&) noexcept;
    ~Json();

    bool is_null() const { return value.index() == 0; }
    bool is_boolean() const { return value.index() == 1; }
    bool is_integer() const { return value.index() == 2 || value.index() == 3; }
    bool is_natural() const { return value.index() == 3; }
    bool is_number() const { return is_integer() || value.index() == 4; }
    bool is_string() const { return value.index() == 5; }
    bool is_list() const { return value.index() == 6; }
    bool is_object() const { return value.index() == 7; }

    // Each throws JsonError where the value is of another type, or the number out of range.
    bool boolean() const;
    int64_t integer() const;
    uint64_t natural() const;
    double number() const;
    const std::string& string() const;
    const List& list() const;
    const Members& members() const;
    const Json& at(std::string_view key) const;             // throws JsonError if the key is missing, too

    const Json* find(std::string_view key) const;           // nullptr: no such key, or no object
    const Json& get(std::string_view key) const;            // a JSON null where find() has nullptr
};

// Numbers are equal by value, in any notation.
bool operator==(const Json& a, const Json& b);

// An error in a text, or in its content.
struct JsonError : std::runtime_error {
    enum Kind { Syntax, Range, Deep, Twice, Type } kind;
    std::string why;        // what(), without the place
    size_t byte;            // of Syntax and Range: the place, counted from 1

    JsonError(Kind kind, const std::string& why, size_t byte = 0);
};

// Throws JsonError. Values nest at most `deepest` levels, as functions on values are recursive. A duplicate
// key in an object is refused: otherwise a value would be hidden.
Json parse_json(std::string_view text, int deepest = 32);

// An event of reading: an object or a list begins or ends, a key (a string), or a value that is neither.
struct JsonEvent {
    enum Kind { StartObject, EndObject, StartList, EndList, Key, Value } kind;
    Json value;             // of Key and Value
};

// Reads text without building a value of it, as events in the order of the text. `take` returns whether to go
// on; false: it did not. Throws JsonError of the kinds Syntax and Range, whose `why` is a line.
bool read_json(std::string_view text, const std::function<bool(JsonEvent&)>& take);

// On a single line; or, with indent >= 0, members and elements on separate lines, `indent` spaces per level.
std::string to_text(const Json& v, int indent = -1);

// Quote of a value for a message: a line of about 80 bytes, cut between UTF-8 characters.
std::string for_message(const Json& v);

}  // namespace json_format
