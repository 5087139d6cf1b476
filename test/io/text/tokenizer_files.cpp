// The kinds of tokenizer files, saved and refused.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/corpus/bpe_train.h"
#include "llmc/io/text/pattern_check.h"
#include "llmc/io/text/text_encoder.h"
#include "llmc/io/text/tokenizer.h"
#include "llmc/io/text/vocabulary.h"
#include "test/test.h"

static const std::string kData = "test/data/tokenizer/";
using nlohmann::json;

TEST(the_same_vocabulary_has_one_hash) {
    const Tokenizer a = Tokenizer::load(kData + "hf.json"), b = Tokenizer::load(kData + "hf.tiktoken"),
                    c = Tokenizer::load(kData + "gpt2");
    EXPECT(a.hash() && a.hash() == b.hash() && b.hash() == c.hash());
    a.save(test::temporary_directory() + "/saved.json");
    EXPECT(Tokenizer::load(test::temporary_directory() + "/saved.json").hash() == a.hash());

    json changed = json::parse(read_file(kData + "hf.json"));
    std::swap(changed["model"]["merges"][3], changed["model"]["merges"][4]);
    EXPECT(Tokenizer(vocabulary_of_json(changed.dump(), "x")).hash() != a.hash(),
           "the order of merges counts");
}

TEST(both_spellings_of_merges) {
    json file = json::parse(read_file(kData + "hf.json"));
    for (json& m : file["model"]["merges"]) {
        if (m.is_array()) m = m[0].get<std::string>() + " " + m[1].get<std::string>();
    }
    EXPECT(Tokenizer(vocabulary_of_json(file.dump(), "x")).hash() ==
           Tokenizer::load(kData + "hf.json").hash());
}

TEST(end_of_text_where_the_file_has_it) {
    json file = json::parse(read_file(kData + "hf.json"));
    file["added_tokens"].clear();
    file["model"]["vocab"].erase("<|endoftext|>");
    EXPECT(Tokenizer(vocabulary_of_json(file.dump(), "x")).eot() == 1499, "after the last id");

    // in front, as Hugging Face's trainers put it
    for (auto& [token, id] : file["model"]["vocab"].items()) id = id.get<int>() + 1;
    file["added_tokens"].push_back({{"id", 0}, {"content", "<|endoftext|>"}});
    const Tokenizer t(vocabulary_of_json(file.dump(), "x"));
    EXPECT(t.eot() == 0 && t.vocab_size() == 1500, "%u of %u", t.eot(), t.vocab_size());
    const auto front = t.encode("some <|endoftext|> text"),
               back = Tokenizer::load(kData + "hf.json").encode("some <|endoftext|> text");
    EXPECT(front.size() == back.size() && front.size() > 4);
    for (size_t i = 0; i < front.size(); i++) EXPECT(front[i] == back[i] + 1);
}

