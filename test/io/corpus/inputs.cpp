// Which files ./tokenize reads and as what: kinds, folders, encodings, broken lines; which of their text is
// for validation.
#include <sys/stat.h>

#include <cmath>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/io/corpus/documents.h"
#include "test/test.h"

using test::folder;

static const std::string kData = "test/data/tokenizer/", kRanks = " --tokenizer=" + kData + "hf.tiktoken ";

static uint64_t cut_of(const std::string& text, double fraction, uint64_t begin = 0) {
    write_file(folder("cut"), text);
    return validation_cut(open_read(folder("cut")).fd, begin, text.size(), fraction, "cut");
}

TEST(the_cut_is_at_a_line_or_a_word) {
    const std::string line(99, 'x'), lines = line + "\n" + line + "\n" + line + "\n" + line + "\n";
    EXPECT(cut_of(lines, 0.27) == 300 && cut_of(lines, 0.23) == 300, "the nearest line");
    EXPECT(cut_of("aa bb cc dd ee ff gg hh ii jj\n", 0.2) == 23, "a word: no line is near");
    EXPECT(cut_of(line + "\n" + "aa bb cc dd ee ff", 0.05) == 111, "a line is too far");
    EXPECT(cut_of("aaaa\r\nbbbb", 0.5) == 6, "line breaks stay whole");
    EXPECT(cut_of("\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0", 0.5) == 3, "a character");
    EXPECT(cut_of("one word", 0.1) == 8 && cut_of("", 0.5) == 0 && cut_of("a\nb", 0) == 3 &&
           cut_of("a", 0.99) == 1, "no part of it");
    EXPECT(cut_of("\xef\xbb\xbf" "ab cd ef gh", 0.5, 3) == 8, "a mark is no text");
    for (uint64_t seed = 0; seed < 200; seed++) {
        std::string text(philox(seed, 0, 0).x[0] % 300000, 'x');
        for (uint64_t i = 0; i < seed % 5 * 100 && !text.empty(); i++)
            text[philox(seed, 1, i).x[0] % text.size()] = seed % 3 ? '\n' : ' ';
        const uint64_t held = uint64_t(double(text.size()) * uniform(seed, 2, 0)), D = text.size();
        const uint64_t cut = cut_of(text, uniform(seed, 2, 0)), target = D - held;
        const auto error = [&](uint64_t at) { return at < target ? target - at : at - target; };
        const bool line_start = cut > 0 && cut < D && text[cut - 1] == '\n', near = error(cut) <= held / 8;
        EXPECT(cut == D ? held == 0 : error(cut) <= std::max<uint64_t>(held / 8, 1024),
               "seed %llu: %llu of %llu", (unsigned long long)seed, (unsigned long long)cut,
               (unsigned long long)target);
        for (uint64_t at = 1; at < D; at++)
            EXPECT(text[at - 1] != '\n' || error(at) > held / 8 ||
                       (line_start && near && error(cut) <= error(at)),
                   "seed %llu: a line at %llu", (unsigned long long)seed, (unsigned long long)at);
    }
}

// Whole documents of any length, about F of them, in the same share at any fraction; equal texts together.
TEST(documents_for_validation_are_whole_and_f_of_all) {
    std::string rows;
    size_t bytes = 0;
    const auto text_of = [](uint64_t i) {
        return std::to_string(i) + std::string(philox(3, 4, i).x[0] % (i % 7 ? 200 : 3000), 'a') + "\nend";
    };
    for (uint64_t i = 0; i < 4000; i++) {
        std::string text = text_of(i);
        bytes += text.size();
        text.replace(text.find('\n'), 1, "\\n");
        rows += "{\"text\": \"" + text + "\"}\n";
    }
    write_file(folder("many.jsonl"), rows);
    for (const double f : {0.0, 0.01, 0.1, 0.5, 0.9}) {
        DocumentReader reader({folder("many.jsonl")}, f, ".");
        double held = 0;
        uint64_t i = 0;
        for (TextChunk chunk; reader.next(chunk);)
            for (const DocumentSpan& p : chunk.spans) {
                const std::string text(chunk.text.data() + p.begin, p.end - p.begin);
                EXPECT(p.starts_document && text == text_of(i++), "document %llu is cut",
                       (unsigned long long)i);
                held += p.validation ? double(text.size()) : 0;
            }
        EXPECT(i == 4000 && std::abs(held / double(bytes) - f) <= f * 0.06, "%g for %g", held / double(bytes),
               f);
    }
    HeldOut many{.fraction = 0.1};
    std::vector<bool> sides[2];
    for (int again = 0; again < 2; again++)
        for (uint64_t i = 0; i < 20000; i++) sides[again].push_back(many.choose("text " + std::to_string(i)));
    size_t apart = 0;
    for (size_t i = 1000; i < 20000; i++) apart += sides[0][i] != sides[1][i];
    EXPECT(apart == 0, "%zu equal documents are on two sides", apart);
    for (uint64_t seed = 0; seed < 200; seed++) {       // of as few as can be divided, some
        HeldOut few{.fraction = 0.1};
        for (uint64_t i = 0; i < 10; i++) few.choose(std::string(1000, 'x') + std::to_string(100 * seed + i));
        EXPECT(few.chosen > 0 && few.chosen < 3000, "%llu of 10 documents",
               (unsigned long long)few.chosen / 1000);
    }
    HeldOut whale{.fraction = 0.1};
    for (int i = 0; i < 100; i++) whale.choose(std::string(100, char('0' + i)));
    EXPECT(!whale.choose(std::string(1 << 20, 'x')), "one document makes all of validation");
}

