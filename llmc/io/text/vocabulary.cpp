#include "llmc/io/text/vocabulary.h"

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/io/files/shard.h"
#include "llmc/io/unicode/unicode.h"

inline namespace text {

const ByteAlphabet& byte_alphabet() {
    static const ByteAlphabet alphabet = [] {
        ByteAlphabet a;
        a.to_byte.fill(-1);
        int next = 256, place = 0;
        for (int b = 0; b < 256; b++) {
            const bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
            a.of_byte[size_t(b)] = uint16_t(itself ? b : next++);
            a.to_byte[a.of_byte[size_t(b)]] = int16_t(b);
        }
        for (const int16_t b : a.to_byte) if (b >= 0) a.order[size_t(place++)] = uint8_t(b);
        return a;
    }();
    return alphabet;
}

bool bytes_of_characters(std::string_view characters, std::string& bytes) {
    const ByteAlphabet& a = byte_alphabet();
    bytes.clear();
    for (size_t i = 0; i < characters.size();) {
        const Char c =
            decode_utf8(reinterpret_cast<const uint8_t*>(characters.data()) + i, characters.size() - i);
        if (c.code >= a.to_byte.size() || a.to_byte[c.code] < 0) return false;
        bytes += char(a.to_byte[c.code]);
        i += c.bytes;
    }
    return true;
}

std::string characters_of_bytes(std::string_view bytes) {
    std::string characters;
    for (const char b : bytes) {
        char utf8[4];
        characters.append(utf8, size_t(encode_utf8(byte_alphabet().of_byte[uint8_t(b)], utf8)));
    }
    return characters;
}

int64_t Vocabulary::find_added(std::string_view name) const {
    for (uint32_t id = 0; id < size(); id++)
        if (added[id] && text_of(id) == name) return id;
    return -1;
}

int64_t TokenList::find_added(std::string_view name) const {
    for (size_t id = 0; id < text.size(); id++)
        if (added[id] && text[id] == name) return int64_t(id);
    return -1;
}

Vocabulary vocabulary_of_tokens(const TokenList& tokens, uint32_t eot, const std::string& name) {
    const size_t n = tokens.text.size();
    CHECK_INPUT(n <= kMaxVocabulary, "{}: {} tokens, expected at most {}", name, n, kMaxVocabulary);
    Vocabulary v;
    v.added = tokens.added;
    v.eot = eot;
    v.eos = eot;
    std::fill_n(v.byte_id, 256, kNoByte);
    v.start.reserve(n + 1);
    v.start.push_back(0);
    for (uint32_t id = 0; id < n; id++) {
        const std::string& t = tokens.text[id];
        CHECK_INPUT(!t.empty(), "{}: token {} is empty", name, id);
        v.text.insert(v.text.end(), t.begin(), t.end());
        v.start.push_back(uint32_t(v.text.size()));
        if (t.size() > 1 || v.added[id]) continue;
        CHECK_INPUT(v.byte_id[uint8_t(t[0])] == kNoByte,
                    "{}: tokens {} and {} are both the byte 0x{:02x}", name,
                    v.byte_id[uint8_t(t[0])], id, uint8_t(t[0]));
        v.byte_id[uint8_t(t[0])] = id;
    }
    std::string missing;
    for (uint8_t b = ' '; b <= '~'; b++)
        if (v.byte_id[b] == kNoByte) missing += char(b);
    CHECK_INPUT(missing.empty(), "{}: {} of the 95 printable ASCII characters have no token: {:.40}. A "
                "byte-level vocabulary is trained with them as its\n       initial alphabet (Hugging Face's "
                "BpeTrainer: initial_alphabet=ByteLevel.alphabet()); without, text would be lost", name,
                missing.size(), missing);
    return v;
}

}  // namespace text
