// .tiktoken: a line per token, its bytes in base64 and its rank.
//
// The file has no merges. tiktoken joins the adjacent pair whose bytes together have the lowest rank,
// whatever the pair. Yet a single pair yields each token: joins within the token's bytes depend on nothing
// outside the token, as long as no join crosses the token's ends. So the last join in any text is the last
// join of the token's bytes alone. Encoding each token with the earlier merges finds the pair.
//
// The bytes of a token may also stop at three or more symbols. No join ever yields such a token; a word of
// exactly these bytes becomes the token, as tiktoken looks words up first. Llama 3's file has several hundred
// of them, among the ranks that follow cl100k's.
#include <cstring>
#include <set>

#include "llmc/base/check.h"
#include "llmc/io/files/shard.h"
#include "llmc/io/text/bpe.h"
#include "llmc/io/text/vocabulary.h"

inline namespace text {

static int base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

// Appends the bytes; false: not base64.
static bool decode_base64(std::string_view code, std::vector<char>& bytes) {
    static const auto values = [] {
        std::array<int8_t, 256> v;
        for (int c = 0; c < 256; c++) v[size_t(c)] = int8_t(base64_value(char(c)));
        return v;
    }();
    if (code.empty() || code.size() % 4) return false;
    int pad = code[code.size() - 2] == '=' ? 2 : 1;
    if (code.back() != '=') pad = 0;
    for (size_t i = 0; i < code.size(); i += 4) {
        const int digits = i + 4 == code.size() ? 4 - pad : 4;
        int bits = 0;
        for (int k = 0; k < 4; k++) {
            const int value = k < digits ? values[uint8_t(code[i + size_t(k)])] : 0;
            if (value < 0) return false;
            bits = bits << 6 | value;
        }
        for (int k = 0; k < digits - 1; k++) bytes.push_back(char(bits >> (16 - 8 * k)));
    }
    return true;
}

// Reads the tokens by rank, in the vocabulary's layout.
static void parse_lines(std::string_view content, const std::string& name, Vocabulary& v) {
    v.text.reserve(content.size() / 2);
    v.start.push_back(0);
    const char* p = content.data();
    const char* end = p + content.size();
    for (size_t line = 1; p < end; line++) {
        const char* newline = static_cast<const char*>(memchr(p, '\n', size_t(end - p)));
        const char* stop = newline ? newline : end;
        const char* next = newline ? newline + 1 : end;
        if (stop > p && stop[-1] == '\r') stop--;
        if (stop == p) { p = next; continue; }
        const char* space = static_cast<const char*>(memchr(p, ' ', size_t(stop - p)));
        CHECK_INPUT(space, "{}:{}: expected a token in base64, a space and its rank", name, line);
        CHECK_INPUT(decode_base64({p, size_t(space - p)}, v.text), "{}:{}: the token is not base64", name,
                    line);
        uint64_t rank = 0;
        for (p = space + 1; p < stop && *p >= '0' && *p <= '9' && rank < kMaxVocabulary; p++)
            rank = rank * 10 + uint64_t(*p - '0');
        const size_t expected = v.start.size() - 1;
        CHECK_INPUT(p == stop && stop > space + 1 && rank == expected,
                    "{}:{}: expected rank {}, found \"{:.20}\"", name, line, expected,
                    std::string_view(space + 1, stop));
        CHECK_INPUT(v.start.size() < kMaxVocabulary, "{}: more than {} tokens", name, kMaxVocabulary);
        v.start.push_back(uint32_t(v.text.size()));
        p = next;
    }
}

Vocabulary vocabulary_of_tiktoken(std::string_view content, const std::string& name) {
    Vocabulary v;
    parse_lines(content, name, v);
    const uint32_t n = uint32_t(v.start.size() - 1);
    CHECK_INPUT(n >= 256, "{}: {} tokens, expected 256 single bytes first", name, n);
    v.added.assign(n, 0);
    bool have[256] = {};
    for (uint32_t id = 0; id < 256; id++) {
        const std::string_view t = v.text_of(id);
        CHECK_INPUT(t.size() == 1 && !have[uint8_t(t[0])], "{}: token {} is not one of the 256 single bytes",
                    name, id);
        have[uint8_t(t[0])] = true;
        v.byte_id[uint8_t(t[0])] = id;
    }
    Bpe bpe(v, n);
    std::vector<uint32_t> ids;
    std::set<std::string_view> words;       // tokens that no join yields
    v.merges.reserve(n);
    for (uint32_t id = 256; id < n; id++) {
        const std::string_view word = v.text_of(id);
        if (ids.size() < word.size()) ids.resize(word.size());
        const size_t symbols = bpe_encode(bpe, word, ids.data());
        const bool twice = symbols == 1 || (symbols > 2 && !words.insert(word).second);
        CHECK_INPUT(!twice, "{}:{}: token {} is there twice", name, id + 1, id);
        if (symbols > 2) continue;
        const Merge m = {ids[0], ids[1], id};
        bpe.add(m);
        v.merges.push_back(m);
    }
    v.ignore_merges = !words.empty();
    v.words_are_tokens = true;
    v.eot = n;
    v.end_appended = true;
    v.added.push_back(1);
    v.text.insert(v.text.end(), kEndOfText.begin(), kEndOfText.end());
    v.start.push_back(uint32_t(v.text.size()));
    return v;
}

}  // namespace text
