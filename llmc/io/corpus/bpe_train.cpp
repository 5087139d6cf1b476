// Counts like Hugging Face's trainer, as the counts decide ties and rare cases:
//
// - Each merge changes the counts of adjacent pairs. The merged pair's own count is never set to zero.
// - A queue entry of a pair lists the words where the pair *appeared in the last merge*; taking the entry
//   changes only these words. A pair can reappear (if a merge yields an existing token), as a new entry.
// - An entry with an outdated count goes back into the queue with the new count.
#include "llmc/io/corpus/bpe_train.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <string_view>
#include <unordered_map>

#include "llmc/base/check.h"
#include "llmc/base/progress.h"
#include "llmc/io/text/bpe.h"
#include "llmc/io/text/vocabulary.h"
#include "llmc/io/unicode/unicode.h"

inline namespace corpus {

namespace {

constexpr uint64_t kEmpty = ~uint64_t(0);

uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t(left) << 32 | right; }

// Pairs to counts, by open addressing.
struct PairCounts {
    struct Entry { uint64_t pair = kEmpty; int64_t count = 0; };
    std::vector<Entry> entries = std::vector<Entry>(1 << 16);
    size_t used = 0;
    int shift = 48;

    int64_t& operator[](uint64_t pair) {
        size_t i = place(pair);
        if (entries[i].pair == kEmpty) {
            if (++used > entries.size() / 2) {
                grow();
                i = place(pair);
            }
            entries[i].pair = pair;
        }
        return entries[i].count;
    }
    size_t place(uint64_t pair) const {
        size_t i = pair * 0x9e3779b97f4a7c15 >> shift;
        while (entries[i].pair != kEmpty && entries[i].pair != pair) i = (i + 1) & (entries.size() - 1);
        return i;
    }
    void grow() {
        std::vector<Entry> old(entries.size() * 2);
        old.swap(entries);
        shift--;
        for (const Entry& e : old) if (e.pair != kEmpty) entries[place(e.pair)] = e;
    }
};

struct Candidate {
    int64_t count;
    uint64_t pair;
    size_t words;       // index of the list of words where the pair appeared

    bool operator<(const Candidate& o) const {      // the queue returns the largest
        if (count != o.count) return count < o.count;
        return pair != o.pair ? pair > o.pair : words > o.words;
    }
};

struct Trainer {
    std::vector<std::string> token;                     // text of each id
    std::unordered_map<std::string, uint32_t> id_of;
    std::vector<Merge> merges;

    std::vector<uint32_t> symbols;                      // of every word; a word shrinks in place
    std::vector<uint64_t> begin;                        // of word w: symbols[begin[w]], length[w] of them
    std::vector<uint32_t> length;
    std::vector<int64_t> times;

    PairCounts counts;
    std::priority_queue<Candidate> queue;
    std::vector<std::vector<uint32_t>> lists;
    std::vector<size_t> as_left, as_right;  // by neighbour: list of (new, id) and of (id, new), + 1
    std::vector<uint64_t> appeared;                     // pairs in this merge

    Trainer(const WordCounts& words, uint32_t vocab);
    void count_pairs();
    void push_appeared();
    void appears(uint64_t pair, uint32_t fresh, uint32_t word);
    void merge_word(uint32_t word, Merge m);
    void merge(uint64_t pair, const std::vector<uint32_t>& words);
};

Trainer::Trainer(const WordCounts& words, uint32_t vocab) : as_left(vocab), as_right(vocab) {
    uint32_t byte_id[256];
    for (const uint8_t b : byte_alphabet().order) {
        byte_id[b] = uint32_t(token.size());
        token.emplace_back(1, char(b));
        id_of.emplace(token.back(), byte_id[b]);
    }
    CHECK_INPUT(words.length.size() < 0xffffffff, "{} different words, expected fewer than 2^32",
                words.length.size());
    length = words.length;
    symbols.reserve(words.text.size());
    for (const char c : words.text) symbols.push_back(byte_id[uint8_t(c)]);
    for (size_t w = 0, at = 0; w < length.size(); at += length[w++]) {
        begin.push_back(at);
        times.push_back(int64_t(words.count[w]));
    }
}

void Trainer::count_pairs() {
    std::unordered_map<uint64_t, size_t> list_of;
    for (uint32_t w = 0; w < length.size(); w++) {
        const uint32_t* s = symbols.data() + begin[w];
        for (uint32_t i = 0; i + 1 < length[w]; i++) {
            const uint64_t pair = pair_of(s[i], s[i + 1]);
            counts[pair] += times[w];
            const auto [at, fresh] = list_of.try_emplace(pair, lists.size());
            if (fresh) lists.emplace_back();
            auto& list = lists[at->second];
            if (list.empty() || list.back() != w) list.push_back(w);
        }
    }
    for (const auto& [pair, list] : list_of) queue.push({counts[pair], pair, list});
}

// Words come in order, so a word already in a list is the list's last.
void Trainer::appears(uint64_t pair, uint32_t fresh, uint32_t word) {
    const uint32_t left = uint32_t(pair >> 32), right = uint32_t(pair);
    size_t& list = left == fresh ? as_left[right] : as_right[left];
    if (list == 0) {
        lists.emplace_back();
        list = lists.size();
        appeared.push_back(pair);
    }
    auto& words = lists[list - 1];
    if (words.empty() || words.back() != word) words.push_back(word);
}

void Trainer::merge_word(uint32_t word, Merge m) {
    uint32_t* s = symbols.data() + begin[word];
    const uint32_t n = length[word];
    const int64_t k = times[word];
    uint32_t out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s[i] != m.left || i + 1 == n || s[i + 1] != m.right) { s[out++] = s[i]; continue; }
        if (out > 0) {
            counts[pair_of(s[out - 1], m.left)] -= k;
            counts[pair_of(s[out - 1], m.id)] += k;
            appears(pair_of(s[out - 1], m.id), m.id, word);
        }
        if (i + 2 < n) {
            counts[pair_of(m.right, s[i + 2])] -= k;
            counts[pair_of(m.id, s[i + 2])] += k;
            appears(pair_of(m.id, s[i + 2]), m.id, word);
        }
        s[out++] = m.id;
        i++;
    }
    length[word] = out;
}