// A model of Hugging Face has as many ids as its tokenizer, which may name its end only in the file beside.
TEST(the_end_that_a_folder_names) {
    json file = json::parse(read_file(kData + "hf.json"));
    const json end = {{"id", 1499}, {"content", "</s>"}, {"special", true}};
    file["added_tokens"] = {end};
    file["model"]["vocab"].erase("<|endoftext|>");
    const std::string folder = test::temporary_directory() + "/named_end";
    make_directories(folder);
    write_file(folder + "/tokenizer.json", file.dump());
    const auto expect_end = [&](const json& config, uint32_t ids, const std::string& end) {
        write_file(folder + "/tokenizer_config.json", config.dump());
        const Tokenizer t = Tokenizer::load(folder);
        EXPECT(t.vocab_size() == ids && t.vocabulary.text_of(t.eot()) == end && t.eos() == t.eot(),
               "%s: eot %u of %u", config.dump().c_str(), t.eot(), t.vocab_size());
    };
    expect_end({{"eos_token", "</s>"}}, 1500, "</s>");
    expect_end({{"eos_token", {{"content", "</s>"}, {"lstrip", false}}}}, 1500, "</s>");
    for (const char* none : {"<gone>", "", "a"}) expect_end({{"eos_token", none}}, 1501, "<|endoftext|>");
    expect_end({{"eos_token", nullptr}}, 1501, "<|endoftext|>");
    EXPECT(Tokenizer::load(folder).about_end().find("appended as id 1500") != std::string::npos);

    // the files beside it, or the template, say it
    for (const auto& [name, content] : std::map<std::string, json>{
             {"special_tokens_map.json", {{"eos_token", {{"content", "</s>"}}}}},
             {"generation_config.json", {{"eos_token_id", {1499, 7}}}},
             {"config.json", {{"eos_token_id", 1499}}}}) {
        write_file(folder + "/" + name, content.dump());
        expect_end({{"bos_token", nullptr}}, 1500, "</s>");
        EXPECT(Tokenizer::load(folder).about_end().empty());
        std::filesystem::remove(folder + "/" + name);
    }
    write_file(folder + "/config.json", json({{"eos_token_id", 70}}).dump());       // no added token
    expect_end({{"eos_token", nullptr}}, 1501, "<|endoftext|>");
    std::filesystem::remove(folder + "/config.json");
    const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const json last = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
    file["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {text, last}}};
    write_file(folder + "/tokenizer.json", file.dump());
    expect_end({{"eos_token", nullptr}}, 1500, "</s>");
    const Vocabulary v = Tokenizer::load(folder).vocabulary;
    EXPECT(v.adds_eos && !v.adds_bos && vocabulary_of_json(json_of_vocabulary(v), "again").adds_eos);

    // GPT-2's files have no list of added tokens
    std::filesystem::remove(folder + "/tokenizer.json");
    json ids = json::parse(read_file(kData + "gpt2/encoder.json"));
    ids.erase("<|endoftext|>");
    ids["</s>"] = 1499;
    write_file(folder + "/vocab.json", ids.dump());
    write_file(folder + "/merges.txt", read_file(kData + "gpt2/vocab.bpe"));
    expect_end({{"eos_token", "</s>"}}, 1500, "</s>");
}

static void refused(const std::string& what, const std::function<void()>& load,
                    const std::vector<std::string>& words) {
    const Fatal f = test::fatal_of(load);
    EXPECT(f.code == kExitConfig, "%s: exit code %d, %s", what.c_str(), f.code, f.what());
    for (const auto& w : words)
        EXPECT(std::string(f.what()).find(w) != std::string::npos, "%s: no \"%s\" in: %s", what.c_str(),
               w.c_str(), f.what());
}

TEST(malformed_json_is_refused) {
    const json good = json::parse(read_file(kData + "hf.json"));
    const auto bad = [&](const char* what, const std::function<void(json&)>& change,
                         const std::vector<std::string>& words) {
        json file = good;
        change(file);
        refused(what, [&] { vocabulary_of_json(file.dump(), "bad.json"); }, words);
    };
    refused("cut", [&] { vocabulary_of_json(good.dump().substr(0, 500), "bad.json"); },
            {"bad.json", "JSON", "501"});
    refused("empty", [] { vocabulary_of_json("", "bad.json"); }, {"bad.json"});
    bad("no model", [](json& f) { f.erase("model"); }, {"bad.json", "model"});
    bad("another model", [](json& f) { f["model"]["type"] = "WordPiece"; },
        {"a WordPiece (model.type)", "BPE"});
    bad("a dropout", [](json& f) { f["model"]["dropout"] = 0.1; }, {"dropout", "0.1"});
    bad("a normalizer", [](json& f) { f["normalizer"] = {{"type", "NFKC"}}; }, {"normalizer", "NFKC"});
    bad("another split", [](json& f) { f["pre_tokenizer"]["type"] = "Whitespace"; },
        {"pre_tokenizer", "Whitespace"});
    bad("SentencePiece's bytes", [](json& f) { f["model"]["byte_fallback"] = true; }, {"SentencePiece"});
    const json digits = {{"type", "Digits"}, {"individual_digits", true}};
    const auto steps = [&](json& f, const char* key) {
        json byte_level = f["pre_tokenizer"];
        byte_level[key] = true;
        f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {digits, byte_level}}};
    };
    bad("a prefix space in every match", [&](json& f) { steps(f, "add_prefix_space"); },
        {"a ByteLevel with add_prefix_space = true"});
    bad("two splits", [&](json& f) {
        steps(f, "use_regex");
        const json regex = {{"Regex", "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"}};
        f["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Split"}, {"pattern", regex},
                                                  {"behavior", "Isolated"}};
    }, {"a Split by the pattern", "a ByteLevel with use_regex = true, which splits its matches again"});
    bad("a missing byte",
        [](json& f) {
            f["model"]["vocab"].erase("!");
            f["model"]["vocab"]["zzzz"] = 0;
            f["model"]["merges"].clear();
        },
        {"1 of the 95 printable ASCII characters", "initial_alphabet"});
    bad("an id twice", [](json& f) { f["model"]["vocab"]["\""] = 0; }, {"id 0", "twice"});
    bad("a gap", [](json& f) { f["model"]["vocab"]["zzzz"] = 1700; }, {"1500", "empty"});
    bad("a huge id", [](json& f) { f["model"]["vocab"]["zzzz"] = 4000000000u; }, {"4000000000"});
    bad("a negative id", [](json& f) { f["model"]["vocab"]["zzzz"] = -1; }, {"zzzz"});
    bad("no byte level", [](json& f) { f["model"]["vocab"]["\xe4\xbd\xa0"] = 1500; }, {"byte-level"});
    bad("a merge of nothing", [](json& f) { f["model"]["merges"].push_back({"zzz", "q"}); },
        {"merge 1243", "zzz"});
    bad("a merge twice", [](json& f) { f["model"]["merges"].push_back(f["model"]["merges"][0]); },
        {"merge 1243", "twice"});
    bad("no merge", [](json& f) { f["model"]["merges"][5] = 7; }, {"merge 5"});
    bad("an added token twice",
        [](json& f) { f["added_tokens"].push_back({{"id", 1500}, {"content", "<|endoftext|>"}}); },
        {"twice"});
    bad("an added token that is in the vocabulary",
        [](json& f) { f["added_tokens"].push_back({{"id", 1500}, {"content", "a"}}); }, {"\"a\""});
}

