#include "llmc/io/files/safetensors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "test/test.h"

using test::folder;

// A file as any other program might write it.
static std::string file_of(const std::string& header, const std::string& data) {
    const uint64_t n = header.size();
    return std::string(reinterpret_cast<const char*>(&n), 8) + header + data;
}

// The error of a file with this content; code 0: no error.
static Fatal error_of(const std::string& content) {
    const std::string path = folder("bad.safetensors");
    write_file(path, content);
    return test::fatal_of([&] { SafetensorsFile f(path); });
}

static std::vector<TensorInfo> of_every_dtype() {
    std::vector<TensorInfo> tensors;
    for (const char* dtype : {"F64", "I64", "U64", "F32", "I32", "U32", "F16", "BF16", "I16", "U16",
                              "I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"})
        tensors.push_back({.name = std::string("a ") + dtype, .dtype = dtype, .shape = {3, 2}});
    tensors.push_back({.name = "scalar", .dtype = "F64", .shape = {}});
    tensors.push_back({.name = "empty", .dtype = "F32", .shape = {5, 0, 7}});
    tensors.push_back({.name = "quote \" slash \\ umlaut \u00fc line \n", .dtype = "U8", .shape = {1}});
    return tensors;
}

static std::string bytes_of(const TensorInfo& t, size_t count) {
    std::string bytes(count, '\0');
    for (size_t i = 0; i < count; i++) bytes[i] = char(i * 37 + t.name.size() * 11);
    return bytes;
}

TEST(round_trip_of_every_dtype) {
    const std::string path = folder("all.safetensors");
    const auto tensors = of_every_dtype();
    const SafetensorsMetadata metadata = {{"step", "7"}, {"key \"q\"", "value \u00fc\n"}};
    SafetensorsWriter w(path, tensors, metadata);
    for (const TensorInfo& t : tensors) {
        size_t count = safetensors_dtype_bytes(t.dtype);
        for (const int64_t n : t.shape) count *= size_t(n);
        const std::string bytes = bytes_of(t, count);
        for (size_t i = 0; i < count; i += 5) w.write(bytes.data() + i, std::min<size_t>(5, count - i));
    }
    EXPECT(!file_exists(path), "visible before it is complete");
    w.close();

    const SafetensorsFile f(path);
    EXPECT(f.metadata == metadata);
    const bool aligned = f.data_start % 8 == 0;
    EXPECT(aligned, "data starts at byte %llu", (unsigned long long)f.data_start);
    EXPECT(f.tensors.size() == tensors.size());
    for (size_t i = 0; i < tensors.size(); i++) {
        const TensorInfo& t = f.require(tensors[i].name, tensors[i].dtype, tensors[i].shape);
        EXPECT(&t == &f.tensors[i], "%s is not in its place", t.name.c_str());
        std::string bytes(t.bytes(), '\0');
        f.read(t, bytes.data());
        EXPECT(bytes == bytes_of(t, bytes.size()), "%s", t.name.c_str());
        if (bytes.size() < 4) continue;
        f.read(t, bytes.data(), 3, 1);
        EXPECT(bytes[0] == bytes_of(t, 4)[3], "%s from an offset", t.name.c_str());
    }
    EXPECT(f.find("absent") == nullptr);
}

TEST(reads_what_python_wrote) {
    const SafetensorsFile f("test/data/gpt_reference.safetensors");
    EXPECT(f.metadata.at("vocab") == "66" && f.metadata.at("weight_decay") == "0.1");
    const TensorInfo& t = f.require("init.wte", "F32", {66, 48});
    std::vector<float> wte(66 * 48);
    f.read(t, wte.data());
    double square = 0;
    for (const float x : wte) square += double(x) * x / double(wte.size());
    EXPECT_NEAR(square, 1.0 / 48, 0.1 / 48);
    int32_t token = -1;
    f.read(f.require("tokens", "I32", {10, 3, 20}), &token, 4, 4);
    EXPECT(token >= 0 && token < 66, "token %d", token);
}

TEST(reads_what_others_write) {
    const std::string path = folder("foreign.safetensors");
    write_file(path, file_of(
        "{ \"b\\u00fc\": {\"shape\": [2], \"data_offsets\": [4, 8], \"dtype\": \"F16\"},\n"
        "  \"a\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]} }  ", "abcdefgh"));
    const SafetensorsFile f(path);
    EXPECT(f.tensors[0].name == "a" && f.tensors[1].name == "b\u00fc");
    char text[5] = {};
    f.read(f.require("b\u00fc", "F16", {2}), text);
    EXPECT(!strcmp(text, "efgh"), "%s", text);
    write_file(path, file_of("{}", ""));
    EXPECT(SafetensorsFile(path).tensors.empty());
}

