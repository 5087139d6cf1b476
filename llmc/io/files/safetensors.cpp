#include "llmc/io/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"
#include "llmc/base/json/json_value.h"

inline namespace files {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

static constexpr uint64_t kMaxHeader = 100'000'000;    // as in the reference implementation

size_t safetensors_dtype_bytes(std::string_view dtype) {
    static constexpr struct { std::string_view name; size_t bytes; } kTypes[] = {
        {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},
        {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    const auto* const t = std::ranges::find(kTypes, dtype, [](const auto& type) { return type.name; });
    return t == std::end(kTypes) ? 0 : t->bytes;
}

// Bytes of a tensor by its shape; false: more than 64 bits hold, or a negative size.
static bool shape_bytes(const TensorInfo& t, uint64_t* bytes) {
    *bytes = safetensors_dtype_bytes(t.dtype);
    for (const int64_t n : t.shape)
        if (n < 0 || __builtin_mul_overflow(*bytes, uint64_t(n), bytes)) return false;
    return true;
}

static std::string text_of(const std::vector<int64_t>& shape) {
    return json_list(shape, [](int64_t n) { return json_text(n); }, ", ");
}

// Text of a file, for a message.
static std::string shown(std::string_view name) { return json_string(name.substr(0, 80)); }
static std::string shown(const std::vector<int64_t>& shape) {
    return shape.size() <= 8 ? text_of(shape) : fmt::format("of {} dimensions", shape.size());
}

// ---------------------------------------------------------------------------------------------------------
// writer
static std::string header_of(const std::vector<TensorInfo>& tensors, const SafetensorsMetadata& metadata) {
    JsonObject all, more;
    for (const auto& [key, value] : metadata) more.add(key, value);
    if (!metadata.empty()) all.add("__metadata__", more);
    for (const TensorInfo& t : tensors)
        all.add(t.name, JsonObject().add("dtype", t.dtype).raw("shape", text_of(t.shape))
                            .add("data_offsets", std::vector{t.begin, t.end}));
    std::string h = all.str();
    h.resize((h.size() + 7) / 8 * 8, ' ');
    return h;
}

std::string safetensors_head(std::vector<TensorInfo>& tensors, const SafetensorsMetadata& metadata) {
    std::set<std::string> names = {"__metadata__"};
    uint64_t at = 0;
    for (TensorInfo& t : tensors) {
        uint64_t bytes;
        CHECK(names.insert(t.name).second, "two tensors '{}'", t.name);
        CHECK(safetensors_dtype_bytes(t.dtype) && shape_bytes(t, &bytes), "tensor '{}' of {} {}",
              t.name, t.dtype, shown(t.shape));
        t.begin = at;
        t.end = at += bytes;
    }
    const std::string header = header_of(tensors, metadata);
    const uint64_t bytes = header.size();
    return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + header;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                                     const SafetensorsMetadata& metadata)
    : file(path) {
    const std::string head = safetensors_head(tensors, metadata);
    left = tensors.empty() ? 0 : tensors.back().end;
    file.write(head.data(), head.size());
}

void SafetensorsWriter::write(const void* data, size_t bytes) {
    CHECK(bytes <= left, "{}: {} bytes more, the header leaves room for {}", file.path, bytes, left);
    file.write(data, bytes);
    left -= bytes;
}

void SafetensorsWriter::close() {
    CHECK(left == 0, "{}: closed with {} bytes of tensors missing", file.path, left);
    file.commit();
}

// ---------------------------------------------------------------------------------------------------------
// reader

namespace {
// Receives the header's events from the parser, and stops at the first violation of the format. Nothing nests
// deeper than {"name": {"key": [ numbers ]}}.
struct HeaderReader {
    std::vector<TensorInfo> tensors;
    SafetensorsMetadata metadata;
    std::string error;

    enum { Outside, Top, Metadata, Entry, Array } at = Outside;
    std::set<std::string, std::less<>> names;       // of Top
    std::string field;                              // key in Metadata or Entry whose value comes next
    bool has_dtype, has_shape, has_offsets;         // of the Entry
    std::vector<int64_t> offsets;

    std::string where() const {
        if (at == Outside || at == Top) return "the header";
        return at == Metadata ? "__metadata__" : "tensor " + shown(tensors.back().name);
    }
    bool fail(const std::string& what) {
        error = where() + " " + what;
        return false;
    }
    bool wrong(const char* found) {
        const std::string has = "has " + std::string(found);
        if (at == Metadata) return fail(has + " at " + shown(field) + ", expected a string");
        if (at == Entry || at == Array) return fail(has + " in " + shown(field));
        return fail(has + " where an object is expected");
    }

    bool start_object() {
        if (at == Outside) {
            at = Top;
            return true;
        }
        if (at != Top) return wrong("an object");
        at = field == "__metadata__" ? Metadata : Entry;
        if (at == Metadata) return true;
        tensors.push_back({.name = field, .dtype = {}, .shape = {}});
        offsets.clear();
        has_dtype = has_shape = has_offsets = false;
        return true;
    }

    bool* flag_of(std::string_view k) {
        if (k == "dtype") return &has_dtype;
        if (k == "shape") return &has_shape;
        return k == "data_offsets" ? &has_offsets : nullptr;
    }
    bool key(std::string& k) {
        if (at == Top && !names.insert(k).second) return fail("has " + shown(k) + " twice");
        if (at == Metadata && metadata.contains(k)) return fail("has " + shown(k) + " twice");
        if (at == Entry) {
            bool* has = flag_of(k);
            if (!has) return fail("has the key " + shown(k) + ", expected dtype, shape and data_offsets");
            if (*has) return fail("has " + shown(k) + " twice");
            *has = true;
        }
        field = std::move(k);
        return true;
    }

    bool string(std::string& s) {
        if (at == Metadata) {
            metadata[field] = std::move(s);
            return true;
        }
        if (at != Entry || field != "dtype") return wrong("a string");
        if (!safetensors_dtype_bytes(s)) return fail("has dtype " + shown(s) + ", which is not known");
        tensors.back().dtype = std::move(s);
        return true;
    }

    bool end_list() {
        at = Entry;
        if (field == "data_offsets" && offsets.size() != 2)
            return fail(fmt::format("has {} data_offsets, expected two", offsets.size()));
        return true;
    }

    bool end_object() {
        if (at == Entry) {
            for (const char* needed : {"dtype", "shape", "data_offsets"})
                if (!*flag_of(needed)) return fail("has no " + std::string(needed));
            tensors.back().begin = uint64_t(offsets[0]);
            tensors.back().end = uint64_t(offsets[1]);
        }
        at = at == Top ? Outside : Top;
        return true;
    }

    bool value(Json& v) {
        if (auto* text = std::get_if<std::string>(&v.value)) return string(*text);
        if (v.is_null() || v.is_boolean()) return wrong(v.is_null() ? "null" : "a boolean");
        if (v.is_integer() && !v.is_natural()) return wrong("a negative number");
        if (v.is_natural() && at != Array) return wrong("a number");
        if (!v.is_natural() || v.natural() > uint64_t(INT64_MAX))
            return wrong("a number that is no 64-bit integer");
        (field == "shape" ? tensors.back().shape : offsets).push_back(v.integer());
        return true;
    }

    bool take(JsonEvent& e) {
        switch (e.kind) {
        case JsonEvent::StartObject: return start_object();
        case JsonEvent::EndObject: return end_object();
        case JsonEvent::StartList:
            if (at != Entry || field == "dtype") return wrong("an array");
            at = Array;
            return true;
        case JsonEvent::EndList: return end_list();
        case JsonEvent::Key: return key(std::get<std::string>(e.value.value));
        case JsonEvent::Value: return value(e.value);
        }
        return false;
    }
    bool read(std::string_view header) {
        try {
            return read_json(header, [&](JsonEvent& e) { return take(e); });
        } catch (const JsonError& e) {
            error = fmt::format("the header is not valid JSON at its byte {}: {}", e.byte, e.why);
            return false;
        }
    }
};

}  // namespace

// Every tensor has the bytes of its shape, and together the tensors are the data: no gap, no overlap, no
// rest.
static void check_offsets(const std::string& path, std::vector<TensorInfo>& tensors, uint64_t data_bytes) {
    std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    uint64_t at = 0;
    for (const TensorInfo& t : tensors) {
        const std::string name = path + ": tensor " + shown(t.name), shape = shown(t.shape);
        uint64_t bytes;
        CHECK_INPUT(shape_bytes(t, &bytes), "{}: shape {} exceeds any file", name, shape);
        CHECK_INPUT(t.begin <= t.end && t.end - t.begin == bytes,
                    "{}: shape {} of {} takes {} bytes, data_offsets are [{}, {}]", name, shape,
                    t.dtype, bytes, t.begin, t.end);
        CHECK_INPUT(t.begin == at, "{}: begins at byte {} of the data, expected {}, where the one "
                    "before ends", name, t.begin, at);
        CHECK_INPUT(t.end <= data_bytes, "{}: ends at byte {} of the data, but the file has {}: "
                    "truncated\n       copy or make it again", name, t.end, data_bytes);
        at = t.end;
    }
    CHECK_INPUT(at == data_bytes, "{}: the tensors end at byte {} of the data, but the file has {}",
                path, at, data_bytes);
}

// The header's text. The header's size is checked against the file before memory is allocated.
static std::string read_header(const std::string& path, int fd, uint64_t size) {
    CHECK_INPUT(size >= 8, "{}: not a safetensors file: it has {} bytes, less than 8", path, size);
    char start[24] = {};
    pread_all(fd, start, std::min<uint64_t>(size, sizeof start), 0, path);
    CHECK_INPUT(memcmp(start, "version https://git-lfs", 23) != 0,
                "{}: a Git LFS pointer, not the data: run \"git lfs pull\" where it was cloned", path);
    uint64_t bytes;
    memcpy(&bytes, start, sizeof bytes);
    CHECK_INPUT(bytes <= kMaxHeader, "{}: not a safetensors file: its header would have {} bytes, "
                "at most {} may be", path, bytes, kMaxHeader);
    CHECK_INPUT(bytes <= size - 8, "{}: the header has {} bytes, but the file ends after {}: truncated\n"
                "       copy or make it again", path, bytes, size - 8);
    CHECK_INPUT(bytes > 0 && start[8] == '{', "{}: not a safetensors file: the header does not begin "
                "with '{{'", path);
    std::string header(bytes, '\0');
    pread_all(fd, header.data(), bytes, 8, path);
    return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path(path), fd(open_read(path)) {
    const uint64_t size = size_of_file(fd.fd, path);
    HeaderReader reader;
    {
        const std::string header = read_header(path, fd.fd, size);
        CHECK_INPUT(reader.read(header), "{}: {}", path, reader.error);
        data_start = 8 + header.size();
    }
    tensors = std::move(reader.tensors);
    metadata = std::move(reader.metadata);
    check_offsets(path, tensors, size - data_start);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
    const auto t = std::ranges::find(tensors, name, &TensorInfo::name);
    return t == tensors.end() ? nullptr : &*t;
}

const TensorInfo& SafetensorsFile::require(std::string_view name, std::string_view dtype,
                                           const std::vector<int64_t>& shape) const {
    const TensorInfo* t = find(name);
    CHECK_INPUT(t, "{}: tensor {} is missing", path, shown(name));
    CHECK_INPUT(t->dtype == dtype && t->shape == shape, "{}: tensor {}: expected {} {}, found {} {}",
                path, shown(name), std::string(dtype), shown(shape), t->dtype, shown(t->shape));
    return *t;
}

void SafetensorsFile::read(const TensorInfo& t, void* out, uint64_t offset, size_t bytes) const {
    CHECK(offset <= t.bytes() && bytes <= t.bytes() - offset, "{}: tensor {}: bytes {} + {} of {}", path,
          shown(t.name), offset, bytes, t.bytes());
    pread_all(fd.fd, out, bytes, data_start + t.begin + offset, path);
}

}  // namespace files
