// Documents from every kind of input, cut for validation; their sets of shards, equal on any number of
// threads; the command line of ./tokenize.
#include "llmc/io/corpus/documents.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/io/corpus/encode_set.h"
#include "llmc/io/files/shard.h"
#include "llmc/io/unicode/pretokenize.h"
#include "test/test.h"

using test::folder;

static const std::string kData = "test/data/tokenizer/";

static std::string gzip(const std::string& text) {
    const std::string path = folder("packed");
    gzFile f = gzopen(path.c_str(), "wb");
    gzwrite(f, text.data(), unsigned(text.size()));
    gzclose(f);
    return read_file(path);
}

static std::string zstd(const std::string& text) {
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
    return packed;
}

struct Document { std::string train, val; bool has_val = false; };

static std::vector<Document> documents_of(const std::vector<std::string>& inputs, double validation,
                                          size_t chunk_bytes) {
    DocumentReader reader(inputs, validation, test::temporary_directory());
    reader.chunk_bytes = chunk_bytes;
    std::vector<Document> all;
    for (TextChunk chunk; reader.next(chunk);) {
        EXPECT(chunk.text.size() >= chunk.size + kTextPadding, "padding of %zu",
               chunk.text.size() - chunk.size);
        for (const DocumentSpan& p : chunk.spans) {
            if (p.starts_document && !p.validation) all.emplace_back();
            if (p.validation) all.back().has_val = true;
            (p.validation ? all.back().val : all.back().train)
                .append(chunk.text.data() + p.begin, p.end - p.begin);
        }
    }
    EXPECT(reader.documents == all.size(), "%llu and %zu", (unsigned long long)reader.documents, all.size());
    return all;
}

// The progress bar never moves back, moves while a text passes through a temporary file and while the file is
// read, and ends at the total size.
TEST(position_of_packed_text_with_validation) {
    std::string text;
    for (uint64_t i = 0; text.size() < (6 << 20); i++) text += std::to_string(philox(1, 2, i).x[0]) + "\n";
    write_file(folder("p1.txt.gz"), gzip(text));
    write_file(folder("p2.txt"), text);
    DocumentReader reader({folder("p1.txt.gz"), folder("p2.txt")}, 0.1, test::temporary_directory());
    const uint64_t packed = size_of_file(open_read(folder("p1.txt.gz")).fd, "p1");
    EXPECT(reader.total_bytes == packed + text.size(), "%llu", (unsigned long long)reader.total_bytes);
    std::vector<uint64_t> positions;
    size_t spooling = 0;
    const auto look = [&] { positions.push_back(reader.position()); };
    reader.waiting = [&] {
        look();
        spooling += positions.back() > 0 && positions.back() <= packed / 2;
    };
    for (TextChunk chunk; reader.next(chunk);) look();
    EXPECT(std::is_sorted(positions.begin(), positions.end()) && positions.back() == reader.total_bytes,
           "at the end %llu of %llu", (unsigned long long)positions.back(),
           (unsigned long long)reader.total_bytes);
    const auto read_again = [&](uint64_t at) { return at > packed / 2 && at < packed; };
    EXPECT(spooling > 3 && std::count_if(positions.begin(), positions.end(), read_again) > 10,
           "%zu positions while spooling", spooling);
}

TEST(every_kind_of_input_gives_the_same_text) {
    const std::string text = read_file(kData + "corpus.txt");
    write_file(folder("a.txt"), text);
    write_file(folder("a.txt.gz"), gzip(text.substr(0, 5000)) + gzip(text.substr(5000)));      // two members
    write_file(folder("a.txt.zst"), zstd(text.substr(0, 7)) + zstd(text.substr(7)));
    for (const size_t chunk : {16, 1000, 1 << 18}) {
        for (const double f : {0.0, 0.1}) {
            for (const char* name : {"a.txt", "a.txt.gz", "a.txt.zst"}) {
                const auto got = documents_of({folder(name)}, f, chunk);
                EXPECT(got.size() == 1 && got[0].train + got[0].val == text && got[0].has_val == (f > 0),
                       "%s, chunks of %zu", name, chunk);
                if (f > 0)
                    EXPECT(got[0].val.size() * 10 > text.size() * 9 / 10,
                           "%s: %zu of %zu", name, got[0].val.size(), text.size());
            }
        }
    }
    const auto both = documents_of({folder("a.tx*"), folder("a.txt")}, 0, 1000);
    EXPECT(both.size() == 4, "%zu documents of a glob and a file", both.size());
}

