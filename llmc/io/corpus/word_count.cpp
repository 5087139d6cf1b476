#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "llmc/base/progress.h"
#include "llmc/io/corpus/bpe_train.h"
#include "llmc/io/corpus/ordered_jobs.h"
#include "llmc/io/unicode/nfc.h"

inline namespace corpus {

namespace {

// Words to counts: open addressing, texts in a shared string.
struct Counter {
    struct Entry { uint64_t hash = 0, text = 0, count = 0; uint32_t length = 0; };      // count 0: empty
    std::vector<Entry> entries = std::vector<Entry>(1 << 16);
    size_t used = 0;
    std::string text;
    std::vector<uint64_t> starts;

    void add(std::string_view word, uint64_t times) {
        const uint64_t hash = XXH3_64bits(word.data(), word.size());
        size_t i = hash & (entries.size() - 1);
        for (; entries[i].count; i = (i + 1) & (entries.size() - 1)) {
            Entry& e = entries[i];
            if (e.hash == hash && std::string_view(text).substr(e.text, e.length) == word) {
                e.count += times;
                return;
            }
        }
        entries[i] = {hash, text.size(), times, uint32_t(word.size())};
        text += word;
        if (++used > entries.size() / 2) grow();
    }

    void grow() {
        std::vector<Entry> old(entries.size() * 2);
        old.swap(entries);
        for (const Entry& e : old) {
            if (!e.count) continue;
            size_t i = e.hash & (entries.size() - 1);
            while (entries[i].count) i = (i + 1) & (entries.size() - 1);
            entries[i] = e;
        }
    }

    void add_text(const char* s, size_t n, const Pattern& pattern) {
        std::string normal;
        if (pattern.nfc && !is_surely_nfc(s, n)) {
            normal = nfc_of({s, n});
            n = normal.size();
            normal.append(kTextPadding, '\0');
            s = normal.data();
        }
        starts.resize((n + 63) / 64);
        pattern.mark_starts(s, n, starts.data());
        size_t begin = 0;
        for (size_t block = 0; block < starts.size(); block++) {
            for (uint64_t bits = starts[block]; bits; bits &= bits - 1) {
                const size_t at = block * 64 + size_t(std::countr_zero(bits));
                if (at > begin) add({s + begin, at - begin}, 1);
                begin = at;
            }
        }
        if (n > begin) add({s + begin, n - begin}, 1);
    }
};

}  // namespace

WordCounts count_words(DocumentReader& reader, int threads, const Pattern& pattern) {
    std::vector<Counter> counters(size_t(std::max(threads, 1)));
    Progress progress("count words", "B", reader.total_bytes);
    run_ordered_jobs<TextChunk>(
        threads,
        [&](TextChunk& chunk) {
            progress.update(reader.position());
            return reader.next(chunk);
        },
        [&](int thread, TextChunk& chunk) {
            Counter& counter = counters[size_t(thread)];
            for (const DocumentSpan& p : chunk.spans)
                counter.add_text(chunk.text.data() + p.begin, p.end - p.begin, pattern);
            if (chunk.size > kJobBytes) counter.starts = {};
        },
        [](TextChunk&) {});
    Counter& all = counters[0];
    for (size_t t = 1; t < counters.size(); t++) {
        for (const auto& e : counters[t].entries)
            if (e.count) all.add({counters[t].text.data() + e.text, e.length}, e.count);
        counters[t] = {};
    }
    // By their bytes: the result does not depend on threads.
    std::erase_if(all.entries, [](const Counter::Entry& e) { return e.count == 0; });
    const auto text_of = [&](const Counter::Entry& e) {
        return std::string_view(all.text).substr(e.text, e.length);
    };
    std::sort(all.entries.begin(), all.entries.end(),
              [&](const auto& a, const auto& b) { return text_of(a) < text_of(b); });
    WordCounts words;
    words.text.reserve(all.text.size());
    for (const auto& e : all.entries) {
        words.text += text_of(e);
        words.length.push_back(e.length);
        words.count.push_back(e.count);
    }
    return words;
}

}  // namespace corpus
