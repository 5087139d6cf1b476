// ./tokenize as a user sees it: packed files and globs, progress on a terminal and its absence elsewhere,
// messages.
#include <fcntl.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/progress.h"
#include "llmc/io/corpus/ordered_jobs.h"
#include "llmc/io/text/tokenizer.h"
#include "test/test.h"

static const std::string kData = "test/data/tokenizer/", kRanks = " --tokenizer=" + kData + "hf.tiktoken ";

TEST(ids_of_packed_files_and_globs) {
    const std::string text = read_file(kData + "hard.txt"), want = read_file(kData + "hard.ids");
    gzFile gzip = gzopen(test::folder("one.txt.gz").c_str(), "wb");
    gzwrite(gzip, text.data(), unsigned(text.size()));
    gzclose(gzip);
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
    write_file(test::folder("two.md.zst"), packed);
    for (const char* input : {"one.txt.gz", "two.md.zst", "o*e.*", "t?o.md.zst"}) {
        const auto ids = test::run("./tokenize ids" + kRanks + "'" + test::folder(input) + "'");
        EXPECT(ids.code == 0 && ids.out == want, "%s: exit %d, %zu bytes of ids, %s", input, ids.code,
               ids.out.size(), ids.err.c_str());
    }
    // the raw text of a .jsonl; encode reads the fields
    write_file(test::folder("row.jsonl"), "{\"text\": \"a\"}\n");
    const auto raw = test::run("./tokenize ids" + kRanks + test::folder("row.jsonl"));
    const auto piped = test::run("./tokenize ids" + kRanks + " < " + test::folder("row.jsonl"));
    EXPECT(raw.code == 0 && raw.out == piped.out && raw.out.size() > 10, "%s", raw.out.c_str());
    for (const char* input : {"*.*", "none*.txt"}) {
        const auto r = test::run("./tokenize ids" + kRanks + "'" + test::folder(input) + "'");
        EXPECT(r.code == kExitConfig && r.out.empty() && has(r.err, input), "%d %s", r.code, r.err.c_str());
    }
}

// A file of any unknown suffix is one document; packed files are unpacked.
TEST(any_suffix_as_text) {
    const std::string text = read_file(kData + "hard.txt"), d = test::folder("suffix"), t = d + "/t.json";
    make_directories(d);
    gzFile gzip = gzopen((d + "/b.py.gz").c_str(), "wb");
    gzwrite(gzip, text.data(), unsigned(text.size()));
    gzclose(gzip);
    write_file(d + "/a.md", text), write_file(d + "/d", "x");
    write_file(d + "/c.jsonl", "{\"text\": \"row\"}\n");
    const std::string inputs = " '" + d + "/[a-d]*'";
    const auto plain = test::run("./tokenize encode" + kRanks + "--out=" + d + "/s" + inputs);
    EXPECT(plain.code == kExitConfig && has(plain.err, "a.md") && has(plain.err, "--as=text"), "%s",
           plain.err.c_str());
    const auto encoded = test::run("./tokenize encode --as=text" + kRanks + "--out=" + d + "/s" + inputs);
    const auto back = test::run("./tokenize decode" + kRanks + d + "/s_train_*.bin");
    const std::string end = "<|endoftext|>";
    EXPECT(encoded.code == 0 && back.out == text + end + text + end + "row" + end + "x",
           "%s%s", encoded.err.c_str(), back.err.c_str());
    const auto trained = test::run("./tokenize train --as=text --vocab=300 --out=" + t + inputs);
    EXPECT(trained.code == 0 && has(trained.out, "from 4 documents"), "%s%s", trained.out.c_str(),
           trained.err.c_str());
    const auto ids = test::run("./tokenize ids --as=text" + kRanks + d + "/a.md");
    EXPECT(ids.code == 0 && ids.out == read_file(kData + "hard.ids"), "%s", ids.err.c_str());
    const auto other = test::run("./tokenize encode --as=csv" + kRanks + "--out=" + d + "/s" + inputs);
    EXPECT(other.code == kExitConfig && has(other.err, "--as=csv, expected one of text, jsonl"), "%s",
           other.err.c_str());
}

