#include "llmc/io/text/tokenizer.h"

#include <xxhash.h>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/text/bpe.h"
#include "llmc/io/text/pattern_check.h"
#include "llmc/io/text/tokenizer_gguf.h"
#include "llmc/io/text/tokenizer_pipeline.h"
#include "llmc/io/unicode/safe_cut.h"

inline namespace text {

// Hash of everything that decides ids and bytes, independent of the file's format.
static uint64_t hash_of(const Vocabulary& v) {
    XXH3_state_t* state = XXH3_createState();
    XXH3_64bits_reset(state);
    const auto add = [&](const void* data, size_t bytes) { XXH3_64bits_update(state, data, bytes); };
    add(&v.eot, sizeof v.eot);
    add(v.start.data(), v.start.size() * sizeof v.start[0]);
    add(v.text.data(), v.text.size());
    std::vector<uint8_t> added = v.added;           // the bits that decide ids of texts
    for (uint8_t& bits : added) {
        if (!(bits & kInTexts)) bits &= kAdded;
        if (!v.nfc) bits &= uint8_t(~kNormalized);
    }
    add(added.data(), added.size());
    add(v.merges.data(), v.merges.size() * sizeof v.merges[0]);
    const std::string pattern = v.pattern->name;
    if (v.pattern != &patterns()[0]) add(pattern.data(), pattern.size());
    if (v.nfc) add("nfc", 3);
    if (v.ignore_merges) add("ignore_merges", 13);
    if (v.prefix_space) add("prefix_space", 12);
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
    added = std::make_shared<AddedTokens>(vocabulary);
    content_hash = hash_of(vocabulary);
}

// The ids of a text without added tokens. REQUIRES: kTextPadding more bytes are readable.
static void encode_piece(const Tokenizer& t, std::string_view text, std::vector<int32_t>& ids) {
    const size_t n = text.size();
    std::vector<uint64_t> starts((n + 63) / 64);
    t.vocabulary.pattern->mark_starts(text.data(), n, starts.data());
    std::vector<uint32_t> found(n);
    size_t count = 0;
    for (size_t at = 0; at < n;) {
        size_t end = at + 1;
        while (end < n && !(starts[end / 64] >> end % 64 & 1)) end++;
        count += encode_word(*t.bpe, text.substr(at, end - at), found.data() + count);
        at = end;
    }
    ids.insert(ids.end(), found.begin(), found.begin() + std::ptrdiff_t(count));
}

std::string with_prefix_space(std::string_view piece) {
    return " " + std::string(piece) + std::string(kTextPadding, '\0');
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool control) const {
    const std::string padded = std::string(text) + std::string(kTextPadding, '\0');
    std::vector<int32_t> ids;
    added->split(std::string_view(padded).substr(0, text.size()), control, [&](std::string_view piece) {
        if (!vocabulary.prefix_space || piece[0] == ' ') return encode_piece(*this, piece, ids);
        const std::string moved = with_prefix_space(piece);
        encode_piece(*this, std::string_view(moved).substr(0, piece.size() + 1), ids);
    }, [&](uint32_t id) { ids.push_back(int32_t(id)); });
    return ids;
}

std::string Tokenizer::about_end() const {
    if (!vocabulary.end_appended) return "";
    return fmt::format(" ({} was appended as id {}: no file says which token is end-of-text)", kEndOfText,
                       eot());
}

size_t Tokenizer::safe_cut(const char* text, size_t n, size_t first) const {
    const size_t reach = added->reach();
    size_t end = n - std::min(n, reach);
    while (const size_t place = ::safe_cut(text, end, first)) {
        if (!reach || !added->touches({text, n}, place)) return place;
        end = place;
    }
    return 0;
}

std::string_view Tokenizer::bytes_of(uint32_t id) const {
    return id < vocab_size() && id != eot() ? vocabulary.text_of(id) : std::string_view();
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
    std::string text;
    for (const int32_t id : ids) text += bytes_of(uint32_t(id));
    return text;
}

static bool ends_with(std::string_view s, std::string_view end) {
    return s.size() >= end.size() && s.substr(s.size() - end.size()) == end;
}

// Of a file that names no pattern.
static void set_pattern(Vocabulary& v, const Pattern* pattern) {
    if (!pattern) return;
    v.pattern = pattern;
    v.nfc = pattern->nfc;
}

// GPT-2's two files, or Hugging Face's names of them.
static Vocabulary vocabulary_in(const std::string& folder, const Pattern* pattern) {
    std::string merges = folder + "/vocab.bpe", ids = folder + "/encoder.json";
    if (!file_exists(merges)) {
        merges = folder + "/merges.txt";
        ids = folder + "/vocab.json";
    }
    const bool found = file_exists(merges) && file_exists(ids);
    std::string others;
    for (const char* name : {"tokenizer.model", "spiece.model", "vocab.txt"})
        if (file_exists(folder + "/" + name)) others += fmt::format(" {} there is of another kind.", name);
    CHECK_INPUT(found, "{}: no tokenizer: expected GPT-2's vocab.bpe and encoder.json in the folder (or "
                "merges.txt and vocab.json), or a tokenizer.json.{}", folder, others);
    const Json config = tokenizer_config_of(folder);
    Vocabulary v = vocabulary_of_gpt2(read_file(merges), read_file(ids), folder, end_named_in(folder),
                                      added_tokens_in(folder, config));
    read_tokenizer_config(config, folder, v);
    v.adds_bos = v.bos >= 0 && config.get("add_bos_token") == true;
    set_pattern(v, pattern);
    v.prefix_space = v.pattern == &patterns()[0] && config.get("add_prefix_space") == true;
    return v;
}

// Lines of base64 and rank, as Llama 3's tokenizer.model has them; SentencePiece's begins with a byte 0x0a.
static bool looks_like_tiktoken(std::string_view content) {
    const std::string_view line = content.substr(0, content.find('\n'));
    return line.size() < 100 && ends_with(line, " 0");
}

static Vocabulary vocabulary_of_file(const std::string& path, const Pattern* pattern) {
    if (is_gguf(path)) {
        const GgufFile file(path);
        CHECK_INPUT(has_vocabulary(file), "{}: a GGUF file without a tokenizer", path);
        return vocabulary_of_gguf(read_gguf_vocabulary(file), path);
    }
    const bool model = ends_with(path, ".model");
    const std::string content = ends_with(path, ".tiktoken") || model ? read_file(path) : "";
    CHECK_INPUT(!model || looks_like_tiktoken(content), "{}: a SentencePiece model, and this program reads "
                "byte-level BPE: a tokenizer.json, a .tiktoken file, GPT-2's files, or a GGUF file", path);
    if (!content.empty()) {
        Vocabulary v = vocabulary_of_tiktoken(content, path);
        set_pattern(v, pattern);
        return v;
    }
    CHECK_INPUT(
        ends_with(path, ".json"),
        "{}: a tokenizer's name ends in .json or .tiktoken, or is a folder with vocab.bpe and encoder.json, "
        "or it is a GGUF file", path);
    const std::string folder = parent_directory(path);
    Vocabulary v = vocabulary_of_json(read_file(path), path, end_named_in(folder));
    read_tokenizer_config(tokenizer_config_of(folder), folder, v);
    return v;
}

Tokenizer Tokenizer::load(const std::string& path, const Pattern* pattern) {
    const std::string json = path + "/tokenizer.json";
    const bool folder = is_directory(path), gpt2 = file_exists(path + "/vocab.bpe");
    if (folder && !gpt2 && file_exists(json)) return load(json, pattern);
    CHECK_INPUT(folder || file_exists(path),
                "{}: no such file, expected a tokenizer: a tokenizer.json, a folder with GPT-2's vocab.bpe "
                "and encoder.json,\n"
                "       a .tiktoken file, or a GGUF file. ./tokenize train makes one from text, "
                "data/gpt2_vocab.py brings GPT-2's.",
                path);
    Vocabulary v = folder ? vocabulary_in(path, pattern) : vocabulary_of_file(path, pattern);
    CHECK_INPUT(!pattern || v.pattern == pattern, "--pattern={}: {} says that its pattern is {}; --pattern "
                "is for .tiktoken files and GPT-2's", pattern->name, path, v.pattern->name);
    const bool stated = !folder && !v.words_are_tokens;         // not by GPT-2's two files, or .tiktoken
    check_pattern(v, path, stated);
    return Tokenizer(std::move(v));
}

void Tokenizer::save(const std::string& path) const { write_file(path, json_of_vocabulary(vocabulary)); }

}  // namespace text
