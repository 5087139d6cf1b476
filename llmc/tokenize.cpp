// ./tokenize: trains a tokenizer, makes token shards of text, and turns them back.
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>

#define CXXOPTS_NO_REGEX                    // its own parser: half the time to compile
#define CXXOPTS_VECTOR_DELIMITER '\0'       // names of files have commas
#include <cxxopts.hpp>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/files.h"
#include "llmc/base/progress.h"
#include "llmc/base/version.h"
#include "llmc/io/bpe_train.h"
#include "llmc/io/encode_set.h"
#include "llmc/io/encoder.h"
#include "llmc/io/pipeline.h"
#include "llmc/io/shard.h"

static const char* const kHelp = R"(Byte-level BPE, with GPT-2's pre-tokenization.

  ./tokenize train  --vocab=N --out=tokenizer.json INPUT...
      trains a vocabulary of N ids, end-of-text included; writes Hugging Face's tokenizer.json
  ./tokenize encode --tokenizer=T --out=PREFIX [--val=FRACTION] [--shard-tokens=N] INPUT...
      writes token shards PREFIX_train_000000.bin, ... and PREFIX_val_000000.bin, ..., which get the last
      FRACTION of each document's bytes, cut at a line (default: 0, none); N tokens a shard (100000000);
      earlier shards of PREFIX, of both kinds, are replaced when all are written
  ./tokenize decode --tokenizer=T SHARD...
      text to stdout, byte for byte what went in; <|endoftext|> is printed between documents only
  ./tokenize ids    --tokenizer=T [FILE|-]
      ids of the whole input, one a line, no end-of-text added; a .jsonl is text like any other here
  ./tokenize info   SHARD...
      header, counts, largest id, tokenizer hash

INPUT   .txt (one document), .jsonl (one a line, its "text"), either with .gz or .zst, a glob, or - (standard
        input, as .txt)
T       tokenizer.json (byte-level BPE), a folder with GPT-2's vocab.bpe and encoder.json, or a .tiktoken file
        (end-of-text gets the id after its last rank)
--version     commit, compiler, CPU this was built for
--threads=N   threads (default: all cores this process may use). Memory stays bounded: inputs are streamed.
)";

