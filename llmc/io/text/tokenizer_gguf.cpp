#include "llmc/io/text/tokenizer_gguf.h"

#include <algorithm>
#include <unordered_map>

#include "llmc/base/check.h"
#include "llmc/io/text/bpe.h"

namespace {

constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4;

const Pattern& pattern_of(const GgufVocabulary& g, const char* name) {
    const std::string wanted = " " + g.pre + " ";
    std::string names;
    for (const Pattern& p : patterns()) {
        if (std::string_view(p.gguf).find(wanted) != std::string_view::npos) return p;
        names += p.gguf;
    }
    CHECK_INPUT(false,
                "{}: tokenizer.ggml.pre is \"{}\", expected one of{}; ids by another pattern would differ",
                name, g.pre, names);
}

int64_t id_within(int64_t id, const char* key, const GgufVocabulary& g, const char* name) {
    CHECK_INPUT(id >= -1 && id < int64_t(g.tokens.size()),
                "{}: tokenizer.ggml.{} is {}, expected less than {}", name, key, id, g.tokens.size());
    return id;
}

TokenList tokens_of(const GgufVocabulary& g, const char* name) {
    CHECK_INPUT(g.model == "gpt2",
                "{}: tokenizer.ggml.model is \"{}\", expected \"gpt2\", a byte-level BPE", name, g.model);
    CHECK_INPUT(g.token_type.empty() || g.token_type.size() == g.tokens.size(),
                "{}: tokenizer.ggml.token_type has {} values, expected {}, one a token", name,
                g.token_type.size(), g.tokens.size());
    TokenList list;
    for (size_t id = 0; id < g.tokens.size(); id++) {
        std::string bytes;
        const bool normal = g.token_type.empty() ? g.tokens[id] != kEndOfText : g.token_type[id] == kNormal;
        CHECK_INPUT(!normal || bytes_of_characters(g.tokens[id], bytes),
                    "{}: token {}, \"{}\", is not in the characters of a byte-level vocabulary", name, id,
                    g.tokens[id]);
        list.text.push_back(normal ? bytes : g.tokens[id]);
        list.added.push_back(!normal);
    }
    return list;
}

std::vector<Merge> merges_of(const GgufVocabulary& g, const char* name) {
    std::unordered_map<std::string_view, uint32_t> id_of;
    for (uint32_t id = 0; id < g.tokens.size(); id++) id_of.emplace(g.tokens[id], id);
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

Tokenizer tokenizer_of_gguf(const GgufVocabulary& g, const std::string& path) {
    const char* name = path.c_str();
    const Pattern& pattern = pattern_of(g, name);
    TokenList tokens = tokens_of(g, name);
    const int64_t bos = id_within(g.bos_token_id, "bos_token_id", g, name),
                  eos = id_within(g.eos_token_id, "eos_token_id", g, name);
    int64_t eot = tokens.find_added(kEndNames);
    if (eot < 0) eot = eos;
    CHECK_INPUT(eot >= 0, "{}: no end-of-text token: neither {} nor tokenizer.ggml.eos_token_id", name,
                kEndOfText);
    Vocabulary v = vocabulary_of_tokens(tokens, uint32_t(eot), name);
    std::vector<Merge> merges = merges_of(g, name);
    Bpe seen(v, merges.size());
    for (size_t i = 0; i < merges.size(); i++) {
        CHECK_INPUT(!v.added[merges[i].left] && !v.added[merges[i].right] && seen.add(merges[i]),
                    "{}: merge {} is there twice, or joins an added token", name, i);
    }
    v.merges = std::move(merges);
    v.pattern = &pattern;
    v.nfc = pattern.nfc;
    v.ignore_merges = pattern.ignore_merges;
    v.bos = bos >= 0 ? bos : tokens.find_added(kBeginNames);
    v.eos = eos >= 0 ? eos : eot;
    // llama.cpp takes Llama 3's pre-tokenization as one that adds bos, where the file does not say
    v.adds_bos = v.bos >= 0 && (g.add_bos_token == 1 || (g.add_bos_token < 0 && g.pre == "llama-bpe"));
    for (uint32_t id = 0; id < g.token_type.size(); id++)
        if (g.token_type[id] != kNormal && g.token_type[id] != kControl) v.not_special.push_back(id);
    return Tokenizer(std::move(v));
}

GgufVocabulary gguf_of_tokenizer(const Tokenizer& tokenizer) {
    const Vocabulary& v = tokenizer.vocabulary;
    GgufVocabulary g = {.model = "gpt2", .pre = {}, .tokens = {}, .merges = {}, .token_type = {}};
    const std::string_view names = std::string_view(v.pattern->gguf).substr(1);
    g.pre = names.substr(0, names.find(' '));
    for (uint32_t id = 0; id < v.size(); id++) {
        const bool special = !std::binary_search(v.not_special.begin(), v.not_special.end(), id);
        g.tokens.push_back(v.added[id] ? std::string(v.text_of(id)) : characters_of_bytes(v.text_of(id)));
        g.token_type.push_back(!v.added[id] ? kNormal : special ? kControl : kUserDefined);
    }
    for (const Merge& m : v.merges) g.merges.push_back(g.tokens[m.left] + " " + g.tokens[m.right]);
    g.bos_token_id = v.bos;
    g.eos_token_id = v.eos;
    g.add_bos_token = v.adds_bos;
    return g;
}