void Trainer::merge(uint64_t pair, const std::vector<uint32_t>& words) {
    const uint32_t left = uint32_t(pair >> 32), right = uint32_t(pair);
    const auto [at, fresh] = id_of.try_emplace(token[left] + token[right], uint32_t(token.size()));
    if (fresh) token.push_back(at->first);
    const Merge m = {left, right, at->second};
    merges.push_back(m);
    for (const uint32_t w : words) merge_word(w, m);
    for (const uint64_t p : appeared) {
        const uint32_t l = uint32_t(p >> 32), r = uint32_t(p);
        size_t& list = l == m.id ? as_left[r] : as_right[l];
        if (const int64_t count = counts[p]; count > 0) queue.push({count, p, list - 1});
        list = 0;
    }
    appeared.clear();
}

// Of a pair merged twice, keeps the later merge, as in Hugging Face's table of merges.
std::vector<Merge> last_of_each(const std::vector<Merge>& merges) {
    std::unordered_map<uint64_t, size_t> last;
    for (size_t i = 0; i < merges.size(); i++) last[pair_of(merges[i].left, merges[i].right)] = i;
    std::vector<Merge> kept;
    for (size_t i = 0; i < merges.size(); i++) {
        if (last[pair_of(merges[i].left, merges[i].right)] == i) kept.push_back(merges[i]);
    }
    return kept;
}

}  // namespace

void check_vocabulary(uint32_t vocab, const std::vector<std::string>& special) {
    const size_t least = 257 + special.size();
    CHECK_INPUT(vocab >= least && vocab <= kMaxVocabulary,
                "--vocab={}, expected {} (256 bytes, end-of-text and {} of --special) to {}", vocab, least,
                special.size(), kMaxVocabulary);
    for (const std::string& name : special) {
        const bool once = std::count(special.begin(), special.end(), name) == 1 && name != kEndOfText;
        const std::string padded = name + std::string(kTextPadding, '\0');
        CHECK_INPUT(name.size() > 1 && once && is_utf8(padded.data(), name.size()),
                    "--special has the name \"{}\", expected each name once, of two bytes or more, none of "
                    "them {}", name, kEndOfText);
    }
}

Vocabulary train_bpe(const WordCounts& words, uint32_t vocab, const Pattern& pattern,
                     const std::vector<std::string>& special) {
    check_vocabulary(vocab, special);
    const uint32_t added = 1 + uint32_t(special.size());
    const auto is_special = [&](const std::string& text) {
        return std::find(special.begin(), special.end(), text) != special.end();
    };
    Trainer t(words, vocab);
    t.count_pairs();
    Progress progress("build vocabulary", "tokens", vocab);
    while (t.token.size() + added < vocab && !t.queue.empty()) {
        Candidate top = t.queue.top();
        t.queue.pop();
        const int64_t count = t.counts[top.pair];
        if (count != top.count) {
            top.count = count;
            t.queue.push(top);
            continue;
        }
        if (count < 1) break;
        const std::string &left = t.token[top.pair >> 32], &right = t.token[uint32_t(top.pair)];
        if (left.size() + right.size() > kMaxTokenBytes || is_special(left + right)) continue;
        const std::vector<uint32_t> where = std::move(t.lists[top.words]);
        t.merge(top.pair, where);
        progress.update(t.token.size());
    }
    TokenList tokens{std::move(t.token), {}};
    tokens.added.assign(tokens.text.size(), 0);
    const uint32_t eot = uint32_t(tokens.text.size());
    tokens.text.emplace_back(kEndOfText);
    tokens.text.insert(tokens.text.end(), special.begin(), special.end());
    tokens.added.resize(tokens.text.size(), 1);
    Vocabulary v = vocabulary_of_tokens(tokens, eot, "the trained vocabulary");
    v.merges = last_of_each(t.merges);
    v.pattern = &pattern;
    v.nfc = pattern.nfc;
    v.ignore_merges = pattern.ignore_merges;
    return v;
}

}  // namespace corpus