namespace {

struct Options {
    std::string command, tokenizer, out;
    uint32_t vocab = 0;
    double val = 0;
    uint64_t shard_tokens = 0;
    int threads = 0;
    std::vector<std::string> inputs = {};
};

// All of `text` as a number; `expected` says which ones there are.
template <class T> T number_of(const char* name, const std::string& text, const char* expected) {
    T number = {};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    CHECK_INPUT(error == std::errc() && end == text.data() + text.size(), "--%s=%s, expected %s", name,
                text.c_str(), expected);
    return number;
}

// The options of each command, besides --threads and its inputs.
struct Command {
    const char *name, *options;
    int (*run)(const Options&);
};

// A command's options, or the end with a message.
Options parse(const Command& command, int argc, char** argv) {
    cxxopts::Options spec("tokenize");
    const auto text = [](const char* otherwise) {
        return cxxopts::value<std::string>()->default_value(otherwise);
    };
    spec.add_options()("tokenizer", "", text(""))("out", "", text(""))("vocab", "", text("0"))(
        "val", "", text("0"))("shard-tokens", "", text("100000000"))("threads", "", text("0"))(
        "inputs", "", cxxopts::value<std::vector<std::string>>());
    spec.parse_positional({"inputs"});
    cxxopts::ParseResult args;
    try { args = spec.parse(argc, argv); } catch (const std::exception& e) {
        CHECK_INPUT(false, "%s; ./tokenize --help lists the commands and options", e.what());
    }
    for (const char* name : {"tokenizer", "out", "vocab", "val", "shard-tokens"})
        CHECK_INPUT(!args.count(name) || strstr(command.options, name),
                    "./tokenize %s takes no --%s; ./tokenize --help lists what it takes", command.name, name);
    const auto given = [&](const char* name) { return args[name].as<std::string>(); };
    Options o = {.command = command.name, .tokenizer = given("tokenizer"), .out = given("out")};
    o.vocab = number_of<uint32_t>("vocab", given("vocab"), "a number of ids");
    o.val = number_of<double>("val", given("val"), "a fraction of at least 0 and less than 1");
    o.shard_tokens = number_of<uint64_t>("shard-tokens", given("shard-tokens"), "a number of tokens");
    o.threads = number_of<int>("threads", given("threads"), "a number of threads, or 0 for all cores");
    if (args.count("inputs")) o.inputs = args["inputs"].as<std::vector<std::string>>();
    CHECK_INPUT(o.threads >= 0 && o.threads <= 4096, "--threads=%d, expected 1 or more, or 0 for all cores",
                o.threads);
    CHECK_INPUT(o.val >= 0 && o.val < 1, "--val=%g, expected a fraction of at least 0 and less than 1",
                o.val);
    CHECK_INPUT(o.shard_tokens >= 1 && o.shard_tokens <= kMaxShardTokens,
                "--shard-tokens=%llu, expected 1 to %llu", (unsigned long long)o.shard_tokens,
                (unsigned long long)kMaxShardTokens);
    if (o.threads == 0) o.threads = available_threads();
    return o;
}

void require(bool given, const char* command, const char* what) {
    CHECK_INPUT(given, "./tokenize %s needs %s; ./tokenize --help shows how", command, what);
}

Tokenizer tokenizer_of(const Options& o) {
    require(!o.tokenizer.empty(), o.command.c_str(), "--tokenizer=T");
    return Tokenizer::load(o.tokenizer);
}

int train(const Options& o) {
    require(o.vocab, "train", "--vocab=N");
    require(!o.out.empty(), "train", "--out=tokenizer.json");
    CHECK_INPUT(o.vocab >= 257 && o.vocab <= kMaxVocabulary,
                "--vocab=%u, expected 257 (256 bytes and end-of-text) to %u", o.vocab, kMaxVocabulary);
    CHECK_INPUT(o.out.ends_with(".json"), "--out=%s, expected a name that ends in .json", o.out.c_str());
    make_directories(parent_directory(o.out));
    { NewFile writable(o.out); }        // found out before the work, not after it
    const double start = seconds_now();
    DocumentReader reader(o.inputs, 0, ".");
    const WordCounts words = count_words(reader, o.threads);
    const Tokenizer tokenizer(train_bpe(words, o.vocab));
    tokenizer.save(o.out);
    printf("%s: %u ids from %s with %s, %s\n", o.out.c_str(), tokenizer.vocab_size(),
           counted(int64_t(reader.documents), "document").c_str(),
           counted(int64_t(words.length.size()), "different word").c_str(),
           human_seconds(seconds_now() - start).c_str());
    if (tokenizer.vocab_size() < o.vocab)
        printf("the text has no pair left to merge: fewer ids than the %u asked for\n", o.vocab);
    return kExitDone;
}

int encode(const Options& o) {
    require(!o.out.empty(), "encode", "--out=PREFIX");
    const double start = seconds_now();
    const Tokenizer tokenizer = tokenizer_of(o);
    DocumentReader reader(o.inputs, o.val, parent_directory(o.out));
    const EncodeResult r = encode_set(tokenizer, reader, {o.out, o.shard_tokens, o.threads});
    const double seconds = seconds_now() - start;
    printf("%s, %s: %s for training, %s for validation, %s, %s, %s/s\n",
           counted(int64_t(r.documents), "document").c_str(), human_bytes(double(r.bytes)).c_str(),
           counted(int64_t(r.train_tokens), "token").c_str(), grouped(int64_t(r.val_tokens)).c_str(),
           counted(int64_t(r.shards.size()), "shard").c_str(), human_seconds(seconds).c_str(),
           human_bytes(double(r.bytes) / seconds).c_str());
    if (r.removed)
        printf("%s of %s removed\n", counted(int64_t(r.removed), "older shard").c_str(), o.out.c_str());
    return kExitDone;
}

// Buffered output of a command whose stdout is data.
struct Output {
    std::string text;
    void flush() { write_all(1, text.data(), text.size(), "stdout"), text.clear(); }
    void add(std::string_view s) {
        text += s;
        if (text.size() > 1 << 18) flush();
    }
};

// The files that the inputs name, each pattern's in the order of their names.
std::vector<std::string> shards_of(const Options& o) {
    std::vector<std::string> all;
    for (const std::string& pattern : o.inputs) {
        const auto paths = glob_files(pattern);
        CHECK_INPUT(!paths.empty(), "%s: no such file, and no file of such a name", pattern.c_str());
        all.insert(all.end(), paths.begin(), paths.end());
    }
    return all;
}

int decode(const Options& o) {
    const Tokenizer tokenizer = tokenizer_of(o);
    require(!o.inputs.empty(), "decode", "token shards");
    Output out;
    std::vector<int32_t> ids(1 << 16);
    bool first = true;
    for (const std::string& path : shards_of(o)) {
        const ShardFile shard = open_shard_file(path);
        const ShardInfo& s = shard.info;
        CHECK_INPUT(!s.tokenizer_hash || s.tokenizer_hash == tokenizer.hash(),
                    "%s: made with another tokenizer: hash %016llx, %s has %016llx", path.c_str(),
                    (unsigned long long)s.tokenizer_hash, o.tokenizer.c_str(),
                    (unsigned long long)tokenizer.hash());
        for (uint64_t at = 0; at < s.tokens; at += ids.size()) {
            const uint64_t n = std::min<uint64_t>(ids.size(), s.tokens - at);
            read_tokens(shard, at, n, ids.data());
            for (uint64_t i = 0; i < n; i++) {
                const uint32_t id = uint32_t(ids[i]);
                CHECK_INPUT(id < tokenizer.vocab_size(),
                            "%s: token %llu is %u, outside the vocabulary of %u", path.c_str(),
                            (unsigned long long)(at + i), id, tokenizer.vocab_size());
                const bool eot = id == tokenizer.eot();
                if (!eot || !first)
                    out.add(eot ? std::string_view("<|endoftext|>") : tokenizer.bytes_of(id));
                first = false;
            }
        }
    }
    out.flush();
    return kExitDone;
}

int ids(const Options& o) {
    const Tokenizer tokenizer = tokenizer_of(o);
    CHECK_INPUT(o.inputs.size() <= 1, "./tokenize ids takes one input, found %zu", o.inputs.size());
    DocumentReader reader = DocumentReader::whole_file(o.inputs.empty() ? "-" : o.inputs[0]);
    Encoder<uint32_t> encoder(tokenizer);
    IdBuffer<uint32_t> ids;
    Output out;
    for (Chunk chunk; reader.next(chunk);) {
        ids.count = 0;
        for (const Piece& p : chunk.pieces) encoder.encode(chunk.text.data() + p.begin, p.end - p.begin, ids);
        for (size_t i = 0; i < ids.count; i++) {
            char digits[16];
            out.add({digits, size_t(snprintf(digits, sizeof digits, "%u\n", ids.data[i]))});
        }
    }
    out.flush();
    return kExitDone;
}

int info(const Options& o) {
    require(!o.inputs.empty(), "info", "token shards");
    uint64_t total = 0, files = 0;
    for (const std::string& path : shards_of(o)) {
        const ShardFile shard = open_shard_file(path);
        const ShardInfo& s = shard.info;
        const uint32_t largest = s.has_largest ? s.largest : scan_largest(shard);
        printf("%s: %s, version %d, %llu tokens of %d bytes, largest id %u%s, ", path.c_str(),
               s.id_bytes == 2 ? "magic 20240520" : "magic 20240801", s.id_bytes == 2 ? 1 : 7,
               (unsigned long long)s.tokens, s.id_bytes, largest, s.has_largest ? "" : " (counted)");
        if (s.vocab)
            printf("vocabulary %u, tokenizer %016llx\n", s.vocab, (unsigned long long)s.tokenizer_hash);
        else printf("vocabulary and tokenizer not known\n");
        total += s.tokens, files++;
    }
    if (files > 1)
        printf("%s, %s\n", counted(int64_t(files), "shard").c_str(),
               counted(int64_t(total), "token").c_str());
    return kExitDone;
}

int run(int argc, char** argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || command == "help") {
            fputs(kHelp, stdout);
            return kExitDone;
        }
        if (!strcmp(argv[i], "--version")) {
            fputs(build_text("tokenize").c_str(), stdout);
            return kExitDone;
        }
    }
    const Command commands[] = {{"train", "vocab out", train},
                                {"encode", "tokenizer out val shard-tokens", encode},
                                {"decode", "tokenizer", decode},
                                {"ids", "tokenizer", ids},
                                {"info", "", info}};
    for (const Command& c : commands)
        if (command == c.name) return c.run(parse(c, argc - 1, argv + 1));
    CHECK_INPUT(false, "%s%s%s: expected train, encode, decode, ids or info; ./tokenize --help shows each",
                command.empty() ? "no command" : "unknown command \"", command.c_str(),
                command.empty() ? "" : "\"");
    return kExitConfig;
}

}  // namespace

int main(int argc, char** argv) {
    const int code = run(argc, argv);
    finish_stdout();
    return code;
}