// Without white space a text is cut where the class of characters changes; a longer word than the limit is an
// error.
TEST(text_without_white_space) {
    std::string text;
    for (int i = 0; i < 4000; i++) text += "ab12\xc3\xa9.";
    write_file(folder("nowhere.txt"), text);
    DocumentReader reader({folder("nowhere.txt")}, 0, ".");
    reader.chunk_bytes = 500, reader.max_word = 900;
    std::string read;
    for (TextChunk chunk; reader.next(chunk); read.append(chunk.text.data(), chunk.size))
        EXPECT(chunk.size <= 1500, "a chunk of %zu bytes", chunk.size);
    EXPECT(read == text, "%zu bytes of %zu", read.size(), text.size());
    for (const size_t letters : {900, 1500}) {
        write_file(folder("word.txt"), "words and " + std::string(letters, 'a') + " words");
        const Fatal f = test::fatal_of([&] {
            DocumentReader words({folder("word.txt")}, 0, ".");
            words.chunk_bytes = 100, words.max_word = 1000;
            for (TextChunk chunk; words.next(chunk);) continue;
        });
        EXPECT(f.code == (letters > 1000 ? kExitConfig : 0), "%zu letters: %d %s", letters, f.code, f.what());
        if (f.code) EXPECT(strstr(f.what(), "word.txt") && strstr(f.what(), "1.00 kB"), "%s", f.what());
    }
}

TEST(json_lines) {
    const std::string rows =
        "{\"text\": \"one\\ntwo\\n\"}\n\n  {\"id\": [1, {\"text\": \"no\"}], \"text\": "
        "\"\\u00e9\\ud83d\\ude00\", \"b\": null}\r\n"
        "{\"text\": \"\"}\n{\"text\": \"no newline at the end\"}";
    write_file(folder("a.jsonl"), rows);
    write_file(folder("a.jsonl.gz"), gzip(rows));
    for (const char* name : {"a.jsonl", "a.jsonl.gz"}) {
        for (const size_t chunk : {5, 1 << 18}) {
            const auto got = documents_of({folder(name)}, 0, chunk);
            EXPECT(got.size() == 3, "%zu: a text without a character is no document", got.size());
            EXPECT(got[0].train == "one\ntwo\n" && got[1].train == "\xc3\xa9\xf0\x9f\x98\x80" &&
                   got[2].train == "no newline at the end");
        }
    }
}

static void refused(const std::string& name, const std::string& content,
                    const std::vector<std::string>& words) {
    write_file(folder(name), content);
    const Fatal f = test::fatal_of([&] { documents_of({folder(name)}, 0, 1 << 18); });
    EXPECT(f.code == kExitConfig, "%s: exit code %d", name.c_str(), f.code);
    for (const auto& w : words)
        EXPECT(std::string(f.what()).find(w) != std::string::npos, "no \"%s\" in: %s", w.c_str(), f.what());
}