TEST(malformed_headers_are_named) {
    const std::string data = "12345678";
    const std::string good = "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}";
    const auto tensor = [](const char* dtype, const char* shape, const char* offsets) {
        return fmt::format("{{\"a\":{{\"dtype\":{},\"shape\":{},\"data_offsets\":{}}}}}", dtype, shape,
                           offsets);
    };
    EXPECT(error_of(file_of("{" + good + "}", data)).code == 0);
    const struct { std::string header, message; } cases[] = {
        {"[1]", "does not begin with '{'"},
        {" {}", "does not begin with '{'"},
        {"{" + good, "not valid JSON at its byte 54"},
        {"{" + good + "} x", "not valid JSON at its byte"},
        {"{" + good + "}" + std::string(1, '\0'), "not valid JSON at its byte 55"},
        {"{\"a\xff\":1}", "not valid JSON at its byte"},
        {"{" + good + "," + good + "}", "the header has \"a\" twice"},
        {"{\"a\":1}", "the header has a number where an object is expected"},
        {"{\"a\":[1]}", "the header has an array where an object is expected"},
        {"{\"__metadata__\":{\"k\":1}}", "__metadata__ has a number at \"k\", expected a string"},
        {"{\"__metadata__\":{\"k\":{}}}", "__metadata__ has an object at \"k\", expected a string"},
        {"{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}," + good + "}", "__metadata__ has \"k\" twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "the header has \"__metadata__\" twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "tensor \"a\" has no data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", "tensor \"a\" has no shape"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "tensor \"a\" has no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "tensor \"a\" has \"dtype\" twice"},
        {"{\"a\":{\"stride\":[1]}}", "tensor \"a\" has the key \"stride\", expected dtype, shape"},
        {tensor("\"F33\"", "[2]", "[0,8]"), "tensor \"a\" has dtype \"F33\", which is not known"},
        {tensor("[]", "[2]", "[0,8]"), "tensor \"a\" has an array in \"dtype\""},
        {tensor("32", "[2]", "[0,8]"), "tensor \"a\" has a number in \"dtype\""},
        {tensor("\"F32\"", "\"2\"", "[0,8]"), "tensor \"a\" has a string in \"shape\""},
        {tensor("\"F32\"", "2", "[0,8]"), "tensor \"a\" has a number in \"shape\""},
        {tensor("\"F32\"", "[[2]]", "[0,8]"), "tensor \"a\" has an array in \"shape\""},
        {tensor("\"F32\"", "[null]", "[0,8]"), "tensor \"a\" has null in \"shape\""},
        {tensor("\"F32\"", "[-2]", "[0,8]"), "tensor \"a\" has a negative number in \"shape\""},
        {tensor("\"F32\"", "[2.0]", "[0,8]"), "has a number that is no 64-bit integer in \"shape\""},
        {tensor("\"F32\"", "[18446744073709551615]", "[0,8]"), "no 64-bit integer in \"shape\""},
        {tensor("\"F32\"", "[4294967296,4294967296,0]", "[0,0]"), "4294967296, 0] exceeds any file"},
        {tensor("\"F32\"", "[2]", "[0,8,8]"), "tensor \"a\" has 3 data_offsets, expected two"},
        {tensor("\"F32\"", "[3]", "[0,8]"), "shape [3] of F32 takes 12 bytes, data_offsets are [0, 8]"},
        {tensor("\"F32\"", "[2]", "[8,0]"), "shape [2] of F32 takes 8 bytes, data_offsets are [8, 0]"},
        {tensor("\"F32\"", "[1]", "[4,8]"), "begins at byte 4 of the data, expected 0"},
        {tensor("\"F32\"", "[1]", "[0,4]"), "the tensors end at byte 4 of the data, but the file has 8"},
        {tensor("\"F32\"", "[4]", "[0,16]"), "ends at byte 16 of the data, but the file has 8: truncated"},
        {"{" + good + ",\"b\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[2,8]}}",
         "tensor \"b\": begins at byte 2 of the data, expected 8"},
    };
    for (const auto& c : cases) {
        const Fatal e = error_of(file_of(c.header, data));
        const bool named = e.code == kExitConfig && strstr(e.what(), "bad.safetensors: ");
        EXPECT(named && strstr(e.what(), c.message.c_str()), "%s: \"%s\" has no \"%s\"", c.header.c_str(),
               e.what(), c.message.c_str());
    }
}

TEST(foreign_files_are_named) {
    const auto expect = [](const std::string& content, const char* message) {
        const Fatal e = error_of(content);
        EXPECT(e.code == kExitConfig && strstr(e.what(), message), "\"%s\" has no \"%s\"", e.what(), message);
    };
    expect("", "not a safetensors file: it has 0 bytes");
    expect("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull");
    expect("<!DOCTYPE html><html>", "not a safetensors file: its header would have");
    expect(std::string("\xe8\x03\0\0\0\0\0\0{", 9), "the header has 1000 bytes, but the file ends after 1");
    expect(std::string(8, '\xff') + "{}", "at most 100000000 may be");
    expect(std::string(8, '\0') + "{}", "does not begin with '{'");
    const Fatal e = test::fatal_of([] { SafetensorsFile f(folder("absent.safetensors")); });
    EXPECT(e.code == kExitConfig && strstr(e.what(), "absent.safetensors"), "%s", e.what());
}

