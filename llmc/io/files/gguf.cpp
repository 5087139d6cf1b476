#include "llmc/io/files/gguf.h"

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"

using ull = unsigned long long;

static constexpr uint32_t kGgufVersion = 3;
static constexpr uint64_t kAlign = 32, kMaxCount = 1 << 24, kMaxText = 1 << 24;
enum Type : uint32_t { U32 = 4, I32 = 5, F32 = 6, Bool = 7, Text = 8, Array = 9 };
static constexpr uint32_t kTensorF32 = 0;

static uint64_t aligned(uint64_t at) { return (at + kAlign - 1) / kAlign * kAlign; }

static uint64_t elements(const GgufTensor& t) {
    uint64_t n = 1;
    for (const uint64_t d : t.shape) n *= d;
    return n;
}

// ---------------------------------------------------------------------------------------------------------
// writer

template <class T> static void put(std::string& out, T v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
}
static void put(std::string& out, const std::string& text) {
    put(out, uint64_t(text.size()));
    out += text;
}

static void put_value(std::string& out, uint32_t v) { put(out, uint32_t(U32)), put(out, v); }
static void put_value(std::string& out, int32_t v) { put(out, uint32_t(I32)), put(out, v); }
static void put_value(std::string& out, float v) { put(out, uint32_t(F32)), put(out, v); }
static void put_value(std::string& out, bool v) { put(out, uint32_t(Bool)), put(out, uint8_t(v)); }
static void put_value(std::string& out, const std::string& v) { put(out, uint32_t(Text)), put(out, v); }
template <class T> static void put_value(std::string& out, const std::vector<T>& list) {
    put(out, uint32_t(Array));
    put(out, uint32_t(std::is_same_v<T, std::string> ? Text : I32));
    put(out, uint64_t(list.size()));
    for (const T& v : list) put(out, v);
}

GgufWriter::GgufWriter(const std::string& path, const std::vector<GgufPair>& pairs,
                       std::vector<GgufTensor> tensors)
    : file(path), left(tensors.size()) {
    std::string head = "GGUF";
    put(head, kGgufVersion);
    put(head, uint64_t(tensors.size()));
    put(head, uint64_t(pairs.size()));
    for (const GgufPair& p : pairs) {
        put(head, p.key);
        std::visit([&](const auto& v) { put_value(head, v); }, p.value);
    }
    uint64_t offset = 0;
    for (GgufTensor& t : tensors) {
        put(head, t.name);
        put(head, uint32_t(t.shape.size()));
        for (size_t i = t.shape.size(); i-- > 0;) put(head, t.shape[i]);
        put(head, kTensorF32);
        put(head, offset);
        offset = aligned(offset + elements(t) * sizeof(float));
    }
    head.resize(aligned(head.size()));
    file.write(head.data(), head.size());
}

void GgufWriter::write(const float* data, size_t count) {
    static constexpr char zeros[kAlign] = {};
    CHECK(left > 0, "{}: more tensors than were announced", file.path);
    left--;
    file.write(data, count * sizeof(float));
    written += count * sizeof(float);
    file.write(zeros, aligned(written) - written);
    written = aligned(written);
}

void GgufWriter::close() {
    CHECK(left == 0, "{}: closed with {} tensors missing", file.path, (ull)left);
    file.commit();
}

// ---------------------------------------------------------------------------------------------------------
// reader

namespace {

struct Reader {
    const std::string& path;
    int fd;
    uint64_t at = 0, size;

