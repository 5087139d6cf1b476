#include "llmc/io/files/gguf.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"

inline namespace files {

using ull = unsigned long long;

static constexpr uint32_t kGgufVersion = 3;
static constexpr uint64_t kAlign = 32, kMaxCount = 1 << 24, kMaxText = 1 << 24;
enum Type : uint32_t { U8 = 0, I8 = 1, U16 = 2, I16 = 3, U32 = 4, I32 = 5, F32 = 6, Bool = 7, Text = 8,
                       Array = 9, U64 = 10, I64 = 11, F64 = 12 };

static uint64_t rounded_up(uint64_t at, uint64_t align) { return (at + align - 1) / align * align; }
static uint64_t aligned(uint64_t at) { return rounded_up(at, kAlign); }

static uint64_t elements(const GgufTensor& t) {
    uint64_t n = 1;
    for (const uint64_t d : t.shape) n *= d;
    return n;
}

static uint64_t bytes_of(const GgufTensor& t) {
    const GgufBlock block = block_of(t.type);
    return elements(t) / block.elements * block.bytes;
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

template <class T> static void put_typed(std::string& out, Type type, const T& v) {
    put(out, uint32_t(type));
    put(out, v);
}
static void put_value(std::string& out, uint32_t v) { put_typed(out, U32, v); }
static void put_value(std::string& out, int32_t v) { put_typed(out, I32, v); }
static void put_value(std::string& out, float v) { put_typed(out, F32, v); }
static void put_value(std::string& out, double v) { put_typed(out, F64, v); }
static void put_value(std::string& out, bool v) { put_typed(out, Bool, uint8_t(v)); }
static void put_value(std::string& out, const std::string& v) { put_typed(out, Text, v); }
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
        types.push_back(t.type);
        put(head, t.name);
        put(head, uint32_t(t.shape.size()));
        for (size_t i = t.shape.size(); i-- > 0;) put(head, t.shape[i]);
        const GgufBlock block = block_of(t.type);
        CHECK(t.shape.back() % block.elements == 0, "{}: rows of {}", t.name, (ull)t.shape.back());
        put(head, uint32_t(t.type));
        put(head, offset);
        offset = aligned(offset + bytes_of(t));
    }
    head.resize(aligned(head.size()));
    file.write(head.data(), head.size());
}

void GgufWriter::write(const float* data, size_t count) {
    static constexpr char zeros[kAlign] = {};
    CHECK(left > 0, "{}: more tensors than were announced", file.path);
    const std::vector<uint8_t> bytes = encode(types[types.size() - left--], data, count);
    file.write(bytes.data(), bytes.size());
    written += bytes.size();
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
        CHECK_INPUT(n <= kMaxCount && n <= (size - at) / least_bytes, "{}, byte {}: a count of {}",
                    path, (ull)at, (ull)n);
        return n;
    }
    template <class T> GgufValue integer() {
        const T v = get<T>();
        if (std::in_range<uint32_t>(v)) return uint32_t(v);
        if (std::in_range<int32_t>(v)) return int32_t(v);
        return double(v);
    }
    GgufValue list() {
        const uint32_t type = get<uint32_t>();
        static constexpr uint8_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
        CHECK_INPUT(type <= F64 && type != Array, "{}: a list of type {}", path, type);
        const uint64_t n = count(kBytes[type]);
        std::vector<int32_t> numbers;
        std::vector<std::string> texts;
        if (type == Text) {
            for (uint64_t i = 0; i < n; i++) texts.push_back(text());
            return texts;
        }
        if (type == I32 || type == U32) {
            numbers.resize(size_t(n));
            bytes(numbers.data(), n * 4);
        } else at += n * kBytes[type];
        return numbers;
    }
    GgufValue value() {
        const uint32_t type = get<uint32_t>();
        switch (type) {
            case U8: return integer<uint8_t>();
            case I8: return integer<int8_t>();
            case U16: return integer<uint16_t>();
            case I16: return integer<int16_t>();
            case U32: return get<uint32_t>();
            case I32: return get<int32_t>();
            case U64: return integer<uint64_t>();
            case I64: return integer<int64_t>();
            case F32: return get<float>();
            case F64: return get<double>();
            case Bool: return get<uint8_t>() != 0;
            case Text: return text();
            case Array: return list();
        }
        fatal(kExitConfig, __FILE__, __LINE__, "{}: a value of type {}, expected 0 to 12", path, type);
    }
    GgufTensor tensor() {
        GgufTensor t;
        t.name = text();
        const uint32_t dimensions = get<uint32_t>();
        CHECK_INPUT(dimensions <= 4, "{}: tensor {} has {} dimensions, expected 4 at most", path,
                    json_string(t.name), dimensions);
        t.shape.resize(dimensions);
        for (size_t i = t.shape.size(); i-- > 0;) t.shape[i] = get<uint64_t>();
        t.type = GgufType(get<uint32_t>());
        t.offset = get<uint64_t>();
        return t;
    }
};

}  // namespace

