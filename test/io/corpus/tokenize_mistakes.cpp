// ./tokenize with wrong options, inputs and places; files left by a failing call.
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "llmc/base/disk/files.h"
#include "llmc/io/files/shard_writer.h"
#include "test/test.h"

static const std::string kData = "test/data/tokenizer/", kRanks = " --tokenizer=" + kData + "hf.tiktoken ";

static void refused(const std::string& arguments, const std::vector<std::string>& words) {
    const auto r = test::run("timeout 20 ./tokenize " + arguments);
    EXPECT(r.code == kExitConfig && r.err.starts_with("error: "), "%s: exit %d '%s'", arguments.c_str(),
           r.code, r.err.c_str());
    EXPECT(test::no_message(r.err).empty(), "%s: %s in '%s'", arguments.c_str(),
           test::no_message(r.err).c_str(), r.err.c_str());
    for (const std::string& word : words)
        EXPECT(r.err.find(word) != r.err.npos, "%s: no '%s' in '%s'", arguments.c_str(), word.c_str(),
               r.err.c_str());
}

static std::string gzip(const std::string& text, const char* name) {
    gzFile f = gzopen(test::folder(name).c_str(), "wb");
    gzwrite(f, text.data(), unsigned(text.size()));
    gzclose(f);
    return test::folder(name);
}

// Everything in the folder, name and content.
static std::vector<std::string> content_of(const std::string& folder) {
    std::vector<std::string> all;
    for (const auto& path : glob_files(folder + "/*")) all.push_back(path + read_file(path));
    return all;
}

// Otherwise `train --val=0.1` would promise to train on the training part alone.
TEST(options_of_another_command) {
    refused("train --val=0.5 --vocab=300 --out=x.json x.txt", {"train", "--val"});
    refused("info --tokenizer=T x.bin", {"info", "--tokenizer"});
    refused("decode --val=0.3 --tokenizer=T x.bin", {"decode", "--val"});
    refused("ids --vocab=5 --tokenizer=T", {"ids", "--vocab"});
    refused("encode --vocab=5 --tokenizer=T --out=x -", {"encode", "--vocab"});
}

TEST(numbers_that_are_none) {
    refused("train --vocab=1e3 --out=x.json x.txt", {"--vocab=1e3", "number of ids"});
    refused("train --vocab=-1 --out=x.json x.txt", {"--vocab=-1", "number of ids"});
    refused("encode --val=nan --out=x --tokenizer=T -", {"--val=nan", "fraction"});
    refused("encode --val=half --out=x --tokenizer=T -", {"--val=half", "fraction"});
    refused("encode --shard-tokens=1k --out=x --tokenizer=T -", {"--shard-tokens=1k", "tokens"});
    refused("info --threads=many x.bin", {"--threads=many", "threads"});
}

// Shards come under their names when all are complete: an old set stays whole, or is replaced as a whole.
TEST(a_set_that_fails_leaves_the_one_before) {
    const std::string folder = test::folder("sets"), encode = "encode" + kRanks + "--out=" + folder + "/x ";
    make_directories(folder);
    const std::string text = kData + "hard.txt";
    const auto good = test::run("./tokenize " + encode + "--shard-tokens=300 --val=0.1 " + text);
    const auto before = content_of(folder);
    EXPECT(good.code == 0 && before.size() > 5, "%zu shards, '%s'", before.size(), good.err.c_str());
    std::string rows;
    for (int i = 0; i < 200000; i++) rows += "{\"text\": \"a row of some words\"}\n";
    write_file(test::folder("last_row.jsonl"), rows + "{\"no text\": 1}\n");
    refused(encode + "--shard-tokens=70000 --threads=1 " + test::folder("last_row.jsonl"),
            {":200001", "text"});
    const auto left = glob_files(folder + "/*");
    EXPECT(left.size() > before.size(), "it failed before it wrote a shard: nothing is shown");
    for (const std::string& path : left)
        if (path.ends_with(kUnfinished)) unlink(path.c_str());
    EXPECT(content_of(folder) == before, "shards of the set before have changed");

    write_file(folder + "/x_train_000077.bin" + kUnfinished, "of one that was killed");
    write_file(folder + "/x_train_000077.idx" + kUnfinished, "its index");
    write_file(folder + "/x_train_000000.other", "of nobody");
    test::run("./tokenize " + encode + text);
    const auto now = glob_files(folder + "/*");
    EXPECT(now.size() == 2 && now[0].ends_with("x_train_000000.bin"), "%zu files", now.size());
}