// Screen of a terminal while `body` runs in a process.
template <class F> static std::string on_terminal(F&& body) {
    int screen;
    const pid_t child = forkpty(&screen, nullptr, nullptr, nullptr);
    CHECK_INPUT(child >= 0, "no terminal can be opened");
    if (child == 0) body(), _exit(0);
    std::string shown;
    char part[4096];
    for (ssize_t n; (n = read(screen, part, sizeof part)) > 0;) shown.append(part, size_t(n));
    close(screen);
    waitpid(child, nullptr, 0);
    return shown;
}

static std::string command_on_terminal(const std::string& command) {
    return on_terminal([&] { execl("/bin/sh", "sh", "-c", command.c_str(), nullptr); });
}

TEST(progress_on_a_terminal_only) {
    write_file(test::folder("part.txt"), std::string(300000, 'a') + "\n");
    const std::string part = "cat " + test::folder("part.txt") + "; ";
    const std::string slow = "(" + part + "sleep 0.4; " + part + part + ") | ./tokenize encode" + kRanks +
                             " --out=" + test::folder("slow") + " -";
    const std::string shown = command_on_terminal(slow);
    EXPECT(has(shown, "encode  0.") && has(shown, " MB/s\x1b[K") && has(shown, "1 document, "), "%s",
           shown.c_str());
    const std::string to_file = command_on_terminal(slow + " | cat");
    EXPECT(!has(to_file, "\x1b") && !has(to_file, "encode") && has(to_file, "1 document, "), "%s",
           to_file.c_str());
    const std::string to_log = command_on_terminal(slow + " 2>" + test::folder("log"));
    EXPECT(!has(to_log, "\x1b") && read_file(test::folder("log")).empty(), "%s", to_log.c_str());
}

TEST(a_bar_where_the_total_is_known) {
    const std::string bar = on_terminal([] {
        Progress p("prepare", "B", 4000000);
        p.drawn -= 1, p.started -= 1;       // as if a second ago
        p.update(1000000);
    });
    const char* quarter = "\rprepare  [######                  ]  25%  1.0 MB  1.0 MB/s  3 s left\x1b[K";
    EXPECT(has(bar, quarter), "%s", bar.c_str());
    EXPECT(bar.ends_with("\r\x1b[K"), "the line is removed at the end: %s", bar.c_str());
}

// Opened twice, a named pipe would wait for a second writer, or lose what the first wrote before.
TEST(a_named_pipe) {
    const std::string pipe = test::folder("pipe.txt"), out = test::folder("piped");
    mkfifo(pipe.c_str(), 0600);
    for (const char* val : {"", " --val=0.4", "", " --val=0.4"}) {
        const auto ran = test::run("(sleep 0.3; printf 'Once upon a time.\nIt ended.\n' > " + pipe +
                                   ") & timeout 10 ./tokenize encode" + kRanks + "--out=" + out + val + " " +
                                   pipe);
        EXPECT(ran.code == 0, "%s: exit %d %s", val, ran.code, ran.err.c_str());
        const auto text = test::run("./tokenize decode" + kRanks + out + "_*.bin").out;
        EXPECT(has(text, "Once upon a time.\n") && has(text, "It ended.\n"), "'%s'", text.c_str());
    }
}

// However encoding ends, no part of a shard stays.
TEST(nothing_stays_of_a_shard_that_was_not_finished) {
    if (!Fd(open(test::folder("").c_str(), O_TMPFILE | O_RDWR, 0600)))
        return test::skip("no nameless files on this file system");
    for (const char* signal : {"TERM", "KILL"}) {
        const std::string folder = test::folder(signal), out = folder + "/set";
        make_directories(folder);
        const auto ran = test::run("yes 'Once upon a time.' | timeout -s " + std::string(signal) +
                                   " 0.5 ./tokenize encode" + kRanks + "--shard-tokens=2147483647 --out=" +
                                   out + " -");
        EXPECT(ran.code != 0, "encoding ended by itself");
        for (const auto& entry : std::filesystem::directory_iterator(folder))
            EXPECT(false, "%s: %s stays", signal, entry.path().c_str());
    }
}

