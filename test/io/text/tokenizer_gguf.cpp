// A GGUF file's tokenizer: the same ids as the tokenizer.json that the file was made of; a file that lies is
// refused in a line.
#include "llmc/io/text/tokenizer_gguf.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "llmc/base/disk/files.h"
#include "llmc/io/text/tokenizer.h"
#include "test/bytes_tokenizer.h"
#include "test/test.h"

using std::string, std::vector;
using Pairs = std::map<string, GgufValue>;

static Vocabulary of_json() {
    return vocabulary_of_json(read_file("test/data/tokenizer/hf.json"), "hf.json");
}

static bool has_no_name(const Pattern& p) { return string(p.name) == "nanochat"; }

// Everything that a file says of a tokenizer, in a model of 1510 ids.
static Pairs pairs_of(const Vocabulary& v) {
    GgufVocabulary g = gguf_of_vocabulary(v, 1510);
    const string ggml = "tokenizer.ggml.";
    return {{ggml + "model", g.model}, {ggml + "pre", g.pre}, {ggml + "tokens", g.tokens},
            {ggml + "token_type", g.token_type}, {ggml + "merges", g.merges},
            {ggml + "bos_token_id", uint32_t(g.bos_token_id)},
            {ggml + "eos_token_id", uint32_t(g.eos_token_id)},
            {ggml + "add_bos_token", g.add_bos_token == 1}, {"tokenizer.chat_template", string("{{ x }}")}};
}

static string file_of(const Pairs& pairs) {
    const string path = test::temporary_directory() + "/a_model";          // recognised without a suffix
    vector<GgufPair> list;
    for (const auto& [key, value] : pairs) list.push_back({key, value});
    GgufWriter(path, list, {}).close();
    return path;
}

// With any pattern: the vocabulary is GPT-2's.
static Tokenizer read(const string& path) {
    return Tokenizer(vocabulary_of_gguf(read_gguf_vocabulary(GgufFile(path)), path));
}

TEST(the_tokenizer_of_a_gguf_file) {
    const Tokenizer own(of_json()), read = Tokenizer::load(file_of(pairs_of(of_json())));
    EXPECT(read.hash() == own.hash() && read.vocab_size() == 1500, "%u ids", read.vocab_size());
    EXPECT(!read.adds_bos() && read.eos() == own.eot() && read.vocabulary.chat_template == "{{ x }}");
    const string text = read_file("test/data/tokenizer/hard.txt");
    EXPECT(read.encode(text) == own.encode(text));
    Vocabulary v = of_json();
    v.bos = v.eot, v.adds_bos = true;
    EXPECT(Tokenizer::load(file_of(pairs_of(v))).adds_bos());
    Pairs pairs = pairs_of(of_json());
    pairs["tokenizer.ggml.add_eos_token"] = true;
    EXPECT(Tokenizer::load(file_of(pairs)).vocabulary.adds_eos && !own.vocabulary.adds_eos);
}

// llama.cpp finds tokens of type 4 in every text, and of type 3 (control) where it is asked to; 5 is a name.
TEST(types_of_added_tokens) {
    Pairs pairs = pairs_of(of_json());
    auto tokens = std::get<vector<string>>(pairs["tokenizer.ggml.tokens"]);
    auto types = std::get<vector<int32_t>>(pairs["tokenizer.ggml.token_type"]);
    for (const auto& [id, name, type] : vector<std::tuple<size_t, string, int>>{
             {1500, "<think>", 4}, {1501, "<s>", 3}, {1502, "[PAD]", 5}, {1503, "  ", 4}})
        tokens[id] = name, types[id] = type;
    pairs["tokenizer.ggml.tokens"] = tokens, pairs["tokenizer.ggml.token_type"] = types;
    const Tokenizer t = Tokenizer::load(file_of(pairs));
    const string text = "a<think>  [PAD]<s>";
    const auto has = [](const vector<int32_t>& ids, int32_t id) {
        return std::count(ids.begin(), ids.end(), id) == 1;
    };
    const vector<int32_t> ids = t.encode(text), all = t.encode(text, true);
    EXPECT(has(ids, 1500) && has(ids, 1503) && !has(ids, 1501) && !has(ids, 1502));
    EXPECT(has(all, 1500) && has(all, 1503) && has(all, 1501));
    EXPECT(t.text_bytes(1500) == 7 && t.text_bytes(1503) == 2 && t.text_bytes(1501) == 0);
    const GgufVocabulary again = gguf_of_vocabulary(t.vocabulary, 0);
    EXPECT(again.token_type[1500] == 4 && again.token_type[1501] == 3 && again.token_type[1502] == 5);
    const Tokenizer json(vocabulary_of_json(json_of_vocabulary(t.vocabulary), "x"));
    EXPECT(json.encode(text) == ids && json.hash() == t.hash());
}

