#include "llmc/io/text/added_tokens.h"

#include <algorithm>

#include "llmc/io/unicode/nfc.h"
#include "llmc/io/unicode/pretokenize.h"
#include "llmc/io/unicode/unicode.h"

inline namespace text {

AddedTokens::AddedTokens(const Vocabulary& v) : nfc(v.nfc) {
    for (uint32_t id = 0; id < v.size(); id++) {
        if (!v.added[id] || v.text_of(id).empty()) continue;
        Names& names = v.added[id] & kNormalized ? normalized : raw;
        const std::string name(v.text_of(id));
        names.list.push_back({v.added[id] & kNormalized && nfc ? nfc_of(name) : name, id, v.added[id]});
    }
    raw.sort();
    normalized.sort();
}

void AddedTokens::Names::sort() {
    std::sort(list.begin(), list.end(), [](const Name& a, const Name& b) { return a.text < b.text; });
    for (const Name& name : list) {
        first[uint8_t(name.text[0]) + 1]++;
        longest = std::max(longest, name.text.size());
        in_texts |= (name.flags & kInTexts) != 0;
    }
    for (size_t b = 0; b < 256; b++) first[b + 1] += first[b];
}

// The names that agree with the text so far are a range of the list, which each byte narrows.
const AddedTokens::Name* AddedTokens::Names::longest_at(std::string_view text, size_t at) const {
    const Name* begin = list.data() + first[uint8_t(text[at])];
    const Name* end = list.data() + first[uint8_t(text[at]) + 1];
    const Name* found = nullptr;
    for (size_t n = 1; begin < end; n++) {
        if (begin->text.size() == n) found = begin++;
        if (at + n == text.size()) break;
        const uint8_t c = uint8_t(text[at + n]);
        const auto before = [n](const Name& name, uint8_t byte) { return uint8_t(name.text[n]) < byte; };
        const auto behind = [n](uint8_t byte, const Name& name) { return byte < uint8_t(name.text[n]); };
        begin = std::lower_bound(begin, end, c, before);
        end = std::upper_bound(begin, end, c, behind);
    }
    return found;
}

static const uint8_t* bytes_of(std::string_view text) {
    return reinterpret_cast<const uint8_t*>(text.data());
}

// Where the last character of a text begins.
static size_t last_character(std::string_view text) {
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && continues(uint8_t(text[at]))) at--;
    return at;
}

static bool is_word(std::string_view text, size_t at) {
    const Char c = decode_utf8(bytes_of(text) + at, text.size() - at);
    const CharClass k = class_of(c);
    return k == kLetter || k == kNumber || c.code == '_' || letter_class_of(c.code) == kMark;
}

static size_t without_space_before(std::string_view text, size_t end) {
    while (end > 0) {
        const size_t at = last_character(text.substr(0, end));
        if (class_of(decode_utf8(bytes_of(text) + at, end - at)) != kSpace) break;
        end = at;
    }
    return end;
}

static size_t behind_space(std::string_view text, size_t at) {
    while (at < text.size()) {
        const Char c = decode_utf8(bytes_of(text) + at, text.size() - at);
        if (class_of(c) != kSpace) break;
        at += c.bytes;
    }
    return at;
}

void AddedTokens::Names::split(std::string_view text, bool control, const OnPiece& piece,
                               const OnToken& token) const {
    size_t done = 0;
    for (size_t at = 0; at < text.size() && (in_texts || control);) {
        const uint8_t byte = uint8_t(text[at]);
        const Name* found = first[byte] == first[byte + 1] ? nullptr : longest_at(text, at);
        if (!found) {
            at++;
            continue;
        }
        size_t begin = at, end = at + found->text.size();
        at = end;
        if (!control && !(found->flags & kInTexts)) continue;
        const bool joins_word = (begin > 0 && is_word(text, last_character(text.substr(0, begin)))) ||
                                (end < text.size() && is_word(text, end));
        if (found->flags & kSingleWord && joins_word) continue;
        if (found->flags & kLeftStrip) begin = std::max(done, without_space_before(text, begin));
        if (found->flags & kRightStrip) end = behind_space(text, end);
        if (begin >= end) continue;         // within white space that kRightStrip took
        if (done < begin) piece(text.substr(done, begin - done));
        token(found->id);
        done = end;
    }
    if (done < text.size()) piece(text.substr(done));
}

void AddedTokens::split(std::string_view text, bool control, const OnPiece& piece,
                        const OnToken& token) const {
    raw.split(text, control, [&](std::string_view part) {
        if (!nfc || is_surely_nfc(part.data(), part.size()))
            return normalized.split(part, control, piece, token);
        const std::string padded = nfc_of(part) + std::string(kTextPadding, '\0');
        const std::string_view normal = std::string_view(padded).substr(0, padded.size() - kTextPadding);
        normalized.split(normal, control, piece, token);
    }, token);
}

bool AddedTokens::Names::touches(std::string_view text, size_t place) const {
    for (size_t at = place - std::min(place, longest); at <= place && at < text.size(); at++)
        for (size_t i = first[uint8_t(text[at])]; i < first[uint8_t(text[at]) + 1]; i++)
            if (at + list[i].text.size() >= place && text.substr(at).starts_with(list[i].text)) return true;
    return false;
}

bool AddedTokens::touches(std::string_view text, size_t place) const {
    const size_t begin = place - std::min(place, reach());
    const std::string_view left = text.substr(begin, place - begin), right = text.substr(place, reach());
    if (raw.touches(text.substr(begin, left.size() + right.size()), left.size())) return true;
    const std::string before = nfc ? nfc_of(left) : std::string(left);
    return normalized.touches(before + (nfc ? nfc_of(right) : std::string(right)), before.size());
}

}  // namespace text