static std::string small_file() {
    const std::string path = folder("small.safetensors");
    const TensorInfo wte = {.name = "wte", .dtype = "F32", .shape = {3, 2}};
    const TensorInfo b = {.name = "b", .dtype = "BF16", .shape = {1}};
    SafetensorsWriter w(path, {wte, b}, {{"step", "1"}});
    w.write(std::string(26, 'x').data(), 26);
    w.close();
    return read_file(path);
}

TEST(truncation_at_every_byte_is_an_error) {
    const std::string whole = small_file();
    for (size_t n = 0; n < whole.size(); n++) {
        const Fatal e = error_of(whole.substr(0, n));
        EXPECT(e.code == kExitConfig, "cut to %zu of %zu bytes: exit code %d", n, whole.size(), e.code);
    }
    EXPECT(error_of(whole).code == 0);
    EXPECT(error_of(whole + "x").code == kExitConfig);
}

TEST(a_flipped_bit_in_the_header_is_an_error_or_another_header) {
    const std::string whole = small_file();
    uint64_t header;
    memcpy(&header, whole.data(), 8);
    for (size_t bit = 0; bit < 8 * (8 + header); bit++) {
        std::string damaged = whole;
        damaged[bit / 8] = char(damaged[bit / 8] ^ 1 << bit % 8);
        const Fatal e = error_of(damaged);
        EXPECT(e.code == 0 || e.code == kExitConfig, "bit %zu: exit code %d: %s", bit, e.code, e.what());
    }
}

TEST(files_beyond_4_gib) {
    const std::string path = folder("large.safetensors");
    const uint64_t n = 5ull << 30;
    const std::string size = std::to_string(n);
    const std::string head =
        file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[" + size + "],\"data_offsets\":[0," + size + "]}}", "");
    write_file(path, head);
    const Fd fd(open(path.c_str(), O_RDWR));
    if (ftruncate(fd.fd, off_t(head.size() + n)) != 0)
        return test::skip("no sparse file of 5 GiB: %s", strerror(errno));
    pwrite_all(fd.fd, "end", 3, head.size() + n - 3, path);
    const SafetensorsFile f(path);
    char text[4] = {};
    f.read(f.require("a", "U8", {int64_t(n)}), text, n - 3, 3);
    EXPECT(!strcmp(text, "end"), "%s", text);
}

TEST(require_says_what_is_there) {
    const std::string path = folder("small.safetensors");
    small_file();
    const SafetensorsFile f(path);
    const Fatal missing = test::fatal_of([&] { f.require("wpe", "F32", {3, 2}); });
    EXPECT(strstr(missing.what(), "small.safetensors: tensor \"wpe\" is missing"), "%s", missing.what());
    const Fatal shape = test::fatal_of([&] { f.require("wte", "F32", {3, 4}); });
    EXPECT(strstr(shape.what(), "tensor \"wte\": expected F32 [3, 4], found F32 [3, 2]"), "%s", shape.what());
    const Fatal dtype = test::fatal_of([&] { f.require("wte", "F64", {3, 2}); });
    EXPECT(strstr(dtype.what(), "expected F64 [3, 2], found F32 [3, 2]"), "%s", dtype.what());
}

TEST(a_writer_that_fails_says_why_and_leaves_nothing) {
    const Fatal where = test::fatal_of([] { SafetensorsWriter w(folder("no/such/a"), {}); });
    EXPECT(where.code == kExitConfig && strstr(where.what(), "no/such/a"), "%s", where.what());
    EXPECT(strstr(where.what(), "No such file"), "%s", where.what());

    const std::string path = folder("full.safetensors");
    rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit tiny = {1000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tiny);
    const Fatal full = test::fatal_of([&] {
        SafetensorsWriter w(path, {{.name = "a", .dtype = "U8", .shape = {5000}}});
        w.write(std::string(5000, 'x').data(), 5000);
    });
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT(strstr(full.what(), "full.safetensors: cannot be written: File too large"), "%s", full.what());
    EXPECT(glob_files(path + "*").empty());
}

TEST(a_writer_counts) {
    const std::string path = folder("count.safetensors");
    const std::vector<TensorInfo> tensors = {{.name = "a", .dtype = "U8", .shape = {4}}};
    const Fatal more = test::fatal_of([&] { SafetensorsWriter(path, tensors).write("12345", 5); });
    EXPECT(more.code == kExitInternal && strstr(more.what(), "leaves room for 4"), "%s", more.what());
    const Fatal less = test::fatal_of([&] { SafetensorsWriter(path, tensors).close(); });
    EXPECT(less.code == kExitInternal && strstr(less.what(), "4 bytes of tensors"), "%s", less.what());
    const Fatal twice = test::fatal_of([&] { SafetensorsWriter(path, {tensors[0], tensors[0]}); });
    EXPECT(twice.code == kExitInternal && strstr(twice.what(), "two tensors 'a'"), "%s", twice.what());
    EXPECT(!file_exists(path));
}