// Tokens and merges reach the terminal escaped, and no longer than a message.
TEST(control_characters_in_a_tokenizer) {
    const std::string text = read_file(kData + "hf.json"), file = test::folder("escape.json");
    const auto with = [&](const std::string& before, const std::string& put) {
        const size_t at = text.find(before);
        EXPECT(at != text.npos, "no %s", before.c_str());
        write_file(file, text.substr(0, at + before.size()) + put + text.substr(at + before.size()));
        refused("ids --tokenizer=" + file + " " + kData + "hard.txt", {"escape.json"});
    };
    const std::string long_merge(3000000, 'a');
    for (const std::string merge : {"\\u001b[2J \\u009b", "\\u001b[2J", long_merge.c_str()})
        with("\"merges\":[", "\"" + merge + "\",");
    with("\"vocab\":{", "\"\\u001b[2J\\u0085\\n\\n\\n\\n\\n\\n\\n\\n\\n\":1,");
}

// Limits of the system: a file of limited size, too little memory.
TEST(limits_of_a_process) {
    const std::string text = test::folder("limited.txt"), out = test::folder("limited");
    write_file(text, read_file(kData + "corpus.txt"));
    const std::pair<std::string, std::string> commands[] = {
        {"encode" + kRanks + "--out=" + out, out},
        {"train --vocab=1000 --out=" + out + ".json", out + ".json"},
        {"ids" + kRanks, "stdout"}};
    for (const auto& [command, name] : commands) {
        const auto r = test::run("ulimit -f 8; ./tokenize " + command + " " + text);
        EXPECT(r.code == kExitConfig && r.err.find(name) != r.err.npos &&
                   r.err.find("ulimit -f") != r.err.npos, "%s: exit %d '%s'", command.c_str(), r.code,
               r.err.c_str());
    }
    const auto piped = test::run("ulimit -f 8; cat " + text + " | ./tokenize " + commands[0].first +
                                 " --val=0.1 -");
    EXPECT(piped.code == kExitConfig && piped.err.find("ulimit -f") != piped.err.npos, "exit %d '%s'",
           piped.code, piped.err.c_str());
    if (test::kAddressSanitizer || test::kThreadSanitizer) return;
    for (const auto& [command, name] : commands) {
        const auto r = test::run("ulimit -s 64; ./tokenize " + command + " " + text);
        EXPECT(r.code == kExitConfig && r.err.find("ulimit -s") != r.err.npos, "%s: exit %d '%s'",
               command.c_str(), r.code, r.err.c_str());
        const auto soft = test::run("ulimit -S -s 64; ./tokenize " + command + " " + text);
        EXPECT(soft.code == 0, "%s: exit %d '%s'", command.c_str(), soft.code, soft.err.c_str());
    }
    const auto r = test::run("ulimit -v 55000; ./tokenize " + commands[0].first + " --threads=1 " + text);
    EXPECT(r.code == kExitConfig && r.err.find("out of memory") != r.err.npos, "exit %d '%s'", r.code,
           r.err.c_str());
}

TEST(inputs_without_a_document) {
    const std::string out = test::folder("kept");
    test::run("./tokenize encode" + kRanks + "--out=" + out + " " + kData + "hard.txt");
    const std::string before = read_file(out + "_train_000000.bin");
    write_file(test::folder("none.jsonl"), ""), write_file(test::folder("empty.txt.gz"), "");
    write_file(test::folder("empty.txt.zst"), "");
    const std::string encode = "encode" + kRanks + "--out=" + out + " ";
    refused(encode + test::folder("none.jsonl"), {"no document", out});
    refused(encode + gzip("", "none.jsonl.gz"), {"no document", out});
    for (const char* name : {"empty.txt.gz", "empty.txt.zst"}) {
        refused(encode + test::folder(name), {name, "empty"});
        refused("ids" + kRanks + test::folder(name), {name, "empty"});
    }
    EXPECT(read_file(out + "_train_000000.bin") == before, "the set before has changed");
}

// gzip(1) takes zeros after the last member for a tape's padding; of anything else it says garbage.
TEST(zeros_after_a_packed_file) {
    const std::string path = gzip("Once upon a time.\n", "padded.txt.gz"), packed = read_file(path);
    const auto want = test::run("printf 'Once upon a time.\\n' | ./tokenize ids" + kRanks);
    for (const size_t zeros : {1, 511, 300000}) {
        write_file(path, packed + std::string(zeros, '\0'));
        const auto got = test::run("./tokenize ids" + kRanks + path);
        EXPECT(got.code == 0 && got.out == want.out && want.out.size() > 5, "%zu zeros: %s", zeros,
               got.err.c_str());
    }
    write_file(path, packed + std::string(9, '\0') + "x");
    refused("ids" + kRanks + path, {"padded.txt.gz"});
    write_file(path, std::string(9, '\0') + packed);
    refused("ids" + kRanks + path, {"padded.txt.gz", "damaged"});
}