TEST(version_and_places_that_take_no_file) {
    const auto version = test::run("./tokenize --version");
    EXPECT(version.code == 0 && version.out.starts_with("tokenize, commit ") &&
               has(version.out, "\ncompiler") && version.out.find('\n') >= 17 + 7, "%s", version.out.c_str());
    const auto train = test::run("./tokenize train --vocab=300 --out=/proc/t.json " + kData + "corpus.txt");
    const auto encode = test::run("./tokenize encode" + kRanks + "--out=/proc/t " + kData + "corpus.txt");
    for (const auto& r : {train, encode}) {
        EXPECT(r.code == kExitConfig && has(r.err, "the folder /proc:") && has(r.err, "/proc/t") &&
                   !has(r.err, ".tmp"), "exit %d, %s", r.code, r.err.c_str());
    }
}

TEST(a_line_each_half_minute_where_there_is_no_terminal) {
    const std::string lines = test::captured(2, [] {
        Progress p("prepare", "B", 4000000);
        p.update(500000);
        p.drawn -= 29, p.started -= 29;
        p.update(900000);
        p.drawn -= 1.1, p.started -= 1.1;
        p.update(1000000);
        p.update(2000000);
    });
    const char* want = "prepare   25%  1.0 MB  0.0 MB/s  90 s left\n";
    EXPECT(lines == want, "'%s'", lines.c_str());
}

TEST(progress_of_a_vocabulary) {
    write_file(test::folder("part.txt"), std::string(300000, 'a') + "\n");
    const std::string part = "cat " + test::folder("part.txt") + "; ", out = test::folder("vocabulary.json");
    const std::string words = command_on_terminal("(" + part + "sleep 0.4; " + part + part +
                                                  ") | ./tokenize train --vocab=300 --out=" + out + " -");
    EXPECT(has(words, "\rcount words  0.") && has(words, out.c_str()), "%s", words.c_str());
    std::string text;               // of different words: merging takes a while
    for (uint64_t i = 0, n = 1; i < 500000; i++) {
        n = n * 6364136223846793005 + 1442695040888963407;
        for (uint64_t rest = n >> 20; rest; rest /= 26) text += char('a' + rest % 26);
        text += i % 10 ? ' ' : '\n';
    }
    write_file(test::folder("words.txt"), text);
    const std::string merging = command_on_terminal("./tokenize train --vocab=60000 --out=" + out + " " +
                                                    test::folder("words.txt"));
    EXPECT(has(merging, "\rbuild vocabulary  [") && has(merging, " tokens/s"), "%s", merging.c_str());
}

// Most threads of ./tokenize while waiting for the end of input.
static int threads_of(const std::string& options) {
    write_file(test::folder("part.txt"), std::string(300000, 'a') + "\n");
    const std::string part = "cat " + test::folder("part.txt") + "; ";
    const auto r = test::run("(" + part + "sleep 2) | ./tokenize encode" + kRanks + options + " --out=" +
                             test::folder("threads") + " - >/dev/null & for i in $(seq 18); do sleep 0.1; "
                             "cat /proc/$!/status; done; wait");
    int most = -1;
    for (size_t at = 0; (at = r.out.find("Threads:", at)) != r.out.npos; at++)
        most = std::max(most, atoi(r.out.c_str() + at + 8));
    return most;
}

// Besides the reading and writing thread, if several.
TEST(all_cores_encode) {
    const int cores = available_threads(), all = threads_of(""), five = threads_of("--threads=5");
    EXPECT(threads_of("--threads=1") == 1 && five == 6, "%d threads for 5", five);
    EXPECT(all == (cores > 1 ? cores + 1 : 1), "%d threads on %d cores", all, cores);
}

// Ranks of every byte, of pairs with a byte beyond ASCII, and of pairs of such bytes with one more: 65,792,
// and end-of-text. Other pairs would not fit the pattern.
static std::string many_ranks() {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    int rank = 0;
    const auto add = [&](int bytes, int a, int b, int c) {
        const int bits = a << 16 | b << 8 | c;
        text += {digits[bits >> 18], digits[bits >> 12 & 63], bytes > 1 ? digits[bits >> 6 & 63] : '=',
                 bytes > 2 ? digits[bits & 63] : '='};
        text += " " + std::to_string(rank++) + "\n";
    };
    for (int a = 0; a < 256; a++) add(1, a, 0, 0);
    for (int i = 0; i < 65536; i++)
        if (i >> 8 >= 128 || (i & 255) >= 128) add(2, i >> 8, i & 255, 0);
    for (int i = 0; i < 16384; i++) add(3, 128 + (i >> 7), 128 + (i & 127), 128);
    return text;
}