// data_bytes: of the file, behind its header.
static void check_tensor(const GgufTensor& t, const std::string& path, uint64_t align,
                         uint64_t data_bytes) {
    const GgufBlock block = block_of(t.type);
    CHECK_INPUT(block.bytes, "{}: tensor {} has elements of type {} ({}), expected one of {}", path,
                json_string(t.name), name_of(t.type), uint32_t(t.type), readable_types());
    uint64_t n = 1;
    bool fits = true;
    for (const uint64_t d : t.shape) fits = fits && !__builtin_mul_overflow(n, d, &n);
    const uint64_t row = t.shape.empty() ? 1 : t.shape.back();
    CHECK_INPUT(row % block.elements == 0, "{}: tensor {} has rows of {}, expected a multiple of {}", path,
                json_string(t.name), (ull)row, (ull)block.elements);
    fits = fits && t.offset <= data_bytes && n / block.elements <= (data_bytes - t.offset) / block.bytes;
    CHECK_INPUT(fits, "{}: tensor {} reaches beyond the end of the file: truncated\n       copy or make it "
                "again", path, json_string(t.name));
    CHECK_INPUT(t.offset % align == 0, "{}: tensor {} begins at byte {} of the data, expected a multiple of "
                "{}", path, json_string(t.name), (ull)t.offset, (ull)align);
}

// Data without gap or overlap: each tensor begins where the one before ends, rounded up to `align`. Only the
// last may be without the bytes of rounding.
static void check_tiling(const std::map<std::string, GgufTensor>& tensors, const std::string& path,
                         uint64_t align, uint64_t data_bytes) {
    std::vector<const GgufTensor*> sorted;
    for (const auto& [name, t] : tensors) sorted.push_back(&t);
    std::sort(sorted.begin(), sorted.end(), [](const GgufTensor* a, const GgufTensor* b) {
        return std::pair(a->offset, bytes_of(*a)) < std::pair(b->offset, bytes_of(*b));
    });
    std::string before = "the header";
    uint64_t end = 0;
    for (const GgufTensor* t : sorted) {
        CHECK_INPUT(t->offset == end, "{}: tensor {} begins at byte {} of the data, expected {}, where {} "
                    "ends: an offset, a shape or a type is wrong", path, json_string(t->name),
                    (ull)t->offset, (ull)end, before);
        end = rounded_up(t->offset + bytes_of(*t), align);
        before = fmt::format("{} of type {}", json_string(t->name), name_of(t->type));
    }
    CHECK_INPUT(data_bytes <= end, "{}: the file has {} bytes of data, but {} ends at {}: an offset, a shape "
                "or a type is wrong", path, (ull)data_bytes, before, (ull)end);
}

GgufFile::GgufFile(const std::string& p) : path(p), fd(open_read(p)) {
    Reader in{.path = path, .fd = fd.fd, .size = size_of_file(fd.fd, path)};
    char magic[4];
    in.bytes(magic, 4);
    const uint32_t version = in.get<uint32_t>();
    CHECK_INPUT(memcmp(magic, "GGUF", 4) == 0 && (version == 2 || version == kGgufVersion),
                "{}: not a GGUF file of version 2 or {}", path, kGgufVersion);
    const uint64_t tensor_count = in.count(24), pair_count = in.count(13);
    for (uint64_t i = 0; i < pair_count; i++) {
        const std::string key = in.text();
        CHECK_INPUT(pairs.emplace(key, in.value()).second, "{}: the key {} is there twice", path,
                    json_string(key));
    }
    for (uint64_t i = 0; i < tensor_count; i++) {
        GgufTensor t = in.tensor();
        const std::string name = t.name;
        CHECK_INPUT(tensors.emplace(name, std::move(t)).second, "{}: tensor {} is there twice", path,
                    json_string(name));
    }
    uint64_t align = kAlign;
    if (const auto named = pairs.find("general.alignment"); named != pairs.end()) {
        const uint32_t* n = std::get_if<uint32_t>(&named->second);
        CHECK_INPUT(n && *n >= 8 && *n <= 1 << 20 && (*n & (*n - 1)) == 0, "{}: general.alignment is no "
                    "power of two of 8 or more", path);
        align = *n;
    }
    data_start = rounded_up(in.at, align);
    const uint64_t data_bytes = in.size - std::min(in.size, data_start);
    for (const auto& [name, t] : tensors) check_tensor(t, path, align, data_bytes);
    check_tiling(tensors, path, align, data_bytes);
}

const GgufTensor* GgufFile::find(const std::string& name) const {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
}

void GgufFile::read(const GgufTensor& t, uint64_t first, size_t count, float* out) const {
    const GgufBlock block = block_of(t.type);
    CHECK(first % block.elements == 0 && count % block.elements == 0 && first + count <= elements(t),
          "{}: elements {} + {} of {}", t.name, (ull)first, count, (ull)elements(t));
    std::vector<uint8_t> stored(count / block.elements * block.bytes);
    const uint64_t at = data_start + t.offset + first / block.elements * block.bytes;
    pread_all(fd.fd, stored.data(), stored.size(), at, path);
    decode(t.type, stored.data(), count, out);
}

}  // namespace files