TEST(bad_inputs_are_named) {
    refused("bad.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"b\"\n", {"bad.jsonl:3", "JSON"});
    refused("bad.jsonl", "{\"txt\": \"a\"}\n", {"bad.jsonl:1", "\"text\"", "txt"});
    refused("bad.jsonl", "{\"text\": 3}\n", {"bad.jsonl:1", "\"text\""});
    refused("bad.jsonl", "[{\"text\": \"a\"}]\n", {"bad.jsonl:1"});
    refused("bad.jsonl", "{\"text\": \"\xff\"}\n", {"bad.jsonl:1", "UTF-8"});
    refused("bad.txt.gz", "not gzip at all", {"bad.txt.gz", "damaged"});
    refused("cut.txt.gz", gzip(std::string(1000, 'x')).substr(0, 20), {"cut.txt.gz", "truncated"});
    refused("bad.txt.zst", "not zstd at all", {"bad.txt.zst", "damaged"});
    refused("cut.txt.zst", zstd(read_file(kData + "corpus.txt")).substr(0, 5000),
            {"cut.txt.zst", "truncated"});
    refused("book.pdf", "x", {"book.pdf", ".jsonl"});
    EXPECT(test::fatal_of([] { documents_of({"/nowhere/*.txt"}, 0, 1); }).code == kExitConfig);
}

TEST(threads_and_chunks_change_no_byte) {
    const std::string text = read_file(kData + "corpus.txt") + read_file(kData + "hard.txt");
    write_file(folder("many.txt"), text);
    std::string rows;
    for (size_t i = 0; i < 40; i++)
        rows += "{\"text\": \"row " + std::to_string(i) + "\\nof some\\nlines\"}\n";
    write_file(folder("many.jsonl"), rows);
    const Tokenizer t = Tokenizer::load(kData + "hf.json");
    std::vector<std::string> first;
    for (const int threads : {1, 2, 5}) {
        for (const size_t chunk : {100, 4000, 1 << 18}) {
            DocumentReader reader({folder("many.txt"), folder("many.jsonl")}, 0.2,
                                  test::temporary_directory());
            reader.chunk_bytes = chunk;
            const EncodeResult r = encode_set(t, reader, {folder("set"), 5000, threads});
            std::vector<std::string> bytes;
            for (const auto& path : r.shards) bytes.push_back(read_file(path));
            EXPECT(r.documents == 41 && r.shards.size() > 3, "%llu documents, %zu shards",
                   (unsigned long long)r.documents, r.shards.size());
            if (first.empty()) first = bytes;
            EXPECT(bytes == first, "%d threads, chunks of %zu", threads, chunk);
        }
    }
    const auto before = glob_files(folder("set_*.bin")).size();
    DocumentReader reader({folder("many.jsonl")}, 0, test::temporary_directory());
    const EncodeResult r = encode_set(t, reader, {folder("set"), 1000000, 1});
    EXPECT(before > 3 && glob_files(folder("set_*.bin")) == r.shards, "shards of the set before are gone");
}

// <|endoftext|> is the only added token of hf.tiktoken.
TEST(names_of_added_tokens_become_ids_where_asked) {
    const std::string t = " --tokenizer=" + kData + "hf.tiktoken", text = "printf 'a<|endoftext|>b' | ";
    const auto apart = test::run(text + "./tokenize ids --added" + t);
    const auto plain = test::run(text + "./tokenize ids" + t);
    EXPECT(apart.code == 0 && std::count(apart.out.begin(), apart.out.end(), '\n') == 3, "%s",
           apart.out.c_str());
    EXPECT(apart.out.find("\n1499\n") != apart.out.npos && plain.out.find("1499") == plain.out.npos,
           "'%s' '%s'", apart.out.c_str(), plain.out.c_str());
    const auto refused = test::run("./tokenize decode --added" + t + " x.bin");
    EXPECT(refused.code == 78 && refused.err.find("decode takes no --added") != refused.err.npos, "%s",
           refused.err.c_str());
}

