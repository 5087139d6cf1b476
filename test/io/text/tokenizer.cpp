// Pre-tokenization and encoding against naive references, random bytes and the ids of tiktoken.
#include "llmc/io/text/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>

#include "llmc/base/disk/files.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/io/text/text_encoder.h"
#include "llmc/io/unicode/pretokenize.h"
#include "llmc/io/unicode/safe_cut.h"
#include "llmc/io/unicode/unicode.h"
#include "test/test.h"

static const std::string kData = "test/data/tokenizer/";

static uint64_t draw(uint64_t key, uint64_t index, uint64_t below) {
    return philox(key, 0, index).x[0] % below;
}

// Pieces that matter to the pattern, glued together at random; some are not UTF-8.
static std::string random_text(uint64_t seed, size_t pieces) {
    static const char* const parts[] = {
        "a", "b", "Z", "s", "ll", "ve", "re", "t", "d", "m", "1", "23", " ", " ", "  ", "\n", "\n\n", "\t",
        "\r\n", "'", "'s", "'ll", "'d", "'m", "'ve", "'D", "''", ".", "!?", "-", "\xc3\xa9",
        "\xe4\xbd\xa0", "\xc2\xa0", "\xe3\x80\x80", "\xe2\x80\x83", "\xf0\x9f\x98\x80", "\xcc\x81",
        "\xc2\xbd", "\xd9\xa1", "\xff", "\xc3", "\xe2\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80",
        "\x01"};
    std::string text;
    for (size_t i = 0; i < pieces; i++) text += parts[draw(seed, i, std::size(parts))];
    if (draw(seed, pieces, 4) == 0) text.insert(draw(seed, pieces + 1, text.size() + 1), 1, '\0');
    return text;
}

struct Symbol { size_t at, bytes; CharClass kind; char ascii; };

static std::vector<Symbol> symbols_of(std::string_view text) {
    std::vector<Symbol> all;
    for (size_t i = 0; i < text.size();) {
        const Char c = decode_utf8(reinterpret_cast<const uint8_t*>(text.data()) + i, text.size() - i);
        all.push_back({i, c.bytes, class_of(c), c.code < 128 ? char(c.code) : '\0'});
        i += c.bytes;
    }
    return all;
}

// The pattern's alternatives, tried in order at each place.
static size_t match_end(const std::vector<Symbol>& s, size_t i) {
    const size_t n = s.size();
    const auto is = [&](size_t k, char c) { return k < n && s[k].ascii == c && c; };
    if (is(i, '\'')) {
        for (const char c : {'s', 'd', 'm', 't'}) if (is(i + 1, c)) return i + 2;
        for (const char* c : {"ll", "ve", "re"}) if (is(i + 1, c[0]) && is(i + 2, c[1])) return i + 3;
    }
    const size_t first = s[i].ascii == ' ' ? i + 1 : i;
    if (first < n && s[first].kind != kSpace) {
        size_t end = first;
        while (end < n && s[end].kind == s[first].kind) end++;
        return end;
    }
    size_t end = i;
    while (end < n && s[end].kind == kSpace) end++;
    return end == n || end == i + 1 ? end : end - 1;
}

static std::vector<size_t> naive_starts(std::string_view text) {
    const std::vector<Symbol> s = symbols_of(text);
    std::vector<size_t> starts;
    for (size_t i = 0; i < s.size(); i = match_end(s, i)) starts.push_back(s[i].at);
    return starts;
}

static std::vector<size_t> fast_starts(std::string_view text) {
    std::string padded(text);
    padded.append(kTextPadding, 'x');       // bytes behind the text must not matter
    std::vector<uint64_t> bits((text.size() + 63) / 64);
    mark_gpt2(padded.data(), text.size(), bits.data());
    std::vector<size_t> starts;
    for (size_t i = 0; i < bits.size() * 64; i++) if (bits[i / 64] >> i % 64 & 1) starts.push_back(i);
    return starts;
}

