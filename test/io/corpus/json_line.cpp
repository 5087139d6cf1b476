// Lines of a .jsonl: the fast scanner against the JSON library, on rows made at random and on damaged ones;
// UTF-8 in blocks; lines at every place of the reader's buffer.
#include "llmc/io/corpus/json_line.h"

#include <cstring>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/io/corpus/documents.h"
#include "llmc/io/unicode/unicode.h"
#include "test/test.h"

struct Random {
    uint64_t seed, at = 0;
    uint32_t operator()(uint32_t n) { return philox(seed, 7, at++).x[0] % n; }
    template <size_t N>
    const char* of(const char* const (&parts)[N]) {
        return parts[(*this)(N)];
    }
};

static std::string string_of(Random& random) {
    static const char* const parts[] = {"a",
                                        "Once upon a time ",
                                        "\\n",
                                        "\\\"",
                                        "\\\\",
                                        "\\/",
                                        "\\b\\f\\r\\t",
                                        "\\u00e9",
                                        "\\u0434",
                                        "\\u20ac",
                                        "\\ud83d\\ude00",
                                        "\\u0000",
                                        "\\uABCD",
                                        "\xc3\xa9",
                                        "\xe4\xbd\xa0",
                                        "\xf0\x9f\x98\x80",
                                        "\x7f",
                                        " ",
                                        "text",
                                        "\xed\x9f\xbf",
                                        "\xf4\x8f\xbf\xbf",
                                        "{\\\"text\\\": 1}"};
    std::string text = "\"";
    for (uint32_t n = random(random(4) ? 4 : 60); n > 0; n--) text += random.of(parts);
    return text + "\"";
}

static std::string value_of(Random& random, int depth) {
    static const char* const plain[] = {"0",       "-0",     "17",   "-1.5",  "1e5",
                                        "2.5E-07", "0.1e+3", "true", "false", "null"};
    const uint32_t kind = random(depth > 3 ? 6 : 9);
    if (kind < 3) return string_of(random);
    if (kind < 6) return random.of(plain);
    std::string text;
    for (uint32_t n = random(4); n > 0; n--) {
        text += text.empty() ? "" : ",";
        text +=
            kind == 6 ? value_of(random, depth + 1) : string_of(random) + " : " + value_of(random, depth + 1);
    }
    return kind == 6 ? "[" + text + " ]" : "{ " + text + "}";
}

static std::string row_of(Random& random) {
    static const char* const keys[] = {"\"text\"",       "\"id\"",    "\"\"",
                                       "\"te\\u0078t\"", "\"texts\"", "\"meta\""};
    static const char* const blanks[] = {"", "", " ", "\t \r"};
    std::string text = random.of(blanks) + std::string("{");
    for (uint32_t n = 1 + random(5), i = 0; i < n; i++) {
        text += i ? "," : "";
        text +=
            random.of(blanks) + std::string(random.of(keys)) + random.of(blanks) + ":" + random.of(blanks);
        text += value_of(random, 0) + random.of(blanks);
    }
    return text + "}" + random.of(blanks);
}

// Compares both readers on a row. Returns whether the scanner accepts the row.
static bool compare(const std::string& row, uint64_t seed) {
    std::string error;
    const std::string expected = parse_json_text(row, error);
    const std::string padded = row + std::string(kRowPadding, '"');  // bytes behind the row must not matter
    std::vector<char> out(row.size() + kRowPadding, '\1');
    size_t bytes = 0;
    const bool known = scan_json_line({padded.data(), row.size()}, out.data(), bytes);
    EXPECT(!known || (error.empty() && std::string(out.data(), bytes) == expected),
           "seed %llu: %zu bytes, not %zu %s", (unsigned long long)seed, bytes, expected.size(),
           error.c_str());
    return known;
}

TEST(the_scanner_agrees_with_the_library) {
    size_t with_text = 0, known = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        Random random{seed};
        const std::string row = row_of(random);
        std::string error;
        parse_json_text(row, error);
        with_text += error.empty();
        known += compare(row, seed);
    }
    EXPECT(known == with_text && known > 5000, "%zu of %zu rows are scanned", known, with_text);
}