// llama.cpp begins texts with BOS by any of the names of Llama 3's pre-tokenization.
TEST(bos_where_the_file_does_not_say) {
    Vocabulary v = of_json();
    v.pattern = pattern_named("llama3"), v.ignore_merges = true;
    const string ggml = "tokenizer.ggml.";
    Pairs pairs = pairs_of(v);
    for (const char* name : {"llama-bpe", "llama3", "llama-v3"}) {
        pairs[ggml + "pre"] = string(name);
        pairs.erase(ggml + "add_bos_token");
        EXPECT(read(file_of(pairs)).adds_bos(), "%s", name);
        pairs[ggml + "add_bos_token"] = false;
        EXPECT(!read(file_of(pairs)).adds_bos(), "%s", name);
    }
    pairs = pairs_of(of_json());
    pairs.erase(ggml + "add_bos_token");
    EXPECT(!Tokenizer::load(file_of(pairs)).adds_bos(), "GPT-2's");
}

// Readers take these from the pattern.
TEST(what_a_gguf_file_cannot_say_of_a_tokenizer) {
    for (const Pattern& p : patterns()) {
        if (has_no_name(p)) continue;
        for (const bool nfc : {true, false}) {
            Vocabulary v = of_json();
            v.merges.pop_back();                // no merge gives the last token
            v.pattern = &p, v.nfc = p.nfc ^ nfc, v.ignore_merges = p.ignore_merges ^ !nfc;
            const string name(p.name);
            const char* other = nfc && name == "gpt2" ? "olmo" : nullptr;       // names of these pairs
            if (nfc && name == "smollm") other = "command-r";
            if (!nfc && name == "llama3") other = "dbrx";
            if (other) {
                EXPECT(gguf_of_vocabulary(v, 0).pre == other, "%s", p.name);
                continue;
            }
            const Fatal f = test::fatal_of([&] { gguf_of_vocabulary(v, 0); });
            const string word = nfc ? "nfc = " : "ignore_merges = ";
            EXPECT(f.code == kExitConfig && strstr(f.what(), word.c_str()) && strstr(f.what(), p.name), "%s",
                   f.what());
        }
    }
    Vocabulary v = of_json();
    v.prefix_space = true;
    EXPECT(strstr(test::fatal_of([&] { gguf_of_vocabulary(v, 0); }).what(), "add_prefix_space"));
    v.prefix_space = false, v.added[v.eot] |= kLeftStrip;
    EXPECT(gguf_of_vocabulary(v, 0).token_type[v.eot] == 3, "a control token is found only where one asks");
    v.added[v.eot] |= kInTexts;
    EXPECT(strstr(test::fatal_of([&] { gguf_of_vocabulary(v, 0); }).what(), "lstrip"));
}

// Names of llama.cpp's list, and how each splits " 2024" of a vocabulary with 20, 202 and 2024.
TEST(names_of_patterns_in_gguf) {
    const auto lengths = [](const string& pre) {
        GgufVocabulary g = gguf_of_vocabulary(bytes_tokenizer().vocabulary, 0);
        g.pre = pre;
        for (const char* digits : {"20", "202", "2024"}) {
            const string token(digits);
            g.tokens.push_back(token), g.token_type.push_back(1);
            g.merges.push_back(token.substr(0, token.size() - 1) + " " + token.back());
        }
        const Tokenizer t(vocabulary_of_gguf(g, "x"));
        string all;
        for (const int32_t id : t.encode("=2024")) all += char('0' + t.bytes_of(uint32_t(id)).size());
        return all + (t.adds_bos() ? " bos" : "") + (t.vocabulary.ignore_merges ? " whole" : "");
    };
    const std::map<string, vector<string>> expected = {
        {"14", {"mpt", "olmo", "gpt-2", "phi-2"}}, {"131", {"dbrx", "llama4", "gpt-4o", "smaug-bpe"}},
        {"131 whole", {"falcon3", "pixtral", "lfm2", "llama-bpe"}},
        {"11111", {"starcoder", "refact", "command-r", "stablelm2", "smollm", "qwen2", "deepseek-r1-qwen"}}};
    for (const auto& [split, names] : expected)
        for (const string& name : names)
            EXPECT(lengths(name) == split, "%s: %s", name.c_str(), lengths(name).c_str());
}

// Where merges give every token, ignore_merges changes no id.
TEST(a_tokenizer_that_ignores_merges_without_effect) {
    for (const Pattern& p : patterns()) {
        if (has_no_name(p)) continue;
        Vocabulary v = of_json();
        v.pattern = &p, v.nfc = p.nfc, v.ignore_merges = !p.ignore_merges;
        const Tokenizer own(v), other = read(file_of(pairs_of(v)));
        const string text = "It's 1234 of the   words, and more of them.\n";
        EXPECT(other.encode(text) == own.encode(text), "%s", p.name);
    }
}