TEST(malformed_ranks_are_refused) {
    const std::string good = read_file(kData + "hf.tiktoken");
    const auto bad = [&](const char* what, const std::string& from, const std::string& to,
                         const std::vector<std::string>& words) {
        std::string file = good;
        CHECK(file.find(from) != file.npos, "{} is not in the file", from);
        file.replace(file.find(from), from.size(), to);
        refused(what, [&] { vocabulary_of_tiktoken(file, "bad.tiktoken"); }, words);
    };
    bad("no rank", "Ig== 1\n", "Ig==\n", {"bad.tiktoken:2", "rank"});
    bad("another rank", "Ig== 1\n", "Ig== 2\n", {"bad.tiktoken:2", "expected rank 1", "2"});
    bad("no number", "Ig== 1\n", "Ig== 1x\n", {"bad.tiktoken:2", "1x"});
    bad("no base64", "Ig== 1\n", "I?== 1\n", {"bad.tiktoken:2", "base64"});
    bad("a byte twice", "Ig== 1\n", "IQ== 1\n", {"single bytes"});
    const std::string last = good.substr(good.rfind('\n', good.size() - 2) + 1);
    const std::string twice = "enF6cXpxenF6cQ== 1498\nenF6cXpxenF6cQ== 1499\n";
    bad("a token twice", last, twice, {"1499", "there twice"});
    refused("empty", [] { vocabulary_of_tiktoken("", "bad.tiktoken"); }, {"256"});
}

TEST(malformed_gpt2_files_are_refused) {
    const std::string merges = read_file(kData + "gpt2/vocab.bpe"),
                      ids = read_file(kData + "gpt2/encoder.json");
    refused("three tokens", [&] { vocabulary_of_gpt2(merges + "a b c\n", ids, "dir"); },
            {"dir/vocab.bpe", "merge 1243", "a b c"});
    refused("a list", [&] { vocabulary_of_gpt2(merges, "[1]", "dir"); }, {"dir/encoder.json", "object"});
    refused("no file", [] { Tokenizer::load("/nowhere/tokenizer.json"); },
            {"/nowhere/tokenizer.json", "no such file", "data/gpt2_vocab.py brings GPT-2's"});
    refused("a folder without", [] { Tokenizer::load("/proc"); }, {"/proc", "vocab.bpe"});
    refused("another suffix", [] { Tokenizer::load("Makefile"); }, {"Makefile", ".tiktoken"});
    const std::string folder = test::temporary_directory() + "/pieces", model = folder + "/tokenizer.model";
    make_directories(folder);
    write_file(model, "\n\x0e\n\x05<unk>\x15");
    refused("SentencePiece's model", [&] { Tokenizer::load(model); },
            {"a SentencePiece model", "byte-level BPE"});
    refused("its folder", [&] { Tokenizer::load(folder); }, {"tokenizer.model there is of another kind"});
    write_file(model, read_file(kData + "hf.tiktoken"));                // as Llama 3's
    EXPECT(Tokenizer::load(model).hash() == Tokenizer::load(kData + "hf.json").hash());
}