TEST(damaged_rows) {
    size_t wrong = 0;
    for (uint64_t seed = 0; seed < 40000; seed++) {
        Random random{seed + 1000000};
        std::string row = row_of(random);
        static const char* const bad[] = {"\"",
                                          "\\",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\xff",
                                          "\xc3",
                                          "\x01",
                                          "0",
                                          "-",
                                          ".",
                                          "e",
                                          "\\ud800",
                                          "\\udc00",
                                          "\\u12",
                                          "\\x",
                                          "\xed\xa0\x80",
                                          "\xc0\x80",
                                          "\xf4\x90\x80\x80",
                                          "\xe0\x80\x80",
                                          "\xf0\x80\x80\x80",
                                          "nul",
                                          "tru"};
        for (uint32_t n = 1 + random(2); n > 0; n--) {
            const size_t at = random(uint32_t(row.size() + 1));
            if (random(2))
                row.insert(at, random.of(bad));
            else
                row.erase(at, 1 + random(3));
        }
        if (random(8) == 0) row.insert(random(uint32_t(row.size() + 1)), 1, '\0');
        std::string error;
        parse_json_text(row, error);
        wrong += !error.empty();
        compare(row, seed);
    }
    EXPECT(wrong > 20000, "%zu rows are wrong", wrong);
}

// Numbers and depths that the scanner leaves to the library.
TEST(rows_beyond_the_scanner) {
    const std::string digits(400, '9'), deep(200, '[');
    for (const std::string value :
         {digits.c_str(), "1e400", "1e-400", "1e308", "1e005", "01", "1.", ".5", "+1", "--1", "1e", "NaN"})
        compare("{\"n\": " + value + ", \"text\": \"a\"}", 0);
    compare("{\"n\": " + deep + std::string(200, ']') + ", \"text\": \"a\"}", 0);
    compare("{\"n\": " + deep, 0);
    compare("\xef\xbb\xbf{\"text\": \"a\"}", 0);
    std::string error;
    EXPECT(parse_json_text("\xef\xbb\xbf{\"text\": \"a byte order mark\"}", error) == "a byte order mark");
}

TEST(utf8_in_blocks) {
    for (uint64_t seed = 0; seed < 30000; seed++) {
        Random random{seed};
        static const char* const parts[] = {"a",
                                            "\xc3\xa9",
                                            "\xe4\xbd\xa0",
                                            "\xf0\x9f\x98\x80",
                                            "\xee\x80\x80",
                                            "\xed\x9f\xbf",
                                            "\xf4\x8f\xbf\xbf",
                                            "\xe0\xa0\x80",
                                            "\xf0\x90\x80\x80"};
        std::string text;
        while (text.size() < random(200)) text += random.of(parts);
        if (seed % 2 && !text.empty()) text[random(uint32_t(text.size()))] = char(random(256));
        if (seed % 3 == 0 && !text.empty()) text.pop_back();
        bool valid = true;
        for (size_t i = 0; i < text.size();) {
            const Char c = decode_utf8(reinterpret_cast<const uint8_t*>(text.data()) + i, text.size() - i);
            valid = valid && c.code != kInvalid;
            i += c.bytes;
        }
        const std::string padded = text + std::string(kRowPadding, '\xa9');
        if (is_utf8(padded.data(), text.size()) != valid)
            EXPECT(false, "seed %llu", (unsigned long long)seed);
    }
}

TEST(lines_at_every_place_of_the_buffer) {
    const std::string path = test::temporary_directory() + "/lines.jsonl";
    std::string rows, expected;
    Random random{5};
    for (int i = 0; i < 300; i++) {
        const std::string word(random(random(10) ? 50 : 3000), char('a' + i % 26));
        rows += "{\"text\": \"" + word + "\\n\"}" + (i % 7 ? "\n" : "\r\n\n");
        expected += word + "\n";
    }
    for (const bool newline : {true, false}) {
        write_file(path, newline ? rows : rows.substr(0, rows.size() - 1));
        for (const size_t chunk : {1, 7, 64, 1000, 100000}) {
            DocumentReader reader({path}, 0, ".");
            reader.chunk_bytes = chunk;
            std::string text;
            for (TextChunk c; reader.next(c);) text.append(c.text.data(), c.size);
            EXPECT(text == expected && reader.documents == 300, "chunks of %zu: %zu bytes", chunk,
                   text.size());
        }
    }
    DocumentReader reader({path}, 0, ".");
    reader.chunk_bytes = 100, reader.max_word = 1000;
    const Fatal f = test::fatal_of([&] {
        for (TextChunk c; reader.next(c);) continue;
    });
    EXPECT(f.code == kExitConfig && strstr(f.what(), "lines.jsonl:") && strstr(f.what(), "1.00 kB"), "%s",
           f.what());
}
