// Hugging Face's tokenizer.json, and GPT-2's vocab.bpe with encoder.json.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "llmc/base/check.h"
#include "llmc/base/json/json_file.h"
#include "llmc/io/files/shard.h"
#include "llmc/io/text/bpe.h"
#include "llmc/io/text/tokenizer_pipeline.h"
#include "llmc/io/text/vocabulary.h"

inline namespace text {

namespace {

// Ids by text, both ways; the file may give ids in any order.
struct Names {
    std::string file;
    EndOfText end;
    TokenList tokens;
    std::unordered_map<std::string, uint32_t> id;       // by the bytes of tokens that are not added
    std::unordered_set<std::string> added_text;

    Names(const std::string& name, const EndOfText& end) : file(name), end(end) {}

    // In a vocabulary these are no results of merges. A single character may be a byte's.
    bool is_end(const std::string& characters, uint64_t id) const {
        const bool named = end.text.empty() ? int64_t(id) == end.id : characters == end.text;
        return characters == kEndOfText || (named && characters.size() > 1);
    }

    void put(uint64_t id, const std::string& text, uint8_t added) {
        CHECK_INPUT(id < kMaxVocabulary, "{}: id {}, expected less than {}", file, id,
                    kMaxVocabulary);
        if (id >= tokens.text.size()) {
            tokens.text.resize(id + 1);
            tokens.added.resize(id + 1);
        }
        CHECK_INPUT(tokens.text[id].empty(), "{}: id {} is there twice", file, id);
        tokens.text[id] = text;
        tokens.added[id] = added;
    }

    // "vocab" of tokenizer.json and the whole of encoder.json: characters to ids; `added` ids are there
    // already.
    void put_vocab(const Json& vocab) {
        CHECK_INPUT(vocab.is_object(), "{}: the vocabulary is no JSON object of tokens and ids", file);
        for (const auto& [characters, id] : vocab.members()) {
            CHECK_INPUT(id.is_natural(), "{}: token \"{}\": the id is no number", file,
                        characters);
            const uint64_t i = id.natural();
            if (i < tokens.text.size() && tokens.added[i] && tokens.text[i] == characters) continue;
            CHECK_INPUT(!added_text.contains(characters),
                        "{}: \"{}\" is in the vocabulary and an added token, with different ids", file,
                        characters);
            std::string bytes;
            if (is_end(characters, i)) { put(i, characters, kAdded); continue; }
            CHECK_INPUT(!characters.empty() && bytes_of_characters(characters, bytes),
                        "{}: token \"{}\" is not in the characters of a byte-level vocabulary", file,
                        characters);
            put(i, bytes, 0);
            this->id.emplace(std::move(bytes), uint32_t(i));
        }
    }

    Merge merge(std::string_view left, std::string_view right, size_t rank) {
        std::string a, b;
        const bool written = bytes_of_characters(left, a) && bytes_of_characters(right, b);
        const auto l = id.find(a), r = id.find(b), both = id.find(a + b);
        CHECK_INPUT(
            written && l != id.end() && r != id.end() && both != id.end(),
            "{}: merge {}, \"{}\" and \"{}\": the two and what they become have to be in the vocabulary",
            file, rank, left, right);
        return {l->second, r->second, both->second};
    }

    Merge merge_of_line(std::string_view line, size_t rank) {
        const size_t space = line.find(' ');
        CHECK_INPUT(space != line.npos && line.find(' ', space + 1) == line.npos,
                    "{}: merge {} is \"{}\", expected two tokens with a space between", file, rank, line);
        return merge(line.substr(0, space), line.substr(space + 1), rank);
    }

    Vocabulary finish(std::vector<Merge> merges) {
        int64_t eot = tokens.find_added(kEndNames);
        int64_t named = tokens.find_added(end.text);
        const bool has_id = end.id >= 0 && end.id < int64_t(tokens.added.size());
        if (named < 0 && has_id && tokens.added[size_t(end.id)]) named = end.id;
        if (eot < 0) eot = named;
        const bool appended = eot < 0;
        if (appended) {
            eot = int64_t(tokens.text.size());
            put(uint64_t(eot), std::string(kEndOfText), kAdded);
        }
        Vocabulary v = vocabulary_of_tokens(tokens, uint32_t(eot), file);
        v.end_appended = appended;
        if (named >= 0) v.eos = named;
        v.bos = tokens.find_added(kBeginNames);
        Bpe seen(v, merges.size());
        for (size_t i = 0; i < merges.size(); i++) {
            CHECK_INPUT(seen.add(merges[i]), "{}: merge {} is there twice", file, i);
        }
        v.merges = std::move(merges);
        return v;
    }
};

// Refuses features that would change ids and are not supported here.
void check_model(const Json& model, const std::string& name) {
    const Json* type = model.find("type");
    CHECK_INPUT(!type || *type == "BPE", "{}: the tokenizer is a {} (model.type), and this program reads "
                "byte-level BPE", name, type->is_string() ? type->string() : to_text(*type));
    CHECK_INPUT(model.get("byte_fallback") != true, "{}: a SentencePiece model's vocabulary "
                "(model.byte_fallback is true), and this program reads byte-level BPE", name);
    CHECK_INPUT(model.get("merges").is_list() && model.find("vocab") && (!type || *type == "BPE"),
                "{}: no byte-level BPE: expected \"model\" with \"type\": \"BPE\", \"vocab\" and \"merges\"",
                name);
    for (const char* key :
         {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
        const Json& value = model.get(key);
        const bool off = value.is_null() || value == false || value == "" || value == 0.0;
        CHECK_INPUT(off, "{}: model.{} is {}, which is not supported", name, key, to_text(value));
    }
}

// Flags of an entry of added_tokens; a flag that is not there has its usual value.
struct AddedFlag { const char* key; bool set; uint8_t bit; };
constexpr AddedFlag kAddedFlags[] = {{"single_word", true, kSingleWord}, {"lstrip", true, kLeftStrip},
                                     {"rstrip", true, kRightStrip}, {"normalized", true, kNormalized},
                                     {"special", false, kInTexts}};

uint8_t bits_of(const Json& token) {
    uint8_t bits = kAdded;
    for (const AddedFlag& flag : kAddedFlags)
        if (token.get(flag.key) == flag.set) bits |= flag.bit;
    return bits;
}

void put_added(const Json& added, Names& names) {
    if (added.is_null()) return;
    CHECK_INPUT(added.is_list(), "{}: added_tokens is no list", names.file);
    for (const Json& token : added.list()) {
        CHECK_INPUT(token.get("id").is_natural() && token.get("content").is_string(),
                    "{}: an entry of added_tokens has no id or no content", names.file);
        const std::string& content = token.at("content").string();
        CHECK_INPUT(names.added_text.insert(content).second, "{}: the added token \"{}\" is there twice",
                    names.file, content);
        names.put(token.at("id").natural(), content, bits_of(token));
    }
}

// Special tokens that have an id in the vocabulary: control tokens, unless a merge makes them.
void mark_special(const Json::List& special, const std::vector<Merge>& merges, Names& names) {
    std::vector<bool> made(names.tokens.text.size());
    for (const Merge& m : merges) made[m.id] = true;
    for (const Json& token : special) {
        const auto found = names.id.find(token.at("content").string());
        if (found == names.id.end() || found->first.size() == 1 || made[found->second]) continue;
        names.tokens.added[found->second] = bits_of(token);
    }
}

// What becomes of bytes without a token.
void read_unknown(const Json& model, const Names& names, Vocabulary& v) {
    const Json& unknown = model.get("unk_token");
    if (!unknown.is_string() || std::find(v.byte_id, v.byte_id + 256, kNoByte) == v.byte_id + 256) return;
    CHECK_INPUT(model.get("fuse_unk") != true,
                "{}: model.fuse_unk is true, and some bytes have no token: not supported", names.file);
    v.unknown = names.tokens.find_added(unknown.string());
    CHECK_INPUT(v.unknown >= 0, "{}: model.unk_token is {}, expected the text of an added token", names.file,
                to_text(unknown));
}

}  // namespace

Vocabulary vocabulary_of_json(std::string_view content, const std::string& name, const EndOfText& end) {
    const Json file = parse_json_text(content, name);
    CHECK_INPUT(file.find("model"), "{}: no \"model\": not a tokenizer.json",
                name);
    const Json& model = file.at("model");
    check_model(model, name);
    bool prefix_space = false;
    const Pattern& pattern = pattern_of_json(file.get("pre_tokenizer"), name, prefix_space);
    Names names(name, end);
    if (end.text.empty()) names.end.text = end_of_template(file.get("post_processor"));
    put_added(file.get("added_tokens"), names);
    names.put_vocab(model.at("vocab"));
    std::vector<Merge> merges;
    for (const Json& m : model.at("merges").list()) {
        const auto text = [&m](size_t i) { return m.list()[i].is_string(); };
        const bool pair = m.is_list() && m.list().size() == 2 && text(0) && text(1);
        CHECK_INPUT(pair || m.is_string(), "{}: merge {} is neither \"a b\" nor [\"a\", \"b\"]",
                    name, merges.size());
        merges.push_back(pair ? names.merge(m.list()[0].string(), m.list()[1].string(), merges.size())
                              : names.merge_of_line(m.string(), merges.size()));
    }
    Vocabulary v = names.finish(std::move(merges));
    v.pattern = &pattern;
    v.prefix_space = prefix_space;
    v.ignore_merges = model.get("ignore_merges") == true;
    read_unknown(model, names, v);
    read_pipeline(file, name, v);
    return v;
}

Vocabulary vocabulary_of_gpt2(std::string_view vocab_bpe, std::string_view encoder_json,
                              const std::string& folder, const EndOfText& end, const FolderTokens& more) {
    const std::string encoder = folder + "/encoder.json", list = folder + "/vocab.bpe";
    Names names(folder + ", beside the vocabulary", end);
    put_added(more.added, names);
    names.file = encoder;
    names.put_vocab(parse_json_text(encoder_json, encoder));
    names.file = list;
    std::vector<Merge> merges;
    for (size_t at = 0; at < vocab_bpe.size();) {
        const size_t end = std::min(vocab_bpe.find('\n', at), vocab_bpe.size());
        std::string_view line = vocab_bpe.substr(at, end - at);
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        const bool version = at == 0 && line.substr(0, 9) == "#version:";
        if (!line.empty() && !version) merges.push_back(names.merge_of_line(line, merges.size()));
        at = end + 1;
    }
    mark_special(more.special, merges, names);
    return names.finish(std::move(merges));
}

std::string json_of_vocabulary(const Vocabulary& v) {
    Json::Members vocab;
    Json::List merges, added;
    std::vector<std::string> name(v.size());
    for (uint32_t id = 0; id < v.size(); id++) {
        name[id] = v.added[id] ? std::string(v.text_of(id)) : characters_of_bytes(v.text_of(id));
        if (!v.added[id]) continue;
        Json::Members token = {{"id", id}, {"content", name[id]}};
        for (const AddedFlag& flag : kAddedFlags)
            token.emplace_back(flag.key, flag.set == ((v.added[id] & flag.bit) != 0));
        added.push_back(std::move(token));
    }
    for (uint32_t id = 0; id < v.size(); id++) vocab.emplace_back(name[id], id);
    for (const Merge& m : v.merges) merges.push_back(Json::List{name[m.left], name[m.right]});
    Json::Members model = {{"type", "BPE"}, {"dropout", nullptr}};
    model.emplace_back("unk_token", v.unknown < 0 ? Json() : Json(name[size_t(v.unknown)]));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
        model.emplace_back(key, nullptr);
    for (const char* key : {"fuse_unk", "byte_fallback"}) model.emplace_back(key, false);
    model.emplace_back("ignore_merges", v.ignore_merges);
    model.emplace_back("vocab", std::move(vocab));
    model.emplace_back("merges", std::move(merges));

    Json::Members file = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    file.emplace_back("added_tokens", std::move(added));
    file.emplace_back("normalizer", json_of_normalizer(v));
    file.emplace_back("pre_tokenizer", json_of_pattern(*v.pattern, v.prefix_space));
    file.emplace_back("post_processor", json_of_template(v));
    file.emplace_back("decoder", json_of_pattern(patterns()[0]));
    file.emplace_back("model", std::move(model));
    return to_text(std::move(file), 1) + "\n";
}

}  // namespace text
