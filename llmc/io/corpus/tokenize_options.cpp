#include "llmc/io/corpus/tokenize_options.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/config/cxxopts.h"
#include "llmc/io/corpus/ordered_jobs.h"
#include "llmc/io/unicode/pattern.h"
#include "llmc/io/files/shard.h"

inline namespace corpus {

static constexpr const char* kHelp = R"(Byte-level BPE.

  ./tokenize train  --vocab=N --out=tokenizer.json [--pattern=NAME] [--special=NAME,...] INPUT...
      trains a vocabulary of N ids, end-of-text included; writes Hugging Face's tokenizer.json
      NAME, the pre-tokenization: PATTERNS
      --special: N also counts tokens of these names, <|im_start|> say, which no text yields by itself
  ./tokenize encode --tokenizer=T --out=PREFIX [--val=FRACTION] [--shard-tokens=N] INPUT...
      writes token shards PREFIX_train_000000.bin, ... and PREFIX_val_000000.bin, ...; N tokens a shard
      (100000000); earlier shards of PREFIX, of both kinds, are replaced when all are written
      --val: FRACTION of the text is for validation (default: 0, none): whole documents of JSON lines, chosen
      by their hash; the end of each text file, cut at a line or word. The share reached is printed
  ./tokenize decode --tokenizer=T SHARD...
      text to stdout, byte for byte what went in; <|endoftext|> is printed between documents only
  ./tokenize ids    --tokenizer=T [--added] [FILE|-]
      ids of the whole input, one a line, no end-of-text or BOS added; a .jsonl is text like any other here;
      --added: names of added tokens, <|im_start|> say, become their ids (the input has to fit in memory)
  ./tokenize info   SHARD...
      header, counts, largest id, tokenizer hash

INPUT   .txt (one document), .jsonl (a JSON object a line), either with .gz or .zst; a folder of them; a glob,
        ** for any folders; or - (standard input, as .txt)
  --as=text|jsonl                   reads other suffixes, and -, as .txt or .jsonl
  --field=NAME                      the string of an object that is its text (text)
  --bad-lines=stop|skip|replace     a line that is no JSON, or has no such string: an error (stop), left out,
                                    or mended: broken characters become U+FFFD, NaN null; with a count
  --split=TEXT                      a text file has many documents, with TEXT between them
T       tokenizer.json (byte-level BPE), a folder with GPT-2's vocab.bpe and encoder.json, a .tiktoken file
        (of GPT-2's pre-tokenization, or of --pattern=NAME; end-of-text gets the id after its last rank), or a
        GGUF file. A tokenizer.json and a GGUF file say their pre-tokenization; those of --pattern are known.
        The name of a control token in a text is ordinary text, but for --added; added tokens that are not
        "special" are found in every text
--version     commit, compiler, CPU this was built for
--threads=N   threads (default: all cores this process may use). Memory stays bounded: inputs are streamed.
)";

std::string tokenize_help() {
    std::string help = kHelp, names = pattern_names();
    names.insert(names.find(','), " (default)");
    return help.replace(help.find("PATTERNS"), strlen("PATTERNS"), names);
}

// The whole `text` as a number; `expected` describes the valid numbers.
template <class T>
static T number_of(const char* name, const std::string& text, const char* expected) {
    T number = {};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    CHECK_INPUT(error == std::errc() && end == text.data() + text.size(), "--{}={}, expected {}", name,
                text, expected);
    return number;
}

template <class E> struct NamedValue { const char* word; E value; };
constexpr NamedValue<As> kAs[] = {{"text", As::Text}, {"jsonl", As::JsonLines}};
constexpr NamedValue<BadLines> kBadLines[] = {
    {"stop", BadLines::Stop}, {"skip", BadLines::Skip}, {"replace", BadLines::Replace}};

template <class E, size_t n>
static E word_of(const char* name, const std::string& text, const NamedValue<E> (&words)[n]) {
    std::string expected;
    for (const NamedValue<E>& w : words) {
        if (text == w.word) return w.value;
        expected += (expected.empty() ? "" : ", ") + std::string(w.word);
    }
    CHECK_INPUT(false, "--{}={}, expected one of {}", name, text, expected);
    return words[0].value;
}

// The parts between commas.
static std::vector<std::string> names_in(const std::string& text) {
    std::vector<std::string> names;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(',', at), text.size());
        names.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return names;
}

TokenizeOptions parse_tokenize_options(const char* command, const char* allowed, int argc, char** argv) {
    cxxopts::Options spec("tokenize");
    const auto text = [](const char* otherwise) {
        return cxxopts::value<std::string>()->default_value(otherwise);
    };
    spec.add_options()("tokenizer", "", text(""))("out", "", text(""))("vocab", "", text("0"))(
        "val", "", text("0"))("shard-tokens", "", text("100000000"))("threads", "", text("0"))(
        "as", "", text(""))("pattern", "", text(""))("added", "")("field", "", text("text"))(
        "bad-lines", "", text("stop"))("split", "", text(""))("special", "", text(""))(
        "inputs", "", cxxopts::value<std::vector<std::string>>());
    spec.parse_positional({"inputs"});
    cxxopts::ParseResult args;
    try { args = spec.parse(argc, argv); } catch (const std::exception& e) {
        CHECK_INPUT(false, "{}; ./tokenize --help lists the commands and options", e.what());
    }
    for (const char* name : {"tokenizer", "out", "vocab", "val", "shard-tokens", "as", "pattern", "added",
                             "field", "bad-lines", "split", "special"})
        CHECK_INPUT(!args.count(name) || strstr(allowed, name),
                    "./tokenize {} takes no --{}; ./tokenize --help lists what it takes", command, name);
    const auto given = [&](const char* name) { return args[name].as<std::string>(); };
    TokenizeOptions o = {.command = command, .tokenizer = given("tokenizer"), .out = given("out"),
                         .pattern = given("pattern")};
    o.vocab = number_of<uint32_t>("vocab", given("vocab"), "a number of ids");
    o.val = number_of<double>("val", given("val"), "a fraction of at least 0 and less than 1");
    o.shard_tokens = number_of<uint64_t>("shard-tokens", given("shard-tokens"), "a number of tokens");
    o.threads = number_of<int>("threads", given("threads"), "a number of threads, or 0 for all cores");
    if (args.count("inputs")) o.inputs = args["inputs"].as<std::vector<std::string>>();
    o.added = args.count("added") > 0;
    if (args.count("as")) o.rules.as = word_of("as", given("as"), kAs);
    o.rules.bad_lines = word_of("bad-lines", given("bad-lines"), kBadLines);
    o.rules.field = given("field");
    o.rules.split = given("split");
    for (const char* name : {"field", "split", "special"})
        CHECK_INPUT(!args.count(name) || !given(name).empty(), "--{}= needs a text", name);
    o.special = names_in(given("special"));
    CHECK_INPUT(o.threads >= 0 && o.threads <= 4096, "--threads={}, expected 1 or more, or 0 for all cores",
                o.threads);
    CHECK_INPUT(o.val >= 0 && o.val < 1, "--val={:g}, expected a fraction of at least 0 and less than 1",
                o.val);
    CHECK_INPUT(o.shard_tokens >= 1 && o.shard_tokens <= kMaxShardTokens,
                "--shard-tokens={}, expected 1 to {}", o.shard_tokens,
                kMaxShardTokens);
    CHECK_INPUT(o.pattern.empty() || pattern_named(o.pattern), "--pattern={}, expected {}", o.pattern,
                pattern_names());
    if (o.threads == 0) o.threads = available_threads();
    return o;
}

}  // namespace corpus
