#include "llmc/io/text/tokenizer.h"

#include <xxhash.h>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/io/text/bpe.h"
#include "llmc/io/text/tokenizer_gguf.h"
#include "llmc/io/text/tokenizer_pipeline.h"
#include "llmc/io/unicode/nfc.h"

// Hash of everything that decides ids and bytes, independent of the file's format.
static uint64_t hash_of(const Vocabulary& v) {
    XXH3_state_t* state = XXH3_createState();
    XXH3_64bits_reset(state);
    const auto add = [&](const void* data, size_t bytes) { XXH3_64bits_update(state, data, bytes); };
    add(&v.eot, sizeof v.eot);
    add(v.start.data(), v.start.size() * sizeof v.start[0]);
    add(v.text.data(), v.text.size());
    add(v.added.data(), v.added.size());
    add(v.merges.data(), v.merges.size() * sizeof v.merges[0]);
    const std::string pattern = v.pattern->name;
    if (v.pattern != &patterns()[0]) add(pattern.data(), pattern.size());
    if (v.nfc) add("nfc", 3);
    if (v.ignore_merges) add("ignore_merges", 13);
    const uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash ? hash : 1;
}

Tokenizer::Tokenizer(Vocabulary v) : vocabulary(std::move(v)) {
    auto tables = std::make_shared<Bpe>(vocabulary, vocabulary.merges.size());
    for (const Merge& m : vocabulary.merges) {
        CHECK(tables->add(m), "ids {} and {} merge twice", m.left, m.right);
    }
    if (vocabulary.ignore_merges) {
        find_whole_words(*tables, vocabulary);
        vocabulary.words_are_tokens = true;
    }
    bpe = std::move(tables);
    content_hash = hash_of(vocabulary);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
    std::string padded = vocabulary.nfc ? nfc_of(text) : std::string(text);
    const size_t n = padded.size();
    padded.append(kTextPadding, '\0');
    std::vector<uint64_t> starts((n + 63) / 64);
    vocabulary.pattern->mark_starts(padded.data(), n, starts.data());
    std::vector<uint32_t> ids(n);
    size_t count = 0;
    for (size_t at = 0; at < n;) {
        size_t end = at + 1;
        while (end < n && !(starts[end / 64] >> end % 64 & 1)) end++;
        count += encode_word(*bpe, std::string_view(padded).substr(at, end - at), ids.data() + count);
        at = end;
    }
    return {ids.begin(), ids.begin() + std::ptrdiff_t(count)};
}

std::string_view Tokenizer::bytes_of(uint32_t id) const {
    return id < vocab_size() && id != eot() ? vocabulary.text_of(id) : std::string_view();
}

std::vector<int32_t> Tokenizer::encode_with_added(std::string_view text) const {
    std::vector<std::pair<std::string_view, int32_t>> by_first[256];
    for (uint32_t id = 0; id < vocab_size(); id++) {
        const std::string_view name = vocabulary.text_of(id);
        if (vocabulary.added[id] && !name.empty()) by_first[uint8_t(name[0])].emplace_back(name, int32_t(id));
    }
    std::vector<int32_t> ids;
    size_t begin = 0;                               // of the text that is not yet encoded
    const auto add_until = [&](size_t end) {
        const std::vector<int32_t> more = encode(text.substr(begin, end - begin));
        ids.insert(ids.end(), more.begin(), more.end());
    };
    for (size_t at = 0; at < text.size();) {
        size_t bytes = 0;
        int32_t found = 0;
        for (const auto& [name, id] : by_first[uint8_t(text[at])])
            if (name.size() > bytes && text.substr(at).starts_with(name)) {
                bytes = name.size();
                found = id;
            }
        if (bytes) {
            add_until(at);
            ids.push_back(found);
            begin = at + bytes;
        }
        at += std::max<size_t>(bytes, 1);
    }
    add_until(text.size());
    return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
    std::string text;
    for (const int32_t id : ids) text += bytes_of(uint32_t(id));
    return text;
}

static bool ends_with(std::string_view s, std::string_view end) {
    return s.size() >= end.size() && s.substr(s.size() - end.size()) == end;
}

Tokenizer Tokenizer::load(const std::string& path) {
    if (is_directory(path)) {
        std::string merges = path + "/vocab.bpe", ids = path + "/encoder.json";
        const std::string json = path + "/tokenizer.json";
        if (!file_exists(merges) && file_exists(json)) return load(json);
        if (!file_exists(merges)) {
            merges = path + "/merges.txt";
            ids = path + "/vocab.json";
        }
        CHECK_INPUT(file_exists(merges) && file_exists(ids),
                    "{}: no tokenizer: expected GPT-2's vocab.bpe and encoder.json in the folder (or "
                    "merges.txt and vocab.json), or a tokenizer.json",
                    path);
        const Json config = tokenizer_config_of(path);
        Vocabulary v = vocabulary_of_gpt2(read_file(merges), read_file(ids), path,
                                          special_token(config, "eos_token"));
        read_tokenizer_config(config, path, v);
        return Tokenizer(std::move(v));
    }
    CHECK_INPUT(file_exists(path),
                "{}: no such file, expected a tokenizer: a tokenizer.json, a folder with GPT-2's vocab.bpe "
                "and encoder.json,\n"
                "       a .tiktoken file, or a GGUF file. ./tokenize train makes one from text, "
                "data/gpt2_vocab.py brings GPT-2's.",
                path);
    if (is_gguf(path)) {
        const GgufFile file(path);
        CHECK_INPUT(has_vocabulary(file), "{}: a GGUF file without a tokenizer", path);
        return Tokenizer(vocabulary_of_gguf(read_gguf_vocabulary(file), path));
    }
    if (ends_with(path, ".tiktoken")) return Tokenizer(vocabulary_of_tiktoken(read_file(path), path));
    CHECK_INPUT(
        ends_with(path, ".json"),
        "{}: a tokenizer's name ends in .json or .tiktoken, or is a folder with vocab.bpe and encoder.json, "
        "or it is a GGUF file", path);
    const std::string folder = parent_directory(path);
    const Json config = tokenizer_config_of(folder);
    Vocabulary v = vocabulary_of_json(read_file(path), path, special_token(config, "eos_token"));
    read_tokenizer_config(config, folder, v);
    return Tokenizer(std::move(v));
}

void Tokenizer::save(const std::string& path) const { write_file(path, json_of_vocabulary(vocabulary)); }
