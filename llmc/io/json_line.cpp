#include "llmc/io/json_line.h"

#include "llmc/base/check.h"
#include "llmc/base/json_events.h"

namespace {

// Takes "text" of the outermost object and skips the rest, without building a tree.
struct TextOf final : JsonEvents {
    std::string& text;
    int depth = 0;
    bool wanted = false, found = false, object = false;
    std::string error;

    explicit TextOf(std::string& text) : text(text) {}
    bool null() override { return value(); }
    bool boolean(bool) override { return value(); }
    bool negative(int64_t) override { return value(); }
    bool natural(uint64_t) override { return value(); }
    bool real(double) override { return value(); }
    bool string(std::string& s) override {
        if (depth == 1 && wanted) text.swap(s), found = true;
        return value();
    }
    bool key(std::string& s) override { wanted = depth == 1 && s == "text"; return true; }
    bool start_object() override { object = object || depth == 0; depth++; return value(); }
    bool start_list() override { depth++; return value(); }
    bool end_object() override { depth--; return true; }
    bool end_list() override { depth--; return true; }
    bool value() { wanted = false; return true; }
    void broken(size_t byte, bool, const std::string& why) override {
        error = strf("at its byte %zu: ", byte) + why;
    }
};

}  // namespace

void parse_json_line(std::string_view row, const std::string& path, uint64_t line, std::string& text) {
    TextOf result(text);
    CHECK_INPUT(read_json(row, result), "%s:%llu: broken JSON: %s", path.c_str(), (unsigned long long)line,
                result.error.c_str());
    CHECK_INPUT(result.object && result.found, "%s:%llu: no \"text\" string in the object: \"%.60s\"",
                path.c_str(), (unsigned long long)line, std::string(row).c_str());
}
