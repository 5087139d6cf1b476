// A manifest as bytes, from rank to rank: numbers of 8 bytes, and texts and lists behind their length.
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/io/files/manifest.h"

inline namespace files {

namespace {

void put(std::string* to, uint64_t v) { to->append(reinterpret_cast<const char*>(&v), sizeof v); }
void put(std::string* to, const std::string& text) {
    put(to, text.size());
    *to += text;
}
void put(std::string* to, const std::vector<int64_t>& list) {
    put(to, list.size());
    for (const int64_t v : list) put(to, uint64_t(v));
}

uint64_t take(std::string_view* from) {
    uint64_t v = 0;
    CHECK(from->size() >= sizeof v, "a packed manifest ends early");
    memcpy(&v, from->data(), sizeof v);
    from->remove_prefix(sizeof v);
    return v;
}
std::string take_text(std::string_view* from) {
    const size_t n = size_t(take(from));
    CHECK(from->size() >= n, "a packed manifest ends early");
    const std::string text(from->substr(0, n));
    from->remove_prefix(n);
    return text;
}
std::vector<int64_t> take_list(std::string_view* from) {
    std::vector<int64_t> list;
    for (uint64_t n = take(from); n > 0; n--) list.push_back(int64_t(take(from)));
    return list;
}

}  // namespace

std::string packed(const Manifest& m) {
    std::string bytes;
    put(&bytes, uint64_t(m.step));
    for (const std::string* text : {&m.run, &m.config, &m.mesh, &m.state}) put(&bytes, *text);
    for (const SavedPiece& p : m.pieces) {
        for (const std::string* text : {&p.tensor, &p.array, &p.dtype, &p.file}) put(&bytes, *text);
        for (const std::vector<int64_t>* list : {&p.shape, &p.start, &p.extent}) put(&bytes, *list);
        put(&bytes, p.at);
    }
    return bytes;
}

Manifest unpacked(std::string_view bytes) {
    Manifest m;
    m.step = int64_t(take(&bytes));
    for (std::string* text : {&m.run, &m.config, &m.mesh, &m.state}) *text = take_text(&bytes);
    while (!bytes.empty()) {
        SavedPiece& p = m.pieces.emplace_back();
        for (std::string* text : {&p.tensor, &p.array, &p.dtype, &p.file}) *text = take_text(&bytes);
        for (std::vector<int64_t>* list : {&p.shape, &p.start, &p.extent}) *list = take_list(&bytes);
        p.at = take(&bytes);
    }
    return m;
}

}  // namespace files
