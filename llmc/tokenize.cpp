// ./tokenize: trains a tokenizer, makes token shards of text, and turns them back.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/host/version.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"
#include "llmc/io/corpus/bpe_train.h"
#include "llmc/io/corpus/encode_set.h"
#include "llmc/io/corpus/ordered_jobs.h"
#include "llmc/io/corpus/tokenize_options.h"
#include "llmc/io/files/document_index.h"
#include "llmc/io/text/text_encoder.h"

namespace {

using Options = TokenizeOptions;

void require(bool given, const char* command, const char* what) {
    CHECK_INPUT(given, "./tokenize {} needs {}; ./tokenize --help shows how", command, what);
}

Tokenizer tokenizer_of(const Options& o) {
    require(!o.tokenizer.empty(), o.command.c_str(), "--tokenizer=T");
    return Tokenizer::load(o.tokenizer, o.pattern.empty() ? nullptr : pattern_named(o.pattern));
}

// Says what was read, and what was not as expected.
void report(const DocumentReader& r) {
    print("inputs: {}\n", for_terminal(r.inputs.summary()));
    const auto warn = [](const Places& p, const char* one, const char* what) {
        if (p.count) warning("{} {} (the first: {})", counted(int64_t(p.count), one), what, p.first);
    };
    warn(r.empty, "empty text", "left out");
    warn(r.skipped, "bad line", "left out");
    for (const EndName& end : r.ends)
        if (end.count)
            warning(
                "{} stands {} in the texts and is learned letter by letter; where it ends a document of a "
                "text file, use --split='{}'",
                end.name, counted(int64_t(end.count), "time"), end.name);
    warn(r.not_utf8, "text file", "not in UTF-8: learned byte by byte");
    warn(r.mended, "bad line", "mended: broken characters became U+FFFD, NaN null");
}

// The share of validation, and a warning where it is far from the wanted one.
void report_share(const EncodeResult& r, double wanted) {
    const double share = double(r.val_tokens) / double(std::max<uint64_t>(1, r.val_tokens + r.train_tokens));
    print("validation: {:.3g}% of the tokens\n", 100 * share);
    if (share > wanted / 1.5 && share < wanted * 1.5) return;
    warning(
        "validation has {:.3g}% of the tokens, --val={:g} asks for {:.3g}%: the documents are too few or too "
        "short to divide; encode validation text of your own",
        100 * share, wanted, 100 * wanted);
}

// Of a tokenizer.json, found out before the work, not after it.
void check_place(const std::string& path) {
    check_output("--out", path, R"({"version": "1.0", "truncation":)");
    make_directories(parent_directory(path));
    NewFile writable(path);
}

int train(const Options& o) {
    require(o.vocab, "train", "--vocab=N");
    require(!o.out.empty(), "train", "--out=tokenizer.json");
    check_vocabulary(o.vocab, o.special);
    CHECK_INPUT(o.out.ends_with(".json"), "--out={}, expected a name that ends in .json", o.out);
    check_place(o.out);
    const double start = seconds_now();
    DocumentReader reader(o.inputs, 0, ".", o.rules);
    const Pattern& pattern = o.pattern.empty() ? patterns()[0] : *pattern_named(o.pattern);
    const WordCounts words = count_words(reader, o.threads, pattern);
    const Tokenizer tokenizer(train_bpe(words, o.vocab, pattern, o.special));
    tokenizer.save(o.out);
    print("{}: {} ids from {} with {}, {}\n", for_terminal(o.out), tokenizer.vocab_size(),
          counted(int64_t(reader.documents), "document"),
          counted(int64_t(words.length.size()), "different word"), human_seconds(seconds_now() - start));
    report(reader);
    if (tokenizer.vocab_size() < o.vocab)
        print("the text has no pair left to merge: fewer ids than the {} asked for\n", o.vocab);
    return kExitDone;
}

void print_template(const Tokenizer& t) {
    const bool ends = t.document_end() >= 0;
    if (!ends && t.document_begin() == t.eot()) return;
    const auto name = [&](int64_t id) { return for_terminal(t.vocabulary.text_of(uint32_t(id))); };
    print("documents begin with {}{}{}, by the tokenizer's template\n", name(t.document_begin()),
          ends ? " and end with " : "", ends ? name(t.document_end()) : "");
}

int encode(const Options& o) {
    require(!o.out.empty(), "encode", "--out=PREFIX");
    const double start = seconds_now();
    const Tokenizer tokenizer = tokenizer_of(o);
    const std::string with_pattern = o.out + "_tokenizer.json";     // where the tokenizer's file names none
    if (!o.pattern.empty()) check_place(with_pattern);
    DocumentReader reader(o.inputs, o.val, parent_directory(o.out), o.rules);
    const EncodeResult r = encode_set(tokenizer, reader, {o.out, o.shard_tokens, o.threads});
    const double seconds = seconds_now() - start;
    print("{}, {}: {} for training, {} for validation, {}, {}, {}/s\n",
          counted(int64_t(r.documents), "document"), human_bytes(double(r.bytes)),
          counted(int64_t(r.train_tokens), "token"), grouped(int64_t(r.val_tokens)),
          counted(int64_t(r.shards.size()), "shard"), human_seconds(seconds),
          human_bytes(double(r.bytes) / seconds));
    report(reader);
    if (o.val > 0) report_share(r, o.val);
    if (r.removed)
        print("{} of {} removed\n", counted(int64_t(r.removed), "older shard"), for_terminal(o.out));
    print_template(tokenizer);
    if (o.pattern.empty()) return kExitDone;
    tokenizer.save(with_pattern);
    print("{}: the tokenizer with its pattern, for data.tokenizer\n", for_terminal(with_pattern));
    return kExitDone;
}

// Buffered output of a command whose stdout is data.
struct Output {
    std::string text;
    void flush() {
        write_all(1, text.data(), text.size(), "stdout");
        text.clear();
    }
    void add(std::string_view s) {
        text += s;
        if (text.size() > 1 << 18) flush();
    }
};

// The files that the inputs name, each pattern's in the order of their names.
std::vector<std::string> shards_of(const Options& o) {
    std::vector<std::string> all;
    bool others = false;                // than indexes
    for (const std::string& pattern : o.inputs) others |= !pattern.ends_with(kIndexSuffix);
    for (const std::string& pattern : o.inputs) {
        // a * of the shell takes indexes along
        if (others && pattern.ends_with(kIndexSuffix)) continue;
        const auto paths = shard_files(pattern);
        CHECK_INPUT(!paths.empty(), "{}: no such file, and no file of such a name", pattern);
        all.insert(all.end(), paths.begin(), paths.end());
    }
    return all;
}

// Their headers.
std::vector<ShardInfo> infos_of(const std::vector<std::string>& paths) {
    std::vector<ShardInfo> infos;
    for (const std::string& path : paths) infos.push_back(open_shard_file(path).info);
    return infos;
}

int decode(const Options& o) {
    const Tokenizer tokenizer = tokenizer_of(o);
    require(!o.inputs.empty(), "decode", "token shards");
    Output out;
    std::vector<int32_t> ids(1 << 16);
    int64_t begin = -1;                 // the set's first id, where it begins a document
    const std::vector<std::string> paths = shards_of(o);
    check_sets(infos_of(paths));
    for (const std::string& path : paths) {
        const ShardFile shard = open_shard_file(path);
        const ShardInfo& s = shard.info;
        CHECK_INPUT(!s.tokenizer_hash || s.tokenizer_hash == tokenizer.hash(),
                    "{}: made with another tokenizer: hash {:016x}, {} has {:016x}", path,
                    s.tokenizer_hash, o.tokenizer,
                    tokenizer.hash());
        for (uint64_t at = 0; at < s.tokens; at += ids.size()) {
            const uint64_t n = std::min<uint64_t>(ids.size(), s.tokens - at);
            read_tokens(shard, at, n, ids.data());
            for (uint64_t i = 0; i < n; i++) {
                const uint32_t id = uint32_t(ids[i]);
                CHECK_INPUT(id < tokenizer.vocab_size(),
                            "{}: token {} is {}, outside the vocabulary of {}", path,
                            (at + i), id, tokenizer.vocab_size());
                const bool first = begin < 0;
                const bool begins = id == tokenizer.eot() || id == tokenizer.document_begin();
                if (first) begin = begins ? id : tokenizer.eot();
                if (id == begin) out.add(first ? "" : "<|endoftext|>");
                else if (int64_t(id) != tokenizer.document_end()) out.add(tokenizer.bytes_of(id));
            }
        }
    }
    out.flush();
    return kExitDone;
}

int ids(const Options& o) {
    const Tokenizer tokenizer = tokenizer_of(o);
    CHECK_INPUT(o.rules.as != As::JsonLines,
                "./tokenize ids reads any input as text, and takes no --as=jsonl");
    CHECK_INPUT(o.inputs.size() <= 1, "./tokenize ids takes one input, found {}", o.inputs.size());
    DocumentReader reader = DocumentReader::whole_file(o.inputs.empty() ? "-" : o.inputs[0]);
    reader.cut_for(tokenizer);
    Encoder<uint32_t> encoder(tokenizer);
    IdBuffer<uint32_t> ids;
    std::string whole;                  // with --added: a token's name may lie across chunks
    Output out;
    for (TextChunk chunk; reader.next(chunk);) {
        ids.count = 0;
        for (const DocumentSpan& p : chunk.spans) {
            if (o.added) whole.append(chunk.text.data() + p.begin, p.end - p.begin);
            else encoder.encode(chunk.text.data() + p.begin, p.end - p.begin, ids, p.starts_document);
        }
        for (size_t i = 0; i < ids.count; i++) out.add(fmt::format("{}\n", ids.data[i]));
    }
    if (o.added)
        for (const int32_t id : tokenizer.encode(whole, true)) out.add(fmt::format("{}\n", id));
    out.flush();
    return kExitDone;
}

int info(const Options& o) {
    require(!o.inputs.empty(), "info", "token shards");
    uint64_t total = 0;
    const std::vector<std::string> paths = shards_of(o);
    for (const std::string& path : paths) {
        const ShardFile shard = open_shard_file(path);
        const ShardInfo& s = shard.info;
        const uint32_t largest = s.has_largest ? s.largest : scan_largest(shard);
        print("{}: {}, version {}, {} tokens of {} bytes, largest id {}{}, ", for_terminal(path),
              s.id_bytes == 2 ? "magic 20240520" : "magic 20240801", s.id_bytes == 2 ? 1 : 7, s.tokens,
              s.id_bytes, largest, s.has_largest ? "" : " (counted)");
        if (s.vocab) print("vocabulary {}, tokenizer {:016x}", s.vocab, s.tokenizer_hash);
        else print("vocabulary and tokenizer not known");
        if (const auto index = read_index(shard))
            print(", {}", counted(int64_t(index->starts.size()), "document"));
        print("\n");
        total += s.tokens;
    }
    if (paths.size() > 1)
        print("{}, {}\n", counted(int64_t(paths.size()), "shard"), counted(int64_t(total), "token"));
    check_sets(infos_of(paths));
    return kExitDone;
}

struct Command {
    const char *name, *options;
    int (*run)(const Options&);
};

int run(int argc, char** argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || command == "help") {
            print("{}", tokenize_help());
            return kExitDone;
        }
        if (!strcmp(argv[i], "--version")) {
            print("{}", build_text("tokenize"));
            return kExitDone;
        }
    }
    const Command commands[] = {
        {"train", "vocab out as pattern field bad-lines split special", train},
        {"encode", "tokenizer pattern out val shard-tokens as field bad-lines split", encode},
        {"decode", "tokenizer pattern", decode},
        {"ids", "tokenizer pattern as added", ids},
        {"info", "", info}};
    for (const Command& c : commands)
        if (command == c.name)
            return c.run(parse_tokenize_options(c.name, c.options, argc - 1, argv + 1));
    CHECK_INPUT(false, "{}{}{}: expected train, encode, decode, ids or info; ./tokenize --help shows each",
                command.empty() ? "no command" : "unknown command \"", command,
                command.empty() ? "" : "\"");
    return kExitConfig;
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_streams();
    meet_limits();
    end_without_memory("error: out of memory; --threads=1 needs the least\n");
    return_freed_blocks();
    const int code = run(argc, argv);
    finish_stdout();
    return code;
}