// What bytes without a token become.
TEST(the_unknown_token) {
    Vocabulary v = of_json();
    v.byte_id[0xff] = kNoByte, v.unknown = v.eot;
    const GgufVocabulary written = gguf_of_vocabulary(v, 0);
    EXPECT(written.unknown_token_id == v.eot && gguf_of_vocabulary(of_json(), 0).unknown_token_id == -1);
    GgufVocabulary g = gguf_of_vocabulary(of_json(), 0);
    g.unknown_token_id = g.eos_token_id;
    EXPECT(vocabulary_of_gguf(g, "x").unknown == -1, "every byte has a token");
    g.tokens[of_json().byte_id[0xff]] = characters_of_bytes("\xff\xff");     // no token of this byte alone
    EXPECT(vocabulary_of_gguf(g, "x").unknown == v.eot);
    g.unknown_token_id = 1 << 20;
    const Fatal f = test::fatal_of([&] { vocabulary_of_gguf(g, "x"); });
    EXPECT(f.code == kExitConfig && strstr(f.what(), "unknown_token_id"), "%s", f.what());
}

// The last 10 of the 1510 are names that fill the model's ids up.
TEST(no_merge_makes_a_token_that_only_fills_up) {
    Pairs pairs = pairs_of(of_json());
    std::get<vector<string>>(pairs["tokenizer.ggml.tokens"]).back() = "zq";
    pairs["tokenizer.ggml.merges"] = vector<string>{"z q"};
    const string path = file_of(pairs);
    const Fatal f = test::fatal_of([&] { Tokenizer::load(path); });
    EXPECT(f.code == kExitConfig && strstr(f.what(), "merge 0, \"z q\""), "code %d, '%s'", f.code, f.what());
}

TEST(every_pattern_has_a_name_in_gguf) {
    for (const Pattern& p : patterns()) {
        Vocabulary v = of_json();
        v.pattern = &p, v.nfc = p.nfc, v.ignore_merges = p.ignore_merges;
        if (has_no_name(p)) {
            const Fatal f = test::fatal_of([&] { gguf_of_vocabulary(v, 0); });
            EXPECT(f.code == kExitConfig && strstr(f.what(), "no pre-tokenization as nanochat's"), "%s",
                   f.what());
            continue;
        }
        const Tokenizer own(v), other = read(file_of(pairs_of(v)));
        EXPECT(other.vocabulary.pattern == &p && other.hash() == own.hash(), "%s", p.name);
    }
}

TEST(a_tokenizer_that_lies) {
    const string ggml = "tokenizer.ggml.";
    const auto refused = [&](const string& key, std::optional<GgufValue> value, const vector<string>& words) {
        Pairs pairs = pairs_of(of_json());
        if (value) pairs[ggml + key] = *value;
        else pairs.erase(ggml + key);
        const string path = file_of(pairs);
        const Fatal f = test::fatal_of([&] { Tokenizer::load(path); });
        EXPECT(f.code == kExitConfig && !strchr(f.what(), '\n'), "%s: code %d, '%s'", key.c_str(), f.code,
               f.what());
        for (const string& word : words)
            EXPECT(strstr(f.what(), word.c_str()), "%s: no '%s' in '%s'", key.c_str(), word.c_str(),
                   f.what());
    };
    refused("pre", string("tekken"), {"tokenizer.ggml.pre is \"tekken\"", "smollm"});
    refused("pre", string("gpt-2 gpt2"), {"pre is \"gpt-2 gpt2\""});
    refused("pre", std::nullopt, {"pre is \"\""});
    refused("pre", uint32_t(3), {"pre is no text"});
    refused("model", string("llama"), {"model is \"llama\", a SentencePiece model", "gpt2"});
    refused("model", string("bert"), {"WordPiece"});
    refused("model", std::nullopt, {"without a tokenizer"});
    refused("tokens", std::nullopt, {"tokens is not there"});
    refused("tokens", vector<int32_t>{1, 2}, {"tokens is no list of texts"});
    refused("tokens", vector<string>{"a", "b"}, {"token_type has 1510 integers", "expected 2"});
    refused("token_type", vector<int32_t>{}, {"token_type has 0 integers", "expected 1510"});
    refused("token_type", string("x"), {"token_type is no list of integers"});
    refused("merges", vector<string>{"a"}, {"merge 0 is \"a\""});
    refused("merges", vector<string>{"t h", "t h"}, {"merge 1"});
    auto types = std::get<vector<int32_t>>(pairs_of(of_json())[ggml + "token_type"]);
    types[of_json().merges[7].id] = 4;
    refused("token_type", types, {"merge 7", "makes an added token"});
    refused("merges", vector<string>{"t \u0120zz"}, {"merge 0", "have to be tokens"});
    refused("bos_token_id", uint32_t(1500), {"bos_token_id is 1500", "less than 1500"});
    refused("eos_token_id", uint32_t(4000000000), {"eos_token_id is 4000000000"});
    refused("eos_token_id", int32_t(-7), {"eos_token_id is no natural number"});
    refused("eos_token_id", string("</s>"), {"eos_token_id is no natural number"});
    refused("add_bos_token", uint32_t(1), {"add_bos_token is no boolean"});
}