    void bytes(void* out, uint64_t n) {
        CHECK_INPUT(n <= size - at, "{}: it ends at byte {}, in the middle of its header", path,
                    (ull)size);
        pread_all(fd, out, size_t(n), at, path);
        at += n;
    }
    template <class T> T get() {
        T v;
        bytes(&v, sizeof v);
        return v;
    }
    std::string text() {
        const uint64_t n = get<uint64_t>();
        CHECK_INPUT(n <= kMaxText && n <= size - at, "{}, byte {}: a text of {} bytes", path,
                    (ull)at, (ull)n);
        std::string s(size_t(n), '\0');
        bytes(s.data(), n);
        return s;
    }
    uint64_t count(uint64_t least_bytes) {
        const uint64_t n = get<uint64_t>();
        CHECK_INPUT(n <= kMaxCount && n * least_bytes <= size - at, "{}, byte {}: a count of {}",
                    path, (ull)at, (ull)n);
        return n;
    }
    GgufValue list() {
        const uint32_t type = get<uint32_t>();
        const uint64_t n = count(type == Text ? 8 : 4);
        CHECK_INPUT(type == Text || type == I32, "{}: a list of type {}", path, type);
        if (type == I32) {
            std::vector<int32_t> v(static_cast<size_t>(n));
            bytes(v.data(), n * 4);
            return v;
        }
        std::vector<std::string> v;
        for (uint64_t i = 0; i < n; i++) v.push_back(text());
        return v;
    }
    GgufValue value() {
        const uint32_t type = get<uint32_t>();
        switch (type) {
            case U32: return get<uint32_t>();
            case I32: return get<int32_t>();
            case F32: return get<float>();
            case Bool: return get<uint8_t>() != 0;
            case Text: return text();
            case Array: return list();
        }
        fatal(kExitConfig, __FILE__, __LINE__, "{}: a value of type {}, which is not read here", path,
              type);
    }
    GgufTensor tensor() {
        GgufTensor t;
        t.name = text();
        t.shape.resize(std::min(get<uint32_t>(), 5u));
        CHECK_INPUT(t.shape.size() <= 4, "{}: tensor '{}' has more than 4 dimensions", path,
                    t.name);
        for (size_t i = t.shape.size(); i-- > 0;) t.shape[i] = get<uint64_t>();
        const uint32_t type = get<uint32_t>();
        CHECK_INPUT(type == kTensorF32, "{}: tensor '{}' is of type {}, expected FP32 (0)", path,
                    t.name, type);
        t.offset = get<uint64_t>();
        return t;
    }
};

}  // namespace

GgufFile::GgufFile(const std::string& p) : path(p), fd(open_read(p)) {
    Reader in{.path = path, .fd = fd.fd, .size = size_of_file(fd.fd, path)};
    char magic[4];
    in.bytes(magic, 4);
    const uint32_t version = in.get<uint32_t>();
    CHECK_INPUT(memcmp(magic, "GGUF", 4) == 0 && version == kGgufVersion, "{}: not a GGUF file of version {}",
                path, kGgufVersion);
    const uint64_t tensor_count = in.count(24), pair_count = in.count(16);
    for (uint64_t i = 0; i < pair_count; i++) {
        const std::string key = in.text();
        CHECK_INPUT(pairs.emplace(key, in.value()).second, "{}: the key '{}' is there twice", path,
                    key);
    }
    for (uint64_t i = 0; i < tensor_count; i++) tensors.push_back(in.tensor());
    data_start = aligned(in.at);
}

uint32_t GgufFile::number(const std::string& key) const {
    const auto found = pairs.find(key);
    CHECK_INPUT(found != pairs.end() && std::holds_alternative<uint32_t>(found->second),
                "{}: no number '{}'", path, key);
    return std::get<uint32_t>(found->second);
}

void GgufFile::read(const std::string& name, const std::vector<uint64_t>& shape, uint64_t first,
                    size_t count, float* out) const {
    const auto t = std::find_if(tensors.begin(), tensors.end(), [&](auto& x) { return x.name == name; });
    CHECK_INPUT(t != tensors.end() && t->shape == shape, "{}: no tensor '{}' of the expected shape",
                path, name);
    const uint64_t size = size_of_file(fd.fd, path), bytes = elements(*t) * sizeof(float);
    CHECK_INPUT(data_start + t->offset <= size && bytes <= size - data_start - t->offset,
                "{}: tensor '{}' reaches beyond the end of the file", path, name);
    pread_all(fd.fd, out, count * sizeof(float), data_start + t->offset + first * sizeof(float), path);
}
