// Every pre-tokenization against matches and ids of Hugging Face's tokenizers (dev/pattern_fixtures.py), and
// what tokenizer files say besides.
#include "llmc/io/unicode/pattern.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/text/pattern_check.h"
#include "llmc/io/text/text_encoder.h"
#include "llmc/io/text/tokenizer_gguf.h"
#include "llmc/io/unicode/nfc.h"
#include "llmc/io/unicode/safe_cut.h"
#include "test/test.h"

using nlohmann::json;

static const std::string kData = "test/data/tokenizer/";

static json hf_json() { return json::parse(read_file(kData + "hf.json")); }

static Tokenizer tokenizer_with(const Pattern& p) {
    Vocabulary v = vocabulary_of_json(read_file(kData + "hf.json"), "hf.json");
    if (p.ignore_merges) v.merges.resize(v.merges.size() - 300);
    v.pattern = &p;
    v.nfc = p.nfc;
    v.ignore_merges = p.ignore_merges;
    return Tokenizer(vocabulary_of_json(json_of_vocabulary(Tokenizer(v).vocabulary), "again.json"));
}

static std::vector<size_t> lengths_of(const Pattern& p, const std::string& text) {
    std::string padded = text + std::string(kTextPadding, 'x');
    std::vector<uint64_t> starts((text.size() + 63) / 64);
    p.mark_starts(padded.data(), text.size(), starts.data());
    std::vector<size_t> lengths;
    for (size_t i = 0, begin = 0; i < text.size(); i++) {
        if (i + 1 < text.size() && !(starts[(i + 1) / 64] >> (i + 1) % 64 & 1)) continue;
        lengths.push_back(i + 1 - begin);
        begin = i + 1;
    }
    return lengths;
}

TEST(matches_and_ids_equal_those_of_hugging_face) {
    const std::string text = read_file(kData + "patterns.txt");
    const json expected = json::parse(read_file(kData + "patterns.json"));
    EXPECT(patterns().size() == expected.size());
    for (const Pattern& p : patterns()) {
        const auto lengths = expected[p.name]["lengths"].get<std::vector<size_t>>();
        const auto ids = expected[p.name]["ids"].get<std::vector<int32_t>>();
        const Tokenizer t = tokenizer_with(p);
        EXPECT(t.vocabulary.pattern == &p && lengths.size() > 500 && ids.size() > 1000, "%s", p.name);
        EXPECT(lengths_of(p, p.nfc ? nfc_of(text) : text) == lengths, "matches of %s", p.name);
        EXPECT(t.encode(text) == ids, "ids of %s", p.name);
        Encoder<uint16_t> encoder(t);
        IdBuffer<uint16_t> out;
        encoder.encode((text + std::string(kTextPadding, 'x')).data(), text.size(), out);
        EXPECT(std::equal(ids.begin(), ids.end(), out.data.get(), out.data.get() + out.count), "%s", p.name);
    }
}

// With every pattern a match ends between a letter and a line end: the rest has the same matches at every
// place of a block.
TEST(matches_at_every_offset_of_a_block) {
    const std::string text = "\n" + read_file(kData + "patterns.txt").substr(0, 1500);
    for (const Pattern& p : patterns()) {
        const std::vector<size_t> expected = lengths_of(p, text);
        for (size_t shift = 1; shift < 130; shift++) {
            std::vector<size_t> found = lengths_of(p, std::string(shift, 'q') + text);
            EXPECT(found[0] == shift, "%s: %zu", p.name, shift);
            found.erase(found.begin());
            if (found != expected) EXPECT(false, "%s moved by %zu", p.name, shift);
        }
    }
}

// Every second text is without white space, where a text is cut between classes of characters.
TEST(a_safe_cut_is_one_of_every_pattern) {
    const std::string all = read_file(kData + "patterns.txt");
    size_t cuts = 0;
    for (size_t begin = 0; begin < all.size(); begin++) {
        std::string text = all.substr(begin, 40);
        if (begin % 2) std::erase_if(text, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
        const size_t cut = safe_cut(text.data(), text.size());
        if (cut == 0) continue;
        cuts++;
        for (const Pattern& p : patterns()) {
            const auto normal = [&](const std::string& part) { return p.nfc ? nfc_of(part) : part; };
            const std::string left = normal(text.substr(0, cut)), right = normal(text.substr(cut));
            std::vector<size_t> lengths = lengths_of(p, left);
            for (const size_t length : lengths_of(p, right)) lengths.push_back(length);
            EXPECT(left + right == normal(text), "'%s' cut at %zu", text.c_str(), cut);
            EXPECT(lengths == lengths_of(p, left + right), "%s: '%s' cut at %zu", p.name, text.c_str(), cut);
        }
    }
    EXPECT(cuts > 1000, "%zu cuts", cuts);
}

TEST(an_unknown_pattern_is_shown) {
    json file = hf_json();
    file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "\\d+|x"}}}, {"behavior", "Isolated"}};
    const Fatal f = test::fatal_of([&] { vocabulary_of_json(file.dump(), "odd.json"); });
    EXPECT(f.code == kExitConfig);
    for (const char* word : {"odd.json", "\\d+|x", "gpt2, llama3, qwen2, smollm, o200k, nanochat"})
        EXPECT(std::string(f.what()).find(word) != std::string::npos, "no %s in %s", word, f.what());
}

