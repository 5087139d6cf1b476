// GGUF, read as its format's description has it (ggml's docs/gguf.md, version 3): magic, version, counts,
// pairs of key and value, names with shapes and offsets, then the data, aligned to 32 bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "llmc/base/check.h"
#include "test/program.h"

namespace test {

struct GgufTensor {
    std::vector<uint64_t> shape;       // the fastest dimension first
    uint32_t type;                     // 0: FP32
    uint64_t offset;                   // from the start of the data
    std::vector<float> values;
};

struct Gguf {
    uint32_t version;
    std::map<std::string, std::string> value;      // as text; of a list its length
    std::map<std::string, GgufTensor> tensors;
};

struct GgufCursor {
    const std::string& bytes;
    size_t at = 0;
    template <class T> T get() {
        T v;
        CHECK(at + sizeof v <= bytes.size(), "the file ends early");
        memcpy(&v, bytes.data() + at, sizeof v);
        at += sizeof v;
        return v;
    }
    std::string text() {
        const auto n = get<uint64_t>();
        at += n;
        return bytes.substr(at - n, n);
    }
    std::string value(uint32_t type) {
        if (type == 4) return std::to_string(get<uint32_t>());
        if (type == 5) return std::to_string(get<int32_t>());
        if (type == 6) return std::to_string(get<float>());
        if (type == 7) return std::to_string(get<uint8_t>());
        if (type == 8) return text();
        CHECK(type == 9, "a value of type {}", type);
        const auto element = get<uint32_t>();
        const auto n = get<uint64_t>();
        for (uint64_t i = 0; i < n; i++) (void)value(element);
        return std::to_string(n);
    }
};

inline Gguf read_gguf(const std::string& path) {
    const std::string bytes = text_of(path);
    CHECK(bytes.substr(0, 4) == "GGUF", "{}: no magic", path);
    GgufCursor in{bytes, 4};
    Gguf g;
    g.version = in.get<uint32_t>();
    const auto tensors = in.get<uint64_t>(), pairs = in.get<uint64_t>();
    for (uint64_t i = 0; i < pairs; i++) {
        const std::string key = in.text();
        g.value[key] = in.value(in.get<uint32_t>());
    }
    for (uint64_t i = 0; i < tensors; i++) {
        GgufTensor& t = g.tensors[in.text()];
        t.shape.resize(in.get<uint32_t>());
        for (auto& n : t.shape) n = in.get<uint64_t>();
        t.type = in.get<uint32_t>();
        t.offset = in.get<uint64_t>();
    }
    const size_t data = (in.at + 31) / 32 * 32;
    for (auto& [name, t] : g.tensors) {
        size_t count = 1;
        for (uint64_t n : t.shape) count *= n;
        CHECK(t.type == 0 && data + t.offset + count * 4 <= bytes.size(), "{}: outside", name);
        t.values.resize(count);
        memcpy(t.values.data(), bytes.data() + data + t.offset, count * 4);
    }
    return g;
}

}  // namespace test