// BOS 1500 and EOS 1501 by the template; the text of a control token is ordinary.
TEST(documents_begin_and_end_as_the_template_says) {
    using nlohmann::json;
    json file = json::parse(read_file(kData + "hf.json"));
    const auto special = [](const char* name) {
        return json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
    };
    for (const char* name : {"<s>", "</s>"})
        file["added_tokens"].push_back({{"id", file["added_tokens"].size() + 1499}, {"content", name}});
    const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    write_file(test::folder("two.jsonl"), "{\"text\": \"a<s>\\nb\"}\n{\"text\": \"c\"}\n");
    const auto encoded = [&](const json& single, const std::vector<int32_t>& ends) {
        file["post_processor"] = {{"type", "TemplateProcessing"}, {"single", single}};
        write_file(test::folder("ends.json"), file.dump());
        const std::string t = " --tokenizer=" + test::folder("ends.json"), out = test::folder("ends");
        const auto r = test::run("./tokenize encode" + t + " --out=" + out + " " + test::folder("two.jsonl"));
        const ShardFile shard = open_shard_file(out + "_train_000000.bin");
        std::vector<int32_t> ids(shard.info.tokens), found;
        read_tokens(shard, 0, ids.size(), ids.data());
        for (const int32_t id : ids) if (id >= 1499) found.push_back(id);
        EXPECT(r.code == 0 && found == ends, "%s: %s", single.dump().c_str(), json(found).dump().c_str());
        const auto back = test::run("./tokenize decode" + t + " " + out + "_train_000000.bin");
        EXPECT(back.out == "a<s>\nb<|endoftext|>c", "'%s'", back.out.c_str());
    };
    encoded(json::array({text}), {1499, 1499});
    encoded(json::array({special("<s>"), text}), {1500, 1500});
    encoded({special("<s>"), text, special("</s>")}, {1500, 1501, 1500, 1501});
    encoded(json::array({text, special("</s>")}), {1499, 1501, 1499, 1501});
    encoded(json::array({text, special("<|endoftext|>")}), {1499, 1499});       // ends one, begins the next
}

TEST(shards_of_large_vocabularies_and_of_others) {
    write_file(test::folder("many.tiktoken"), many_ranks());
    const std::string t = " --tokenizer=" + test::folder("many.tiktoken") + " ", out = test::folder("many"),
                      shard = out + "_train_000000.bin";
    const auto r = test::run("./tokenize encode" + t + "--out=" + out + " " + kData + "hard.txt");
    EXPECT(r.code == 0, "%d %s", r.code, r.err.c_str());
    const auto back = test::run("./tokenize decode" + t + shard);
    EXPECT(back.code == 0 && back.out == read_file(kData + "hard.txt"), "%s", back.err.c_str());
    const uint64_t number = Tokenizer::load(test::folder("many.tiktoken")).hash();
    const std::string hash = fmt::format("{:016x}", number);
    const auto info = test::run("./tokenize info " + shard);
    for (const char* part : {"magic 20240801, version 7", "tokens of 4 bytes", "largest id 65792",
                             "vocabulary 65793", hash.c_str()})
        EXPECT(has(info.out, part), "no '%s' in '%s'", part, info.out.c_str());

    // llm.c leaves the fields after the first three zero
    std::string foreign = read_file(shard);
    std::fill(foreign.begin() + 12, foreign.begin() + 1024, '\0');
    write_file(test::folder("foreign.bin"), foreign);
    const auto other = test::run("./tokenize info " + test::folder("foreign.bin"));
    EXPECT(has(other.out, "largest id 65792 (counted), vocabulary and tokenizer not known"), "%s",
           other.out.c_str());
}