TEST(unicode_classes_of_all_code_points) {
    std::vector<CharClass> expected(0x110000, kOther);
    std::istringstream lines(read_file("test/data/unicode_ranges.txt"));
    size_t ranges = 0;
    for (std::string line; std::getline(lines, line);) {
        char name;
        unsigned first, last;
        if (sscanf(line.c_str(), "%c %x %x", &name, &first, &last) != 3) continue;
        for (unsigned c = first; c <= last; c++)
            expected[c] = name == 'L' ? kLetter : name == 'N' ? kNumber : kSpace;
        ranges++;
    }
    EXPECT(ranges > 800, "%zu ranges", ranges);
    size_t wrong = 0;
    for (uint32_t c = 0; c < 0x110000; c++) wrong += class_of(c) != expected[c];
    EXPECT(wrong == 0, "%zu code points", wrong);
    EXPECT(class_of(kInvalid) == kOther && class_of(0xfffd) == kOther, "an invalid byte is as U+FFFD");
}

TEST(utf8_round_trip) {
    for (uint32_t c = 0; c < 0x110000; c++) {
        char utf8[4];
        const int n = encode_utf8(c, utf8);
        const Char d = decode_utf8(reinterpret_cast<uint8_t*>(utf8), size_t(n));
        const bool surrogate = c >= 0xd800 && c < 0xe000;
        if (surrogate ? d.code != kInvalid : d.code != c || int(d.bytes) != n)
            EXPECT(false, "U+%04X gives %x", c, d.code);
    }
}

TEST(pretokens_match_the_pattern) {
    for (uint64_t seed = 0; seed < 6000; seed++) {
        const std::string text = random_text(seed, 1 + draw(seed, 1000000, 150));
        if (fast_starts(text) != naive_starts(text)) EXPECT(false, "seed %llu", (unsigned long long)seed);
    }
}

TEST(pretokens_at_every_offset_of_a_block) {
    const std::string text = read_file(kData + "hard.txt").substr(0, 400);
    for (size_t shift = 0; shift < 130; shift++) {
        const std::string moved = std::string(shift, 'q') + text;
        EXPECT(fast_starts(moved) == naive_starts(moved), "shifted by %zu", shift);
        const std::string cut = moved.substr(0, moved.size() - shift);
        EXPECT(fast_starts(cut) == naive_starts(cut), "cut by %zu", shift);
    }
}