struct Encoded {
    int code;
    std::string said, train, val;       // stdout and stderr; decoded shards
};

// ./tokenize encode with these arguments.
static Encoded encode(const std::string& arguments) {
    const std::string out = folder("encoded"), decode = "cat /dev/null; ./tokenize decode" + kRanks + out;
    const auto r =
        test::run("rm -f " + out + "*; ./tokenize encode" + kRanks + "--out=" + out + " " + arguments);
    return {r.code, r.out + r.err, test::run(decode + "_train_*.bin 2>/dev/null").out,
            test::run(decode + "_val_*.bin 2>/dev/null").out};
}

TEST(the_share_of_validation_is_said) {
    std::string rows, words;
    for (int i = 0; i < 100; i++)
        rows += "{\"text\": \"Chapter " + std::to_string(i) + "\\nof some words\"}\n";
    for (int i = 0; i < 3000; i++) words += "words ";
    write_file(folder("rows.jsonl"), rows), write_file(folder("words.txt"), words);
    write_file(folder("one.jsonl"), "{\"text\": \"one document\"}\n");
    for (const char* name : {"rows.jsonl", "words.txt"}) {
        const Encoded e = encode("--val=0.1 " + folder(name));
        const double share = double(e.val.size()) / double(e.val.size() + e.train.size());
        EXPECT(e.code == 0 && std::abs(share - 0.1) < 0.02 && has(e.said, "\nvalidation: ") &&
                   has(e.said, "% of the tokens") && !has(e.said, "warning"),
               "%s: %g %s", name, share, e.said.c_str());
    }
    const Encoded none = encode("--val=0.1 " + folder("one.jsonl")), unasked = encode(folder("one.jsonl"));
    EXPECT(
        none.code == 0 && has(none.said, "warning: validation has 0% of the tokens, --val=0.1 asks for 10%"),
        "%s", none.said.c_str());
    EXPECT(!has(unasked.said, "validation: ") && !has(unasked.said, "warning"), "%s", unasked.said.c_str());
}

TEST(ends_of_documents_in_a_text) {
    const std::string text =
        "Once there was a girl.\n<|endoftext|>\n\nOnce there was\n\na boy.\n<|endoftext|>\n";
    write_file(folder("stories.txt"), text);
    const Encoded plain = encode(folder("stories.txt"));
    EXPECT(plain.code == 0 && plain.train == text &&
               has(plain.said, "warning: <|endoftext|> stands 2 times") && has(plain.said, "--split="),
           "%s", plain.said.c_str());
    const Encoded split = encode("'--split=<|endoftext|>' " + folder("stories.txt"));
    EXPECT(split.train == "Once there was a girl.<|endoftext|>Once there was\n\na boy." &&
           has(split.said, "2 documents") && !has(split.said, "warning"), "'%s' %s", split.train.c_str(),
           split.said.c_str());
    // the separator at every place of the buffer
    for (size_t bytes = 1; bytes < 60; bytes++) {
        DocumentReader reader({folder("stories.txt")}, 0, ".", {.split = "<|endoftext|>"});
        reader.chunk_bytes = bytes;
        std::string read;
        for (TextChunk chunk; reader.next(chunk);) read.append(chunk.text.data(), chunk.size);
        EXPECT(read == "Once there was a girl.Once there was\n\na boy." && reader.documents == 2, "%zu: '%s'",
               bytes, read.c_str());
    }
    write_file(folder("rows.jsonl"), "{\"text\": \"a<|endoftext|>b\"}\n");
    EXPECT(has(encode(folder("rows.jsonl")).said, "stands 1 time in"));
    const Encoded useless = encode("--split=x " + folder("rows.jsonl"));
    EXPECT(useless.code == kExitConfig && has(useless.said, "--split"), "%s", useless.said.c_str());
}