TEST(command_line) {
    const std::string t = " --tokenizer=" + kData + "hf.tiktoken", out = folder("cli");
    const auto ids = test::run("./tokenize ids" + t + " " + kData + "hard.txt");
    EXPECT(ids.code == 0 && ids.out == read_file(kData + "hard.ids"), "exit %d %s", ids.code,
           ids.err.c_str());
    const auto piped = test::run("./tokenize ids" + t + " < " + kData + "hard.txt");
    EXPECT(piped.code == 0 && piped.out == ids.out);
    const auto encoded =
        test::run("cat " + kData + "hard.txt | ./tokenize encode" + t + " --val=0.1 --out=" + out + " -");
    EXPECT(encoded.code == 0 && encoded.err.starts_with("warning: <|endoftext|> stands 2 times") &&
               std::count(encoded.err.begin(), encoded.err.end(), '\n') == 1, "exit %d %s", encoded.code,
           encoded.err.c_str());
    const auto decoded = test::run("./tokenize decode" + t + " " + out + "_train_*.bin");
    const auto rest = test::run("./tokenize decode" + t + " '" + out + "_val_*.bin'");
    EXPECT(decoded.out + rest.out == read_file(kData + "hard.txt") && rest.out.size() > 500,
           "%zu and %zu bytes", decoded.out.size(), rest.out.size());
    const auto info = test::run("./tokenize info " + out + "_train_000000.bin");
    EXPECT(info.out.find("vocabulary 1500") != std::string::npos, "%s", info.out.c_str());

    const std::string comma = "'" + folder("a, b.txt") + "'";
    const auto commas = test::run("cp " + kData + "hard.txt " + comma + "; ./tokenize ids" + t + " " + comma);
    EXPECT(commas.code == 0 && commas.out == ids.out, "exit %d %s", commas.code, commas.err.c_str());
    // a prefix is a name: nobody else's shards go, and its own of an earlier set do
    const std::string odd = folder("v[1]"), theirs = folder("v1_val_000000.bin");
    write_file(theirs, "not ours");
    test::run("./tokenize encode" + t + " --val=0.1 '--out=" + odd + "' " + kData + "hard.txt");
    const auto fewer = test::run("./tokenize encode" + t + " '--out=" + odd + "' " + kData + "hard.txt");
    EXPECT(fewer.out.find("1 older shard of " + odd) != std::string::npos, "%s", fewer.out.c_str());
    EXPECT(read_file(theirs) == "not ours" && access((odd + "_val_000000.bin").c_str(), F_OK) != 0);

    write_file(folder("two.jsonl"), "{\"text\": \"a<|endoftext|>\"}\n{\"text\": \"b\"}\n");
    test::run("./tokenize encode" + t + " --out=" + out + " " + folder("two.jsonl"));
    EXPECT(test::run("./tokenize decode" + t + " " + out + "_train_000000.bin").out ==
           "a<|endoftext|><|endoftext|>b");

    const auto trained =
        test::run("./tokenize train --vocab=1500 --out=" + out + "/new/t.json " + kData + "corpus.txt");
    EXPECT(trained.code == 0 &&
               Tokenizer::load(out + "/new/t.json").hash() == Tokenizer::load(kData + "hf.json").hash(),
           "%s", trained.err.c_str());
    EXPECT(test::run("./tokenize --help").code == 0);
    for (const char* bad : {"", "encodee", "encode", "train --vocab=10 --out=x.json -",
                            "ids --tokenizer=/nowhere.json", "info", "info Makefile", "encode --nonsense=1",
                            "encode --val=2 --out=x --tokenizer=y -", "train --vocab=many"}) {
        const auto r = test::run(std::string("./tokenize ") + bad);
        EXPECT(r.code == kExitConfig && r.err.starts_with("error: "), "./tokenize %s: exit %d, %s", bad,
               r.code, r.err.c_str());
    }
    const auto other = test::run("./tokenize train --vocab=300 --out=" + out + "/other.json " + kData +
                                 "corpus.txt && ./tokenize decode --tokenizer=" + out + "/other.json " + out +
                                 "_train_000000.bin");
    EXPECT(other.code == kExitConfig && other.err.find("another tokenizer") != std::string::npos, "%d %s",
           other.code, other.err.c_str());
}
