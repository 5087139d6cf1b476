// Training: the merges of Hugging Face's trainer, and a naive one on random words.
#include "llmc/io/corpus/bpe_train.h"

#include <algorithm>
#include <map>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/io/text/vocabulary.h"
#include "test/test.h"

static const std::string kData = "test/data/tokenizer/";

static Vocabulary trained_on(const std::string& path, uint32_t vocab, int threads) {
    DocumentReader reader({path}, 0, ".");
    reader.chunk_bytes = 1000;
    return train_bpe(count_words(reader, threads), vocab);
}

TEST(merges_equal_those_of_hugging_face) {
    const Tokenizer expected = Tokenizer::load(kData + "hf.json");
    for (const int threads : {1, 3}) {
        const Tokenizer t(trained_on(kData + "corpus.txt", 1500, threads));
        const auto &a = t.vocabulary.merges, &b = expected.vocabulary.merges;
        EXPECT(a.size() == b.size() && a.size() == 1243, "%zu and %zu", a.size(), b.size());
        size_t same = 0;
        while (same < a.size() && a[same].left == b[same].left && a[same].right == b[same].right &&
               a[same].id == b[same].id)
            same++;
        EXPECT(same == b.size(), "%d threads: merge %zu differs", threads, same);
        EXPECT(t.hash() == expected.hash());
    }
}

// Counts every pair anew for each merge. Random words over few letters give ties only. Runs of one letter are
// left out: their counts depend on the treatment of overlaps.
TEST(merges_equal_those_of_a_naive_trainer) {
    for (uint64_t seed = 0; seed < 30; seed++) {
        const auto draw = [&](uint64_t i, uint64_t below) { return philox(seed, 1, i).x[0] % below; };
        WordCounts words;
        std::vector<std::pair<std::vector<uint32_t>, uint64_t>> parts;
        const auto& alphabet = byte_alphabet();
        for (uint64_t w = 0; w < 60; w++) {
            std::string word;
            for (uint64_t i = 0, n = 1 + draw(w * 100, 9); i < n; i++) {
                char c = char('a' + draw(w * 100 + 1 + i, 6));
                if (!word.empty() && c == word.back()) c = char(c + 6);
                word += c;
            }
            words.text += word;
            words.length.push_back(uint32_t(word.size()));
            words.count.push_back(1 + draw(w * 100 + 50, 3));
            std::vector<uint32_t> ids;
            for (const char c : word)
                ids.push_back(uint32_t(std::find(alphabet.order.begin(), alphabet.order.end(), uint8_t(c)) -
                                       alphabet.order.begin()));
            parts.push_back({ids, words.count.back()});
        }
        const Vocabulary v = train_bpe(words, 300);
        for (uint32_t k = 0; k < v.merges.size(); k++) {
            std::map<std::pair<uint32_t, uint32_t>, uint64_t> counts;
            for (const auto& [ids, times] : parts)
                for (size_t i = 0; i + 1 < ids.size(); i++) counts[{ids[i], ids[i + 1]}] += times;
            auto best = counts.begin();     // the smallest pair of the largest count
            for (auto it = counts.begin(); it != counts.end(); it++) if (it->second > best->second) best = it;
            const Merge m = v.merges[k];
            if (best->first != std::pair(m.left, m.right))
                EXPECT(false, "seed %llu, merge %u", (unsigned long long)seed, k);
            for (auto& [ids, times] : parts) {
                for (size_t i = 0; i + 1 < ids.size(); i++)
                    if (ids[i] == m.left && ids[i + 1] == m.right)
                        ids[i] = m.id, ids.erase(ids.begin() + std::ptrdiff_t(i) + 1);
            }
        }
        EXPECT(v.merges.size() == 43, "%zu merges", v.merges.size());
    }
}

TEST(a_text_may_have_fewer_pairs_than_asked_for) {
    const std::string path = test::temporary_directory() + "/few.txt";
    write_file(path, "abc abc");
    const Vocabulary v = trained_on(path, 1000, 1);
    EXPECT(v.size() == 256 + 3 + 1 && v.eot == v.size() - 1, "%u", v.size());
    EXPECT(v.text_of(256) == "ab" && v.text_of(257) == "abc" && v.text_of(258) == " abc");
    write_file(path, "");
    EXPECT(trained_on(path, 1000, 1).size() == 257);
    EXPECT(test::fatal_of([&] { trained_on(path, 256, 1); }).code == kExitConfig);
}

TEST(no_token_is_longer_than_the_limit) {
    const std::string path = test::temporary_directory() + "/one_word.txt";
    write_file(path, std::string(300000, 'a'));
    const Vocabulary v = trained_on(path, 1000, 1);
    size_t longest = 0;
    for (uint32_t id = 0; id < v.size(); id++) longest = std::max(longest, v.text_of(id).size());
    EXPECT(longest > kMaxTokenBytes / 4 && longest <= kMaxTokenBytes, "%zu bytes", longest);
}

// Names of --special are added tokens behind end-of-text, also after saving and loading.
TEST(special_tokens_of_a_new_vocabulary) {
    const std::string out = test::temporary_directory() + "/special.json",
                      train = "./tokenize train --vocab=400 --out=" + out + " " + kData + "corpus.txt ";
    const auto r = test::run(train + "'--special=<|im_start|>,<|im_end|>'");
    EXPECT(r.code == 0, "%s", r.err.c_str());
    const Tokenizer t = Tokenizer::load(out);
    EXPECT(t.vocab_size() == 400 && t.eot() == 397 && t.vocabulary.find_added("<|im_start|>") == 398 &&
           t.vocabulary.find_added("<|im_end|>") == 399, "%u ids, end-of-text %u", t.vocab_size(), t.eot());
    const auto ids = [&](const std::string& options) {
        return test::run("printf '<|im_end|>' | ./tokenize ids --tokenizer=" + out + options).out;
    };
    EXPECT(ids(" --added") == "399\n" && ids("").size() > 10, "'%s' '%s'", ids(" --added").c_str(),
           ids("").c_str());
    // a word of the text: no merge makes it
    EXPECT(test::run(train + "--special=the").code == 0 &&
               Tokenizer::load(out).vocabulary.find_added("the") == 399,
           "the name of a word");
    EXPECT(test::run("printf ' the' | ./tokenize ids --tokenizer=" + out).out.find("399") ==
           std::string::npos);
    for (const char* bad : {"<|endoftext|>", "a,a", "a,,b", "", "e", "\xff"}) {
        const auto refused = test::run(train + "'--special=" + bad + "'");
        EXPECT(refused.code == kExitConfig && refused.err.find("--special") != refused.err.npos, "%s: %d %s",
               bad, refused.code, refused.err.c_str());
    }
    EXPECT(test::run("./tokenize train --vocab=257 --special=x --out=" + out + " Makefile --as=text").code ==
           kExitConfig);
}