TEST(encodings_other_than_utf8) {
    const std::string mark = "\xef\xbb\xbf";
    write_file(folder("mark.txt"), mark + "Anne\n");
    write_file(folder("mark.jsonl"), mark + "{\"text\": \"Anne\"}\n");
    EXPECT(encode(folder("mark.txt")).train == "Anne\n" && encode(folder("mark.jsonl")).train == "Anne");
    EXPECT(encode("--val=0.5 " + folder("mark.txt")).train == "Ann");
    EXPECT(encode("--val=0.5 - < " + folder("mark.txt")).train == "Ann");
    const auto ids = test::run("./tokenize ids" + kRanks + folder("mark.txt"));
    EXPECT(std::count(ids.out.begin(), ids.out.end(), '\n') > 3, "ids is of all bytes: %s", ids.out.c_str());
    std::string little, big;
    for (const char c : std::string("Anne Elliot was kind.\n")) {
        little += c, little += '\0';
        big += '\0', big += c;
    }
    for (const std::string& text : {"\xff\xfe" + little, "\xfe\xff" + big, little, big}) {
        for (const char* name : {"wide.txt", "wide.jsonl"}) {
            write_file(folder(name), text);
            const Encoded e = encode(folder(name));
            const char* order = text == little ? "LE" : text == big ? "BE" : " ";
            EXPECT(e.code == kExitConfig && has(e.said, name) &&
                       has(e.said, std::string("iconv -f UTF-16") + order), "%s", e.said.c_str());
        }
    }
    write_file(folder("latin.txt"), "caf\xe9 au lait\n" + std::string(300'000, 'a'));
    const Encoded latin = encode(folder("latin.txt") + " " + kData + "corpus.txt");
    EXPECT(latin.code == 0 && latin.train.starts_with("caf\xe9 au") &&
               has(latin.said, "warning: 1 text file not in UTF-8") && has(latin.said, "latin.txt)"),
           "%s", latin.said.c_str());
    write_file(folder("zeros.txt"), std::string("a few zeros\0\0 in a text\0", 24));
    EXPECT(encode(folder("zeros.txt")).code == 0);
}

TEST(texts_without_a_character) {
    write_file(folder("empty.jsonl"), "{\"text\": \"\"}\n{\"text\": \"Anne\"}\n{\"text\": \"\"}\n");
    write_file(folder("empty.txt"), "");
    const Encoded e = encode(folder("empty.jsonl") + " " + folder("empty.txt"));
    EXPECT(e.code == 0 && e.train == "Anne" && has(e.said, "warning: 3 empty texts left out") &&
               has(e.said, "empty.jsonl:1") && has(e.said, "1 document, "),
           "'%s' %s", e.train.c_str(), e.said.c_str());
    const auto t =
        test::run("./tokenize train --vocab=260 --out=" + folder("t.json") + " " + folder("empty.jsonl"));
    EXPECT(has(t.err, "2 empty texts"), "%s", t.err.c_str());
    write_file(folder("stories.txt"), "a b\n<|endoftext|>\nc d\n");
    const auto s =
        test::run("./tokenize train --vocab=260 --out=" + folder("t.json") + " " + folder("stories.txt"));
    EXPECT(has(s.err, "<|endoftext|> stands 1 time"), "%s", s.err.c_str());
}

TEST(lines_that_are_broken) {
    const std::string good = "{\"text\": \"good\"}\n", path = folder("bad.jsonl");
    const std::pair<const char*, const char*> bad[] = {     // a line, and what mending makes of it
        {"{\"text\": \"a NaN\", \"x\": [NaN, -Infinity], \"y\": {\"z\": Infinity}}", "a NaN"},
        {"{\"text\": \"half \\ud800\\n\"}", "half \xef\xbf\xbd\n"},
        {"{\"text\": \"\\udc00\\ud83d\\ude00\\\\ud800\"}", "\xef\xbf\xbd\xf0\x9f\x98\x80\\ud800"},
        {"{\"text\": \"latin \xe9\", \"x\": \"\\\"NaN\"}", "latin \xef\xbf\xbd"},
        {"{\"text\": \"cut", nullptr},
        {"{\"text\": 3}", nullptr},
        {"no JSON", nullptr}};
    for (const auto& [line, text] : bad) {
        write_file(path, good + line + "\n" + good);
        const Encoded stop = encode(path), skip = encode("--bad-lines=skip " + path),
                      replace = encode("--bad-lines=replace " + path);
        EXPECT(
            stop.code == kExitConfig && has(stop.said, "bad.jsonl:2: ") && has(stop.said, "--bad-lines=skip"),
            "%s: %s", line, stop.said.c_str());
        const std::string end = "<|endoftext|>", left = "good" + end + "good";
        EXPECT(skip.code == 0 && skip.train == left && has(skip.said, "warning: 1 bad line left out") &&
               has(skip.said, "bad.jsonl:2"), "%s: '%s' %s", line, skip.train.c_str(), skip.said.c_str());
        EXPECT(replace.code == 0 && replace.train == (text ? "good" + end + text + end + "good" : left) &&
               has(replace.said, text ? "1 bad line mended" : "1 bad line left out"), "%s: '%s' %s", line,
               replace.train.c_str(), replace.said.c_str());
    }
    EXPECT(encode("--bad-lines=mend " + path).code == kExitConfig);
    write_file(path, "no JSON\n{}\n");
    const Encoded none = encode("--bad-lines=skip " + path);
    EXPECT(none.code == kExitConfig && has(none.said, "2 bad lines"), "%s", none.said.c_str());
}

TEST(another_field) {
    write_file(folder("content.jsonl"),
               "{\"content\": \"Anne\", \"text\": \"no\", \"url\": \"u\", \"n\": 1}\n");
    EXPECT(encode("--field=content " + folder("content.jsonl")).train == "Anne");
    const Encoded e = encode("--field=body " + folder("content.jsonl"));
    EXPECT(e.code == kExitConfig && has(e.said, "content.jsonl:1: no string \"body\"") &&
           has(e.said, "content, text, url: --field="), "%s", e.said.c_str());
}

TEST(folders_and_kinds_of_files) {
    const std::string d = folder("tree");
    for (const char* sub : {"/a/b", "/.hidden", "/a [1]", "/none"}) make_directories(d + sub);
    write_file(d + "/1.txt", "one"), write_file(d + "/a/2.jsonl", "{\"text\": \"two\"}\n");
    write_file(d + "/a/b/3.txt", "three"), write_file(d + "/a [1]/4.txt", "four");
    write_file(d + "/.hidden/5.txt", "five"), write_file(d + "/a/b/6.md", "six");
    write_file(d + "/none/7.json", "{\"text\": \"seven\"}\n");
    const std::string end = "<|endoftext|>", all = "one" + end + "four" + end + "two" + end + "three";
    for (const std::string& inputs : {d, d + "/", d + "/*.txt " + d + "/a*", "'" + d + "/**/*.txt' '" + d +
                                      "/**/*.jsonl'"}) {
        const Encoded e = encode(inputs);
        EXPECT(
            e.code == 0 && e.train.size() == all.size() && has(e.said, "3 text files, 1 file of JSON lines"),
            "%s: '%s' %s", inputs.c_str(), e.train.c_str(), e.said.c_str());
    }
    const Encoded joined = encode(d);
    EXPECT(joined.train == all && has(joined.said, "of other kinds, left out: 2 files"), "'%s' %s",
           joined.train.c_str(), joined.said.c_str());
    EXPECT(encode("'" + d + "/**/b/*.txt'").train == "three" &&
           encode("'" + d + "/*/**'").code == kExitConfig);
    mkfifo((d + "/pipe.txt").c_str(), 0600);
    write_file(d + "/old_train_000000.bin", "of an earlier call"), write_file(d + "/t.parquet", "PAR1");
    const Encoded text = encode("--as=text " + d), lines = encode("--as=jsonl " + d + "/none");
    EXPECT(has(text.train, "six") && has(text.train, end + "two" + end) && has(text.said, "5 text files"),
           "'%s' %s", text.train.c_str(), text.said.c_str());
    EXPECT(lines.train == "seven" && encode("--as=jsonl - < " + d + "/none/7.json").train == "seven", "%s",
           lines.said.c_str());
    const std::pair<const char*, const char*> refused[] = {{"7.json", "--as=jsonl"},
                                                           {"c4.json.gz", "--as=jsonl"},
                                                           {"t.parquet", "data/README.md"},
                                                           {"t.xz", "xz -dc"}};
    for (const auto& [name, word] : refused) {
        write_file(d + "/none/" + name, "x");
        const Encoded e = encode(d + "/none/" + name);
        EXPECT(e.code == kExitConfig && has(e.said, word) && !has(e.said, "--as=text"), "%s", e.said.c_str());
    }
    const Encoded none = encode(d + "/none");
    EXPECT(none.code == kExitConfig && has(none.said, "among its 4 files"), "%s", none.said.c_str());
}
