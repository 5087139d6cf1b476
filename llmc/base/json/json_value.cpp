#include "llmc/base/json/json_value.h"

#include <cmath>
#include <unordered_set>

#include "llmc/base/json/json.h"
#include "llmc/base/terminal.h"

inline namespace json_format {

Json::Json() : value(nullptr) {}
Json::Json(std::nullptr_t) : value(nullptr) {}
Json::Json(int64_t v) : value(v) { if (v >= 0) value = uint64_t(v); }
Json::Json(uint64_t v) : value(v) {}
Json::Json(double v) : value(v) {}
Json::Json(const char* v) : value(std::string(v)) {}
Json::Json(std::string_view v) : value(std::string(v)) {}
Json::Json(std::string v) : value(std::move(v)) {}
Json::Json(List v) : value(std::move(v)) {}
Json::Json(Members v) : value(std::move(v)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

JsonError::JsonError(Kind kind, const std::string& why, size_t byte)
    : std::runtime_error(byte ? "byte " + std::to_string(byte) + ": " + why : why), kind(kind), why(why),
      byte(byte) {}

template <class T> static const T& as(const Json& v, const char* type) {
    const T* p = std::get_if<T>(&v.value);
    if (!p)
        throw JsonError(JsonError::Type, std::string("expected ") + type + ", found " + for_message(v));
    return *p;
}

bool Json::boolean() const { return as<bool>(*this, "true or false"); }
const std::string& Json::string() const { return as<std::string>(*this, "a text"); }
const Json::List& Json::list() const { return as<List>(*this, "a list"); }
const Json::Members& Json::members() const { return as<Members>(*this, "an object"); }
uint64_t Json::natural() const { return as<uint64_t>(*this, "a whole number"); }

int64_t Json::integer() const {
    if (const int64_t* v = std::get_if<int64_t>(&value)) return *v;
    const uint64_t v = as<uint64_t>(*this, "an integer");
    if (v > uint64_t(INT64_MAX)) throw JsonError(JsonError::Type, std::to_string(v) + " is out of range");
    return int64_t(v);
}

double Json::number() const {
    if (const int64_t* v = std::get_if<int64_t>(&value)) return double(*v);
    if (const uint64_t* v = std::get_if<uint64_t>(&value)) return double(*v);
    return as<double>(*this, "a number");
}

const Json* Json::find(std::string_view key) const {
    if (const Members* all = std::get_if<Members>(&value))
        for (const auto& [name, v] : *all)
            if (name == key) return &v;
    return nullptr;
}

const Json& Json::at(std::string_view key) const {
    members();
    const Json* v = find(key);
    if (!v) throw JsonError(JsonError::Type, "there is no " + json_string(key));
    return *v;
}

const Json& Json::get(std::string_view key) const {
    static const Json null;
    const Json* v = find(key);
    return v ? *v : null;
}

bool operator==(const Json& a, const Json& b) {
    if (a.is_integer() && b.is_integer()) return a.value == b.value;
    if (a.is_number() && b.is_number()) return a.number() == b.number();
    return a.value == b.value;
}

// ---------------------------------------------------------------------------------------------------------
// reading

namespace {

// The open objects and lists lead from the root to the parent of the next value.
struct Builder {
    int deepest;
    Json root = {};
    std::vector<Json*> open = {};
    std::string name = {};          // of the next member

    Json& put(Json v) {
        if (open.empty()) return root = std::move(v);
        auto* list = std::get_if<Json::List>(&open.back()->value);
        if (list) return list->emplace_back(std::move(v));
        auto& members = std::get<Json::Members>(open.back()->value);
        return members.emplace_back(std::move(name), std::move(v)).second;
    }
    void enter(Json v) {
        if (int(open.size()) == deepest)
            throw JsonError(JsonError::Deep, "nested more than " + std::to_string(deepest) + " deep");
        open.push_back(&put(std::move(v)));
    }
    void refuse_duplicates() const {
        std::unordered_set<std::string_view> seen;
        for (const auto& [key, v] : open.back()->members())
            if (!seen.insert(key).second)
                throw JsonError(JsonError::Twice,
                                "the key " + for_message(key) + " stands twice in one object");
    }
    void take(JsonEvent& e) {
        switch (e.kind) {
        case JsonEvent::StartObject: return enter(Json::Members());
        case JsonEvent::StartList: return enter(Json::List());
        case JsonEvent::Key: name = std::move(std::get<std::string>(e.value.value)); return;
        case JsonEvent::Value: put(std::move(e.value)); return;
        case JsonEvent::EndObject: refuse_duplicates(); break;
        case JsonEvent::EndList: break;
        }
        open.pop_back();
    }
};

// With a point, so that reading yields a number of the same type.
std::string text_of(double v) {
    std::string text = json_number(v);
    if (std::isfinite(v) && text.find_first_of(".e") == text.npos) text += ".0";
    return text;
}

struct Writer {
    std::string text;
    int indent;

    void line(int depth) {
        if (indent >= 0) {
            text += "\n";
            text.append(size_t(depth * indent), ' ');
        }
    }
    void write(const Json& v, int depth) {
        if (v.is_null()) text += "null";
        else if (v.is_boolean()) text += v.boolean() ? "true" : "false";
        else if (v.is_natural()) text += std::to_string(v.natural());
        else if (v.is_integer()) text += std::to_string(v.integer());
        else if (v.is_number()) text += text_of(v.number());
        else if (v.is_string()) text += json_string(v.string());
        else if (v.is_list()) {
            const char* between = "[";
            for (const Json& x : v.list()) {
                text += between;
                between = ",";
                line(depth + 1);
                write(x, depth + 1);
            }
            close(v.list().empty(), "[", "]", depth);
        } else {
            const char* between = "{";
            for (const auto& [key, x] : v.members()) {
                text += between;
                between = ",";
                line(depth + 1);
                text += json_string(key);
                text += indent >= 0 ? ": " : ":";
                write(x, depth + 1);
            }
            close(v.members().empty(), "{", "}", depth);
        }
    }
    void close(bool empty, const char* opening, const char* closing, int depth) {
        if (empty) text += opening;
        else line(depth);
        text += closing;
    }
};

}  // namespace

Json parse_json(std::string_view text, int deepest) {
    Builder builder{deepest};
    read_json(text, [&](JsonEvent& e) {
        builder.take(e);
        return true;
    });
    return std::move(builder.root);
}

std::string to_text(const Json& v, int indent) {
    Writer writer{.text = {}, .indent = indent};
    writer.write(v, 0);
    return std::move(writer.text);
}

std::string for_message(const Json& v) {
    const double* x = std::get_if<double>(&v.value);
    if (x && !std::isfinite(*x)) return std::to_string(*x);        // "nan", "inf"
    const std::string text = to_text(v);
    return text.size() > 80 ? printable(text.substr(0, 77)) + "..." : text;
}

}  // namespace json_format