// Ids of Hugging Face's tokenizers (dev/pattern_fixtures.py), by both encoders; text in parts as well.
TEST(added_tokens_as_hugging_face_finds_them) {
    size_t cuts = 0;
    for (const json& c : json::parse(read_file(kData + "added.json"))) {
        json file = json::parse(read_file(kData + "hf.json"));
        for (const json& token : c["added"]) file["added_tokens"].push_back(token);
        if (c["nfc"]) file["normalizer"] = {{"type", "NFC"}};
        file["pre_tokenizer"]["add_prefix_space"] = c["prefix"];
        const Tokenizer t(vocabulary_of_json(file.dump(), "x"));
        const std::string text = c["text"];
        using Ids = std::vector<int32_t>;
        const Ids ids = c["ids"].get<Ids>();
        EXPECT(t.encode(text) == ids && t.encode(text, true) == c["all"].get<Ids>(), "'%s'", text.c_str());
        EXPECT(vocabulary_of_json(json_of_vocabulary(t.vocabulary), "again").added == t.vocabulary.added);
        Encoder<uint16_t> encoder(t);
        const std::string padded = text + std::string(kTextPadding, 'x');
        for (size_t n = 1; n <= text.size(); n++) {
            IdBuffer<uint16_t> out;
            const size_t cut = n < text.size() ? t.safe_cut(text.data(), n, 1) : 0;
            encoder.encode(padded.data(), cut, out);
            encoder.encode(padded.data() + cut, text.size() - cut, out, cut == 0);
            const Ids parts(out.data.get(), out.data.get() + out.count);
            if (parts != ids) EXPECT(false, "'%s' cut at %zu", text.c_str(), cut);
            cuts += cut > 0;
        }
    }
    EXPECT(cuts > 500, "%zu", cuts);
}

// A vocabulary of another pattern: trained by Llama 3's, its tokens cross GPT-2's matches.
TEST(a_vocabulary_of_another_pattern) {
    std::string ranks = read_file(kData + "hf.tiktoken");
    const std::string path = test::temporary_directory() + "/other.tiktoken";
    ranks += "KHg= 1499\nKTs= 1500\nKTsK 1501\n";                   // "(x", ");", ");\n"
    write_file(path, ranks);
    refused("by GPT-2's", [&] { Tokenizer::load(path); },
            {"2 of 1165 tokens", "\"(x\"", "pattern gpt2", "--pattern=NAME"});
    refused("by Qwen's", [&] { Tokenizer::load(path, pattern_named("qwen2")); }, {"pattern qwen2"});
    ranks = read_file(kData + "hf.tiktoken");
    EXPECT(impossible_tokens(vocabulary_of_tiktoken(ranks, "x"), *pattern_named("gpt2")).count == 0);
    refused("a file that says its pattern",
            [&] { Tokenizer::load(kData + "hf.json", pattern_named("llama3")); },
            {"--pattern=llama3", "gpt2"});
    json file = json::parse(read_file(kData + "hf.json"));
    file["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}},
                                                file["pre_tokenizer"]}}};
    write_file(test::temporary_directory() + "/digits.json", file.dump());
    refused("tokenizer.json", [&] { Tokenizer::load(test::temporary_directory() + "/digits.json"); },
            {"pattern smollm", "Possible"});
}

// No false alarm: every pattern's own training.
TEST(a_trained_vocabulary_fits_its_pattern) {
    std::string text = read_file(kData + "patterns.txt") + read_file(kData + "hard.txt");
    for (const char* word : {"it'll ", "they've ", "we're ", "IT'LL ", ";\n/ ", "x\n \n\t\n",
                             "()\n\n\n", "!\r\n//"})
        for (int i = 0; i < 50; i++) text += word;
    const std::string path = test::temporary_directory() + "/all.txt";
    write_file(path, text);
    for (const Pattern& p : patterns()) {
        DocumentReader reader({path}, 0, ".");
        const Vocabulary v = train_bpe(count_words(reader, 1, p), 1200, p);
        const ImpossibleTokens found = impossible_tokens(v, p);
        EXPECT(found.count == 0 && found.tokens > 250, "%s: %zu of %zu, %s", p.name, found.count,
               found.tokens, found.example.c_str());
    }
}

TEST(alphabet) {
    const ByteAlphabet& a = byte_alphabet();
    EXPECT(a.order[0] == '!' && a.order[93] == '~' && a.order[94] == 0xa1 && a.order[188] == 0 &&
           a.of_byte[' '] == 0x120);
    std::string bytes, all;
    for (int b = 0; b < 256; b++) all += char(b);
    EXPECT(bytes_of_characters(characters_of_bytes(all), bytes) && bytes == all);
    EXPECT(!bytes_of_characters(" ", bytes) && !bytes_of_characters("\xe4\xbd\xa0", bytes) &&
           !bytes_of_characters("\xff", bytes));
}