TEST(places_that_are_no_files) {
    const std::string pipe = test::folder("pipe.bin"), folder = test::folder("folder.json");
    mkfifo(pipe.c_str(), 0600), make_directories(folder);
    refused("info " + pipe, {pipe, "expected a file"});
    refused("decode" + kRanks + pipe, {pipe, "expected a file"});
    refused("train --vocab=300 --out=" + folder + " " + kData + "hard.txt", {folder, "name of a file"});
    NewFile* none = nullptr;
    const Fatal f = test::fatal_of([&] { none = new NewFile(pipe); });
    EXPECT(!none && std::string(f.what()).find(pipe) != std::string::npos, "a pipe is replaced by a file");
}

// No file of a run or of a checkpoint, no file of another kind, no pipe; a link is replaced.
TEST(outputs_in_place_of_other_files) {
    const std::string run = test::folder("a_run"), step = run + "/step_2", text = " " + kData + "hard.txt";
    const std::string train = "train --vocab=300 --out=", encode = "encode" + kRanks + "--out=";
    make_directories(step);
    for (const char* name : {"/metrics.jsonl", "/config.json", "/step_2/manifest.json", "/package.json"})
        write_file(run + name, "{\"name\": 1}");
    const std::string list = "cd " + run + "; find . -type f -exec cksum {} + | sort";
    const auto files = [&] { return test::run(list).out; };
    const std::string before = files();
    for (const char* name : {"/config.json", "/step_2/manifest.json", "/step_2/tokenizer.json"})
        refused(train + run + name + text, {"--out", name, "a file of a run or of a checkpoint"});
    refused(train + run + "/package.json" + text, {"package.json", "of another kind"});
    refused(encode + step + "/x" + text, {"step_2/x_train_000000.bin", "of a checkpoint"});
    EXPECT(files() == before && !before.empty(), "%s", files().c_str());
    const std::string ranked = encode + test::folder("ranked") + " --pattern=gpt2" + text;
    write_file(test::folder("ranked_tokenizer.json"), "[1, 2]");
    refused(ranked, {"ranked_tokenizer.json", "of another kind"});
    EXPECT(glob_files(test::folder("ranked") + "*").size() == 1, "shards were written before");
    unlink(test::folder("ranked_tokenizer.json").c_str());
    for (int i = 0; i < 2; i++) EXPECT(test::run("./tokenize " + ranked).code == 0, "its own file, again");
    mkfifo(test::folder("pipe_train_000000.bin").c_str(), 0600);
    refused(encode + test::folder("pipe") + text, {"pipe_train_000000.bin", "a pipe"});
    const std::string real = test::folder("real.json"), linked = test::folder("linked.json");
    EXPECT(test::run("./tokenize " + train + real + text).code == 0);
    EXPECT(symlink(real.c_str(), linked.c_str()) == 0);
    const std::string first = read_file(real);
    EXPECT(test::run("./tokenize train --vocab=301 --out=" + linked + text).code == 0);
    EXPECT(read_file(real) == first && read_file(linked) != first, "the link is followed");
}

// A frame whose window is longer than zstd reads without being asked; a window that nobody reads.
TEST(long_windows_of_zstd) {
    const std::string text = read_file(kData + "hard.txt");
    ZSTD_CCtx* z = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, 28);
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    ZSTD_inBuffer in = {text.data(), text.size(), 0};
    ZSTD_outBuffer out = {packed.data(), packed.size(), 0};
    EXPECT(ZSTD_compressStream2(z, &out, &in, ZSTD_e_flush) == 0 &&    // the frame does not know its size
           ZSTD_compressStream2(z, &out, &in, ZSTD_e_end) == 0);
    ZSTD_freeCCtx(z);
    packed.resize(out.pos);
    write_file(test::folder("long.txt.zst"), packed);
    const auto e = test::run("./tokenize ids" + kRanks + test::folder("long.txt.zst"));
    EXPECT(e.code == 0 && e.out == read_file(kData + "hard.ids"), "%s", e.err.c_str());
    EXPECT(uint8_t(packed[5]) == (28 - 10) << 3, "the window is 0x%02x", uint8_t(packed[5]));
    packed[5] = char(31 << 3);          // 2^41 bytes
    write_file(test::folder("longer.txt.zst"), packed);
    refused("ids" + kRanks + test::folder("longer.txt.zst"), {"longer.txt.zst", "window", "--long=27"});
}