TEST(added_tokens_and_the_first_token) {
    json file = hf_json();
    file["added_tokens"].push_back({{"id", 1500}, {"content", "<|begin_of_text|>"}, {"special", true}});
    file["added_tokens"].push_back({{"id", 1501}, {"content", "<think>"}, {"special", false}});
    const json bos = {{"SpecialToken", {{"id", "<|begin_of_text|>"}, {"type_id", 0}}}};
    const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    file["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {bos, text}}};
    const Tokenizer t(vocabulary_of_json(file.dump(), "x"));
    EXPECT(t.bos() == 1500 && t.adds_bos() && t.eos() == 1499);
    EXPECT(t.vocabulary.added[1501] == (kAdded | kInTexts));
    const auto plain = t.encode("a <think><|begin_of_text|>");
    EXPECT(plain.size() > 5 && std::count(plain.begin(), plain.end(), 1501) == 1 &&
           std::count(plain.begin(), plain.end(), 1500) == 0);
    const auto apart = t.encode("a <think><|begin_of_text|>b", true);
    EXPECT(apart.size() >= 4 && apart[apart.size() - 3] == 1501 && apart[apart.size() - 2] == 1500);
    EXPECT(t.decode(apart) == "a <think><|begin_of_text|>b");

    const Vocabulary again = vocabulary_of_json(json_of_vocabulary(t.vocabulary), "again");
    EXPECT(again.adds_bos && again.bos == 1500 && again.added == t.vocabulary.added);
    const Tokenizer from_gguf(vocabulary_of_gguf(gguf_of_vocabulary(t.vocabulary, 0), "x.gguf"));
    EXPECT(from_gguf.hash() == t.hash() && from_gguf.adds_bos() && from_gguf.bos() == 1500);
    GgufVocabulary odd = gguf_of_vocabulary(t.vocabulary, 0);
    odd.pre = "tekken";
    EXPECT(test::fatal_of([&] { vocabulary_of_gguf(odd, "x.gguf"); }).code == kExitConfig);
}

TEST(bytes_without_a_token_are_dropped) {
    json file = hf_json();
    const std::string control = characters_of_bytes("\x04");
    file["model"]["vocab"].erase(control);
    const int id = hf_json()["model"]["vocab"][control];
    file["model"]["vocab"]["zzzz"] = id;
    const Tokenizer t(vocabulary_of_json(file.dump(), "x"));
    EXPECT(t.encode("=\x04=") == t.encode("==") && t.encode("==").size() == 1 && t.encode("\x04").empty());
    Encoder<uint16_t> encoder(t);
    IdBuffer<uint16_t> ids;
    encoder.encode((std::string("\x04") + std::string(kTextPadding, 'x')).data(), 1, ids);
    EXPECT(ids.count == 0, "%zu ids", ids.count);
}

// Llama 3's rank file has such tokens, as "zqzqzqzqzq" is here: tiktoken looks a word up before it joins.
TEST(ranks_of_words_that_no_join_yields) {
    const std::string path = test::temporary_directory() + "/words.tiktoken";
    write_file(path, read_file(kData + "hf.tiktoken") + "enF6cXpxenF6cQ== 1499\n");
    const Tokenizer t = Tokenizer::load(path, pattern_named("gpt2"));
    EXPECT(t.vocab_size() == 1501 && t.eot() == 1500 && t.vocabulary.ignore_merges);
    const std::string text = "zqzqzqzqzq zqzqzqzqzq";
    const auto ids = t.encode(text), before = Tokenizer::load(kData + "hf.json").encode(text.substr(10));
    EXPECT(ids[0] == 1499 && before.size() > 2 && std::vector(ids.begin() + 1, ids.end()) == before);
    Encoder<uint16_t> encoder(t);
    IdBuffer<uint16_t> out;
    encoder.encode((text + std::string(kTextPadding, 'x')).data(), text.size(), out);
    EXPECT(std::equal(ids.begin(), ids.end(), out.data.get(), out.data.get() + out.count));
    const Tokenizer again(vocabulary_of_json(json_of_vocabulary(t.vocabulary), "again.json"));
    EXPECT(again.hash() == t.hash() && again.encode(text) == ids);
    EXPECT(!Tokenizer::load(kData + "hf.tiktoken").vocabulary.ignore_merges);
}

// A large vocabulary without numbers, as Qwen's and SmolLM2's, in files that name no pattern.
TEST(a_vocabulary_without_numbers) {
    const std::string folder = test::temporary_directory() + "/digits";
    make_directories(folder);
    write_file(folder + "/merges.txt", "#version: 0.2\n");
    json vocab;
    const auto grow = [&](size_t n) {
        for (size_t id = vocab.size(); id < n; id++) {
            const std::string word = std::string(id / 100, 'a') + std::string(id % 100, 'b') + "c";
            vocab[id < 256 ? characters_of_bytes(std::string(1, char(id))) : word] = id;
        }
        write_file(folder + "/vocab.json", vocab.dump());
    };
    const auto warned = [&](const Pattern* pattern) {
        return test::captured(2, [&] { Tokenizer::load(folder, pattern); });
    };
    grow(kLeastJudged - 2);                 // end-of-text is appended
    EXPECT(warned(nullptr).empty(), "%s", warned(nullptr).c_str());
    grow(kLeastJudged);
    const std::string line = warned(nullptr);
    for (const char* words : {"no token has two digits side by side", "qwen2, smollm", "--pattern=NAME"})
        EXPECT(line.find(words) != line.npos, "%s", line.c_str());
    for (const Pattern& p : patterns()) {
        const bool splits = p.digits || p.name == std::string("qwen2");
        EXPECT(warned(&p).empty() == splits, "%s", p.name);
        EXPECT(Tokenizer::load(folder, &p).vocabulary.nfc == p.nfc);
    }
    vocab["17"] = vocab.size();
    grow(vocab.size());
    EXPECT(warned(nullptr).empty());
}

// Ids of transformers 5.24's GPT2Tokenizer, of the same folders.
TEST(added_tokens_beside_gpt2s_files) {
    const json ids = json::parse(read_file(kData + "gpt2/encoder.json"));
    using Files = std::map<std::string, json>;
    const auto folder_of = [&](const char* name, const json& vocab, const Files& files) {
        const std::string folder = test::folder(name);
        make_directories(folder);
        write_file(folder + "/vocab.json", vocab.dump());
        write_file(folder + "/merges.txt", read_file(kData + "gpt2/vocab.bpe"));
        for (const auto& [file, content] : files) write_file(folder + "/" + file, content.dump());
        return folder;
    };
    const auto expect_ids = [](const Tokenizer& t, const std::string& text, std::vector<int32_t> ids) {
        EXPECT(t.encode(text, true) == ids, "%s", json(t.encode(text, true)).dump().c_str());
        const EndOfText end = {.text = std::string(t.vocabulary.text_of(t.eot()))};
        const Tokenizer again(vocabulary_of_json(json_of_vocabulary(t.vocabulary), "again.json", end));
        EXPECT(again.hash() == t.hash() && again.encode(text, true) == ids);
    };
    const std::string text = "some <|user|>  [PAD] <mask> sword word";
    const Tokenizer listed = Tokenizer::load(folder_of("listed", ids, {
        {"added_tokens.json", {{"<|user|>", 1500}, {"  ", 1501}, {"[PAD]", 1502}}},
        {"special_tokens_map.json", {{"pad_token", "[PAD]"}, {"additional_special_tokens", {"<|user|>"}}}}}));
    EXPECT(listed.vocab_size() == 1503);
    EXPECT(listed.vocabulary.added[1501] == (kAdded | kInTexts | kNormalized));
    EXPECT(listed.vocabulary.is_control(1500) && listed.vocabulary.is_control(1502));
    expect_ids(listed, text, {1023, 220, 1500, 1501, 1502, 220, 27, 76, 311, 74, 29, 278, 86, 299, 67, 727,
                              67});
    const auto token = [&](const char* content, bool special, const char* flag) {
        json t = {{"content", content}, {"special", special}};
        for (const char* name : {"lstrip", "rstrip", "single_word", "normalized"})
            t[name] = name == std::string(flag);
        return t;
    };
    const Tokenizer decoder = Tokenizer::load(folder_of("decoder", ids, {{"tokenizer_config.json", {
        {"added_tokens_decoder", {{"1500", token("<|user|>", true, "")},
                                  {"1501", token("<mask>", false, "lstrip")},
                                  {"1502", token("word", false, "single_word")}}}}}}));
    expect_ids(decoder, text, {1023, 220, 1500, 220, 220, 58, 47, 32, 35, 60, 1501, 278, 86, 299, 67, 220,
                               1502});
    json opt = ids;
    opt.erase("<|endoftext|>");
    opt["</s>"] = 1499;
    opt["<s>"] = 1500;
    const Tokenizer named = Tokenizer::load(folder_of("named", opt, {
        {"special_tokens_map.json", {{"bos_token", {{"content", "<s>"}}}, {"eos_token", "</s>"},
                                     {"pad_token", "th"}}},
        {"tokenizer_config.json", {{"add_bos_token", true}, {"add_prefix_space", true},
                                   {"cls_token", "!"}}}}));
    EXPECT(named.adds_bos() && named.bos() == 1500 && named.eos() == 1499);
    EXPECT(named.vocabulary.is_control(1500) && named.vocabulary.prefix_space);
    expect_ids(named, "the !</s> <s>x", {297, 220, 0, 1499, 220, 1500, 352});         // behind BOS
    const std::string odd = folder_of("odd", ids, {
        {"tokenizer_config.json", {{"added_tokens_decoder", {{"x", token("<a>", true, "")}}}}}});
    const Fatal f = test::fatal_of([&] { Tokenizer::load(odd); });
    EXPECT(f.code == kExitConfig && std::string(f.what()).find("no id") != std::string::npos, "%s", f.what());
}