// Half of the texts have no white space.
TEST(a_safe_cut_changes_no_pretoken) {
    size_t cuts = 0, within_words = 0;
    for (uint64_t seed = 0; seed < 6000; seed++) {
        std::string text = random_text(seed, 40);
        if (seed % 2) std::erase_if(text, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
        if (text.empty()) continue;
        const size_t n = 1 + draw(seed, 2000000, text.size());
        const size_t cut = safe_cut(text.data(), n);
        if (cut == 0) continue;
        cuts++;
        within_words += text[cut] != ' ' && !(text[cut] >= '\t' && text[cut] <= '\r');
        std::vector<size_t> starts = naive_starts(std::string_view(text).substr(0, cut));
        for (const size_t s : naive_starts(std::string_view(text).substr(cut))) starts.push_back(cut + s);
        if (cut > n || starts != naive_starts(text))
            EXPECT(false, "seed %llu, cut at %zu of %zu", (unsigned long long)seed, cut, text.size());
    }
    EXPECT(cuts > 2000 && within_words > 1000, "%zu cuts, %zu at a change of class", cuts, within_words);
}

// By the definition: joins the pair of the lowest rank, the leftmost of equals, over and over.
static std::vector<int32_t> naive_encode(const Tokenizer& t, std::string_view text) {
    std::vector<int32_t> all;
    std::vector<size_t> at = naive_starts(text);
    at.push_back(text.size());
    for (size_t w = 0; w + 1 < at.size(); w++) {
        std::vector<uint32_t> ids;
        for (size_t i = at[w]; i < at[w + 1]; i++) ids.push_back(t.vocabulary.byte_id[uint8_t(text[i])]);
        for (;;) {
            uint32_t best = kNoRank;
            size_t place = 0;
            for (size_t i = 0; i + 1 < ids.size(); i++) {
                const uint32_t r = t.bpe->rank(ids[i], ids[i + 1]);
                if (r < best) best = r, place = i;
            }
            if (best == kNoRank) break;
            ids[place] = t.vocabulary.merges[best].id;
            ids.erase(ids.begin() + std::ptrdiff_t(place) + 1);
        }
        all.insert(all.end(), ids.begin(), ids.end());
    }
    return all;
}

template <class Id> static std::vector<int32_t> fast_encode(Encoder<Id>& encoder, std::string_view text) {
    std::string padded(text);
    padded.append(kTextPadding, 'x');
    IdBuffer<Id> ids;
    encoder.encode(padded.data(), text.size(), ids);
    return {ids.data.get(), ids.data.get() + ids.count};
}

TEST(encoders_agree_and_decode_gives_the_bytes_back) {
    const Tokenizer t = Tokenizer::load(kData + "hf.tiktoken");
    Encoder<uint16_t> narrow(t);
    Encoder<uint32_t> wide(t);
    for (uint64_t seed = 0; seed < 1500; seed++) {
        const size_t run = draw(seed, 3000000, 3) ? 0 : draw(seed, 3000001, 90);
        const std::string text = random_text(seed, 60) + std::string(run, "=a0"[draw(seed, 3000002, 3)]);
        const auto expected = naive_encode(t, text);
        const bool same = t.encode(text) == expected && fast_encode(narrow, text) == expected &&
                          fast_encode(wide, text) == expected;
        if (!same || t.decode(expected) != text) EXPECT(false, "seed %llu", (unsigned long long)seed);
    }
}

TEST(words_of_a_few_bytes) {
    const Tokenizer t = Tokenizer::load(kData + "hf.json");
    const std::string letters = "etaoinshrdlucmfwypvbgkqjxz";
    size_t joined = 0;
    for (const char a : letters) {
        for (const char b : letters) {
            for (const char c : letters) {
                for (const std::string& word : std::vector<std::string>{{a, b}, {a, b, c}, {' ', a, b}}) {
                    const auto ids = t.encode(word), expected = naive_encode(t, word);
                    if (ids != expected) EXPECT(false, "%s", word.c_str());
                    joined += ids.size() < word.size();
                }
            }
        }
    }
    EXPECT(joined > 5000, "%zu with a merge", joined);
}

TEST(random_bytes_round_trip) {
    const Tokenizer t = Tokenizer::load(kData + "hf.json");
    std::string text;
    for (size_t i = 0; i < 100000; i++) text += char(draw(7, i, 256));
    const auto ids = t.encode(text);
    EXPECT(t.decode(ids) == text);
    size_t bytes = 0;
    for (const int32_t id : ids) bytes += t.bytes_of(uint32_t(id)).size();
    EXPECT(bytes == text.size(), "%zu", bytes);
    EXPECT(t.bytes_of(t.eot()).empty() && t.eot() == 1499 && t.vocab_size() == 1500, "end-of-text %u of %u",
           t.eot(), t.vocab_size());
}

TEST(ids_equal_those_of_tiktoken) {
    const std::string text = read_file(kData + "hard.txt");
    std::istringstream lines(read_file(kData + "hard.ids"));
    const std::vector<int32_t> expected{std::istream_iterator<int32_t>(lines), {}};
    for (const char* file : {"hf.tiktoken", "hf.json", "gpt2"}) {
        const Tokenizer t = Tokenizer::load(kData + file);
        EXPECT(t.encode(text) == expected && expected.size() > 5000, "%s", file);
        Encoder<uint16_t> encoder(t);
        EXPECT(fast_encode(encoder, text) == expected, "%s", file);
        EXPECT(t.hash() == Tokenizer::load(kData + "hf.json").hash(), "%s: hash %016llx", file,
               (unsigned long long)t.hash());
    }
}

TEST(a_pretoken_of_a_megabyte) {
    const Tokenizer t = Tokenizer::load(kData + "hf.tiktoken");
    Encoder<uint16_t> encoder(t);
    std::string word;
    while (word.size() < 1 << 20) word += "abbabaababbaxyzzyx";
    EXPECT(t.decode(fast_encode(encoder, word)) == word);
    EXPECT(fast_encode(encoder, word.substr(0, 5000)) == naive_encode(t, word.substr(0, 5000)));
}

// More words than the cache holds: it is emptied, and nothing changes.
TEST(a_full_cache_starts_again) {
    const Tokenizer t = Tokenizer::load(kData + "hf.tiktoken");
    Encoder<uint16_t> encoder(t);
    std::string text;
    for (uint64_t round = 0; round < 10; round++) {
        text.clear();
        for (uint64_t i = 0; i < 100000; i++)
            text += fmt::format(" {:c}{}", char('a' + draw(round, i, 26)),
                                (round * 100000 + i) * 7919);
        EXPECT(t.decode(fast_encode(encoder, text)) == text, "round %llu", (unsigned long long)round);
    }
    const std::string_view part = std::string_view(text).substr(0, 5000);
    EXPECT(fast_encode(encoder, part) == naive_encode(t, part));
}
