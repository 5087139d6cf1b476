#include "llmc/io/text/tokenizer_gguf.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "llmc/base/check.h"
#include "llmc/io/text/bpe.h"

inline namespace text {

namespace {

constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

// Names in tokenizer.ggml.pre, with blanks around each, and what they stand for; the first is written.
// llama.cpp normalizes no text: nfc is as in the models' own tokenizer.json.
struct Pre {
    const char *pattern, *names;
    bool nfc, ignore_merges, adds_bos;
};
constexpr Pre kPres[] = {
    {"gpt2", " gpt-2 gpt2 phi-2 jina-es jina-de roberta-bpe gigachat mellum exaone4 ", false, false, false},
    {"gpt2", " olmo mpt ", true, false, false},
    {"llama3", " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ", false, true, true},
    {"llama3", " dbrx smaug-bpe ", false, false, false},
    {"qwen2", " qwen2 deepseek-r1-qwen stablelm2 megrez kormo ", true, false, false},
    {"smollm", " smollm starcoder refact codeshell exaone ", false, false, false},
    {"smollm", " command-r ", true, false, false},
    {"o200k", " gpt-4o llama4 ", false, false, false},
};

const Pre& pre_of(const GgufVocabulary& g, const std::string& name) {
    const std::string wanted = " " + g.pre + " ";
    std::string names;
    for (const Pre& p : kPres) {
        const bool single = g.pre.find(' ') == g.pre.npos;
        if (single && std::string_view(p.names).find(wanted) != std::string_view::npos) return p;
        names += std::string_view(p.names).substr(1);
    }
    CHECK_INPUT(false,
                "{}: tokenizer.ggml.pre is \"{}\", expected one of {}; ids by another pattern would differ",
                name, g.pre, names);
}

void check_model(const GgufVocabulary& g, const std::string& name) {
    const std::pair<const char*, const char*> others[] = {
        {"llama", ", a SentencePiece model"}, {"t5", ", a Unigram model of SentencePiece"},
        {"bert", ", a WordPiece model"}, {"gemma4", ", a SentencePiece model"}};
    std::string kind;
    for (const auto& [model, is] : others) if (g.model == model) kind = is;
    CHECK_INPUT(g.model == "gpt2", "{}: tokenizer.ggml.model is \"{}\"{}; expected \"gpt2\", a "
                "byte-level BPE",
                name, g.model, kind);
}

int64_t id_within(int64_t id, const char* key, size_t tokens, const std::string& name) {
    CHECK_INPUT(id >= -1 && id < int64_t(tokens),
                "{}: tokenizer.ggml.{} is {}, expected less than {}", name, key, id, tokens);
    return id;
}

uint8_t bits_of_type(int32_t type) {
    if (type == kUserDefined) return kAdded | kInTexts;
    return type == kUnused ? kAdded | kUnusedId : kAdded;
}

int32_t type_of_bits(uint8_t bits) {
    if (!bits) return kNormal;
    if (bits & kUnusedId) return kUnused;
    return bits & kInTexts ? kUserDefined : kControl;
}

TokenList tokens_of(const GgufVocabulary& g, const std::string& name) {
    CHECK_INPUT(g.token_type.empty() || g.token_type.size() == g.tokens.size(),
                "{}: tokenizer.ggml.token_type has {} values, expected {}, one a token", name,
                g.token_type.size(), g.tokens.size());
    // names that fill the model's ids up
    size_t count = g.tokens.size();
    while (count > 0 && !g.token_type.empty() && g.token_type[count - 1] == kUnused) count--;
    TokenList list;
    for (size_t id = 0; id < count; id++) {
        std::string bytes;
        int32_t type = g.tokens[id] == kEndOfText ? kControl : kNormal;
        if (!g.token_type.empty()) type = g.token_type[id];
        const bool normal = type == kNormal;
        CHECK_INPUT(!normal || bytes_of_characters(g.tokens[id], bytes),
                    "{}: token {}, \"{}\", is not in the characters of a byte-level vocabulary", name, id,
                    g.tokens[id]);
        list.text.push_back(normal ? bytes : g.tokens[id]);
        list.added.push_back(normal ? uint8_t(0) : bits_of_type(type));
    }
    return list;
}

// count: of the tokens that are no mere names behind the last
std::vector<Merge> merges_of(const GgufVocabulary& g, size_t count, const std::string& name) {
    std::unordered_map<std::string_view, uint32_t> id_of;
    for (uint32_t id = 0; id < count; id++) id_of.emplace(g.tokens[id], id);
    std::vector<Merge> merges;
    for (const std::string& line : g.merges) {
        const size_t space = line.find(' ');
        CHECK_INPUT(space != line.npos, "{}: merge {} is \"{}\", expected two tokens with a space between",
                    name, merges.size(), line);
        const std::string both = line.substr(0, space) + line.substr(space + 1);
        const auto l = id_of.find(std::string_view(line).substr(0, space)),
                   r = id_of.find(std::string_view(line).substr(space + 1)), b = id_of.find(both);
        CHECK_INPUT(l != id_of.end() && r != id_of.end() && b != id_of.end(),
                    "{}: merge {}, \"{}\": the two and what they become have to be tokens", name,
                    merges.size(), line);
        merges.push_back({l->second, r->second, b->second});
    }
    return merges;
}

}  // namespace

// A value of the file; nullptr: not there.
template <class T>
static const T* value_in(const GgufFile& file, const std::string& key, const char* type) {
    const auto found = file.pairs.find(key);
    if (found == file.pairs.end()) return nullptr;
    const T* value = std::get_if<T>(&found->second);
    CHECK_INPUT(value, "{}: {} is no {}", file.path, key, type);
    return value;
}

static int64_t id_in(const GgufFile& file, const std::string& key) {
    const auto found = file.pairs.find(key);
    if (found == file.pairs.end()) return -1;
    const uint32_t* id = std::get_if<uint32_t>(&found->second);
    CHECK_INPUT(id, "{}: {} is no natural number of 32 bits", file.path, key);
    return *id;
}

bool has_vocabulary(const GgufFile& file) {
    const std::string* model = value_in<std::string>(file, "tokenizer.ggml.model", "text");
    return model && *model != "none" && *model != "no_vocab";
}

GgufVocabulary read_gguf_vocabulary(const GgufFile& file) {
    using Texts = std::vector<std::string>;
    const std::string ggml = "tokenizer.ggml.";
    GgufVocabulary g;
    g.model = *value_in<std::string>(file, ggml + "model", "text");
    if (const auto* pre = value_in<std::string>(file, ggml + "pre", "text")) g.pre = *pre;
    if (const auto* tokens = value_in<Texts>(file, ggml + "tokens", "list of texts")) g.tokens = *tokens;
    if (const auto* merges = value_in<Texts>(file, ggml + "merges", "list of texts")) g.merges = *merges;
    const auto* types = value_in<std::vector<int32_t>>(file, ggml + "token_type", "list of integers");
    if (types) g.token_type = *types;
    CHECK_INPUT(!g.tokens.empty(), "{}: {}tokens is not there, or empty", file.path, ggml);
    CHECK_INPUT(!types || types->size() == g.tokens.size(), "{}: {}token_type has {} integers of 32 bits, "
                "expected {}, one a token", file.path, ggml, types->size(), g.tokens.size());
    g.bos_token_id = id_in(file, ggml + "bos_token_id");
    g.eos_token_id = id_in(file, ggml + "eos_token_id");
    g.unknown_token_id = id_in(file, ggml + "unknown_token_id");
    if (const bool* adds = value_in<bool>(file, ggml + "add_bos_token", "boolean")) g.add_bos_token = *adds;
    if (const bool* adds = value_in<bool>(file, ggml + "add_eos_token", "boolean")) g.add_eos_token = *adds;
    const auto* chat = value_in<std::string>(file, "tokenizer.chat_template", "text");
    if (chat) g.chat_template = *chat;
    return g;
}

bool is_gguf(const std::string& path) {
    const Fd file = open_read(path);
    char magic[4] = {};
    if (size_of_file(file.fd, path) < sizeof magic) return false;
    pread_all(file.fd, magic, sizeof magic, 0, path);
    return memcmp(magic, "GGUF", sizeof magic) == 0;
}

Vocabulary vocabulary_of_gguf(const GgufVocabulary& g, const std::string& name) {
    check_model(g, name);
    const Pre& pre = pre_of(g, name);
    TokenList tokens = tokens_of(g, name);
    const int64_t bos = id_within(g.bos_token_id, "bos_token_id", tokens.text.size(), name),
                  eos = id_within(g.eos_token_id, "eos_token_id", tokens.text.size(), name);
    int64_t eot = tokens.find_added(kEndNames);
    if (eot < 0) eot = eos;
    CHECK_INPUT(eot >= 0, "{}: no end-of-text token: neither {} nor tokenizer.ggml.eos_token_id", name,
                kEndOfText);
    Vocabulary v = vocabulary_of_tokens(tokens, uint32_t(eot), name);
    std::vector<Merge> merges = merges_of(g, tokens.text.size(), name);
    Bpe seen(v, merges.size());
    for (size_t i = 0; i < merges.size(); i++) {
        const auto [left, right, id] = merges[i];
        CHECK_INPUT(!v.added[left] && !v.added[right] && !v.added[id] && seen.add(merges[i]),
                    "{}: merge {} is there twice, or joins or makes an added token", name, i);
    }
    v.merges = std::move(merges);
    v.pattern = pattern_named(pre.pattern);
    v.nfc = pre.nfc;
    v.ignore_merges = pre.ignore_merges;
    v.bos = bos >= 0 ? bos : tokens.find_added(kBeginNames);
    v.eos = eos >= 0 ? eos : eot;
    v.adds_bos = v.bos >= 0 && (g.add_bos_token < 0 ? pre.adds_bos : g.add_bos_token == 1);
    v.adds_eos = g.add_eos_token == 1;
    v.chat_template = g.chat_template;
    if (std::find(v.byte_id, v.byte_id + 256, kNoByte) != v.byte_id + 256)
        v.unknown = id_within(g.unknown_token_id, "unknown_token_id", tokens.text.size(), name);
    return v;
}

// A GGUF file names the pre-tokenization, and readers take the rest from the name.
static const Pre& pre_for(const Vocabulary& v) {
    const Pre* near = nullptr;
    const bool any = merges_give_every_token(v);            // ignore_merges changes no id
    for (const Pre& p : kPres) {
        if (v.pattern != pattern_named(p.pattern)) continue;
        if (!near) near = &p;
        if (v.nfc == p.nfc && (any || v.ignore_merges == p.ignore_merges)) return p;
    }
    CHECK_INPUT(near, "--export=gguf: llama.cpp has no pre-tokenization as {}'s, and would make other ids",
                v.pattern->name);
    const bool differs = v.nfc != near->nfc;
    const char* property = differs ? "nfc" : "ignore_merges";
    CHECK_INPUT(false, "--export=gguf: the tokenizer has {} = {}, and readers of GGUF take {} from its "
                "pattern, {}: they\n       would make other ids. Export to hf:DIR", property,
                differs ? v.nfc : v.ignore_merges, property, v.pattern->name);
}

static void check_exportable(const Vocabulary& v) {
    bool strips = v.prefix_space;
    for (const uint8_t bits : v.added)
        strips |= bits & kInTexts && bits & (kSingleWord | kLeftStrip | kRightStrip);
    CHECK_INPUT(!strips, "--export=gguf: the tokenizer has add_prefix_space, or tokens with lstrip, rstrip "
                "or single_word,\n       which GGUF has no place for: readers would make other ids. "
                "Export to hf:DIR");
}

GgufVocabulary gguf_of_vocabulary(const Vocabulary& v, size_t ids) {
    check_exportable(v);
    GgufVocabulary g;
    g.model = "gpt2";
    const std::string_view names = std::string_view(pre_for(v).names).substr(1);
    g.pre = names.substr(0, names.find(' '));
    for (uint32_t id = 0; id < v.size(); id++) {
        g.tokens.push_back(v.added[id] ? std::string(v.text_of(id)) : characters_of_bytes(v.text_of(id)));
        g.token_type.push_back(type_of_bits(v.added[id]));
    }
    for (const Merge& m : v.merges) g.merges.push_back(g.tokens[m.left] + " " + g.tokens[m.right]);
    for (size_t id = v.size(); id < ids; id++) {
        g.tokens.push_back("[unused " + std::to_string(id) + "]");
        g.token_type.push_back(kUnused);
    }
    g.bos_token_id = v.bos >= 0 ? v.bos : v.eot;
    g.eos_token_id = v.eos >= 0 ? v.eos : v.eot;
    g.add_bos_token = v.adds_bos;
    g.add_eos_token = v.adds_eos ? 1 : -1;
    g.unknown_token_id = v.unknown;
    g.chat_template = v.chat_template;
    return g;
}

}  // namespace text
