// The scripts under data/: their files, and their messages without a source. No test needs a network; tests
// of downloads are skipped without a network.
#include <sys/stat.h>

#include "test/script_helpers.h"

// A llm.c token shard whose id i is (i * 7 + salt) % 50000.
static std::string shard(int tokens, int salt) {
    std::vector<int32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = tokens;
    std::string s(reinterpret_cast<char*>(header.data()), 1024);
    for (int i = 0; i < tokens; i++) {
        const uint16_t id = uint16_t((i * 7 + salt) % 50000);
        s.append(reinterpret_cast<const char*>(&id), 2);
    }
    return s;
}

// ---------------------------------------------------------------------------------------------------------
// austen.py

// Hand-made values in R's format, versions 2 and 3: text in both encodings, NA, names, references to symbols,
// R's wrapper around shared vectors. Every truncation is an error.
TEST(austen_reads_r_serialization) {
    const auto ran = test::run("PYTHONPATH=data " + python() + R"py( - <<'EOF'
import struct, austen
I = lambda *x: struct.pack(">%di" % len(x), *x)
text = lambda s, kind=0x40009, code="utf-8": I(kind, len(s.encode(code))) + s.encode(code)
symbol = lambda s: I(1) + text(s)
head2 = b"X\n" + I(2, 0x040200, 0x020300)
head3 = b"X\n" + I(3, 0x040200, 0x030500) + I(5) + b"UTF-8"
strings = I(16, 3) + text("it is") + text("\u00a3", 0x4 << 12 | 9, "latin-1") + I(9, -1)
names = lambda *n: I(0x402) + symbol("names") + I(16, len(n)) + b"".join(map(text, n)) + I(254)
named = I(19 | 0x200, 2) + I(13, 2, 7, -7) + I(14, 1) + struct.pack(">d", 0.5) + names("a", "b")
pairs = I(0x402) + symbol("k") + I(10, 1, 1) + I(0x402) + I(0x1ff) + I(13, 1, 5) + I(254)
wrapped = (I(238) + I(2) + symbol("wrap_string") + I(254) + I(2) + strings + I(2) + I(13, 2, 0, 0) + I(254) +
           I(254))
words = ["it is", "\u00a3", None]
for body, want in ((strings, words), (named, {"a": [7, -7], "b": [0.5]}), (pairs, {"k": [5]}),
                   (wrapped, words), (I(254), None)):
    for head in (head2, head3):
        got = austen.decode(head + body)
        assert got == want, (got, want)
        for n in range(len(head + body)):
            try:
                austen.decode((head + body)[:n])
                assert False, "a value cut at byte %d of %d is read" % (n, len(head + body))
            except (ValueError, struct.error):
                pass
for wrong in (head2 + I(3), b"A\n" + head2[2:] + strings, b"X\n" + I(9, 0, 0) + strings):
    try:
        austen.decode(wrong)
        assert False, wrong
    except ValueError:
        pass
EOF)py");
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
}

TEST(austen_unwraps_and_cuts) {
    const auto ran = test::run("PYTHONPATH=data " + python() + " - " + made("cuts") + R"py( <<'EOF'
import subprocess, sys, austen
text = austen.unwrap(["", "A  b", "c.", "", "", "", "d", "  e  ", ""])
assert text == "A b c.\n\nd e\n", repr(text)
whole = "".join("line %d\n" % i for i in range(1000))
for fraction in (0, 0.1, 0.5):
    part = austen.training_part(whole, fraction)
    data = whole.encode()
    assert data.startswith(part) and part.endswith(b"\n"), fraction
    assert abs(len(data) * (1 - fraction) - len(part)) <= 5, (fraction, len(part))
assert austen.training_part("one", 0.1) == b"one"
T = "--tokenizer=test/data/tokenizer/hf.tiktoken"
for text in (whole, "word " * 3000, "\u00e9" * 1000, ("long " * 200 + "\n") * 30, "a\n\nb  c\n"):
    for fraction in (0.3, 0.1, 0.01):
        open(sys.argv[1] + "/cut.txt", "w", newline="").write(text)
        run = lambda *a: subprocess.run(["./tokenize", a[0], T, *a[1:]], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, check=True).stdout
        run("encode", f"--val={fraction}", f"--out={sys.argv[1]}/cut", sys.argv[1] + "/cut.txt")
        shards = run("decode", sys.argv[1] + "/cut_train_000000.bin")
        assert shards == austen.training_part(text, fraction), (text[:20], fraction, len(shards))
EOF)py");
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
}

// The package itself: six texts, and the tokenizer's training part is what `encode --val` calls training.
TEST(austen_brings_six_novels) {
    const std::string out = made("austen");
    const auto ran = test::run("timeout 60 data/austen.py --out " + out);
    if (ran.code != 0) {
        expect_error(ran, {"could not be fetched", "--deb", "data/README.md"});
        return test::skip("r-cran-janeaustenr cannot be fetched here");
    }
    EXPECT(!has(ran.out, "note:"), "the texts are not those of release 1.0.0: %s", ran.out.c_str());
    const auto encoded = test::run(
        "t=$PWD/tokenize; cd " + out + " && $t train --vocab=300 --out=t.json train/*.txt && "
        "$t encode --tokenizer=t.json --val=0.1 --out=s 0*.txt && "
        "$t decode --tokenizer=t.json s_train_*.bin >decoded");
    EXPECT(encoded.code == 0, "%s", encoded.err.c_str());
    std::string joined;
    for (int i = 1; i <= 6; i++) {
        const auto found = test::run("cat " + out + "/train/0" + std::to_string(i) + "_*.txt");
        joined += (i > 1 ? "<|endoftext|>" : "") + found.out;
    }
    const std::string decoded = read(out + "/decoded");
    EXPECT(joined.size() > 3500000, "only %zu bytes", joined.size());
    EXPECT(decoded == joined, "shards have %zu bytes, OUT/train/ %zu", decoded.size(), joined.size());
}

TEST(austen_says_what_failed) {
    const auto ran = test::run("data/austen.py --out " + made("no_austen") + " --deb /nowhere.deb");
    expect_error(ran, {"/nowhere.deb", "data/README.md"});
}

// ---------------------------------------------------------------------------------------------------------
// fineweb.py, over file://

struct Mirror {
    std::string source, out;
    std::string val = "/edu_fineweb_val_000000.bin", one = "/edu_fineweb_train_000001.bin",
                two = "/edu_fineweb_train_000002.bin";

    explicit Mirror(const std::string& name) : source(made(name + "_source")), out(made(name + "_out")) {
        write(source + val, shard(3000, 1));
        write(source + one, shard(700000, 2));
        write(source + two, shard(5000, 3));
    }
    test::Ran fetch() const {
        return test::run("data/fineweb.py --shards 2 --retries 1 --backoff 0.01 --out " + out +
                         " --base-url file://" + source);
    }
};

TEST(fineweb_brings_shards) {
    const Mirror m("fineweb");
    for (int round = 0; round < 2; round++) {
        const auto ran = m.fetch();
        EXPECT(ran.code == 0 && has(ran.out, "3 shards"), "%s%s", ran.out.c_str(), ran.err.c_str());
        EXPECT(round == 0 || has(ran.out, "edu_fineweb_train_000001.bin  is here"), "%s", ran.out.c_str());
        for (const auto& name : {m.val, m.one, m.two})
            EXPECT(read(m.out + name) == read(m.source + name), "%s differs", name.c_str());
    }
}

TEST(fineweb_goes_on_where_it_broke_off) {
    const Mirror m("broken_off");
    const std::string whole = read(m.source + m.one);
    for (const size_t length : {size_t(500), size_t(1024), size_t(600001)}) {   // the last within an id
        std::filesystem::remove(m.out + m.one);
        write(m.source + m.one, whole.substr(0, length));
        auto ran = m.fetch();
        EXPECT(ran.code == 1 && has(ran.err, "call again") && !std::filesystem::exists(m.out + m.one),
               "cut at %zu: exit %d, %s", length, ran.code, ran.err.c_str());
        // a mark in the arrived part shows that the script keeps the part
        const std::string part = m.out + m.one + ".part";
        const bool kept = length > 2000;
        if (kept) write(part, read(part).replace(2000, 4, "MARK"));
        write(m.source + m.one, whole);
        ran = m.fetch();
        EXPECT(ran.code == 0 && !std::filesystem::exists(part), "%s", ran.err.c_str());
        const std::string want = kept ? std::string(whole).replace(2000, 4, "MARK") : whole;
        EXPECT(read(m.out + m.one) == want, "cut at %zu: the shard differs", length);
    }
}

TEST(fineweb_refuses_what_is_no_shard) {
    struct Case { const char* name; std::string content, says; };
    std::string wrong_version = shard(10, 0);
    wrong_version[4] = 9;
    const std::vector<Case> cases = {
        {"html", "<!DOCTYPE html><html>login</html>", "web page"},
        {"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"},
        {"text", std::string(4096, 'x'), "not a token shard"},
        {"version", wrong_version, "version 9"},
        {"longer", shard(2000, 2) + "x", "is longer than the 5024 bytes"},
    };
    for (const Case& c : cases) {
        const Mirror m(std::string("wrong_") + c.name);
        write(m.source + m.one, c.content);
        const auto ran = m.fetch();
        expect_error(ran, {c.says, m.one.substr(1)});
        EXPECT(!std::filesystem::exists(m.out + m.one) && !std::filesystem::exists(m.out + m.one + ".part"),
               "%s: something of it is left", c.name);
    }
    const Mirror m("wrong_here");           // an existing shard, truncated
    m.fetch();
    std::filesystem::resize_file(m.out + m.two, 9000);
    const auto ran = m.fetch();
    expect_error(ran, {"9000 bytes", "11024"});
    std::filesystem::remove(m.source + m.two);
    std::filesystem::remove(m.out + m.two);
    const auto gone = m.fetch();
    expect_error(gone, {"no such file"});
}

// Not "could not be fetched", and no traceback.
TEST(places_and_addresses_that_are_wrong) {
    const std::string file = made("a_file") + "/file", deb = made("a_deb") + "/x.deb";
    write(file, "x"), write(deb, "no package");
    for (const std::string script : {"data/fineweb.py", "data/gpt2_vocab.py", "data/austen.py"}) {
        const auto ran = test::run(script + " --out " + file + "/below");
        expect_error(ran, {"--out=" + file + "/below", "Not a directory"});
        EXPECT(!has(ran.err, "fetched"), "%s", ran.err.c_str());
    }
    expect_error(test::run("data/austen.py --out " + made("novels") + " --deb " + deb),
                 {"error: " + deb + ": no Debian package"});
    for (const char* wrong : {"--base-url=foo", "--base-url=http://[", "--base-url=http://a:b/",
                              "--base-url=http://../x",
                              "--base-url=https://", "--shards=-1", "--shards=1002", "--retries=-1"}) {
        const auto ran = test::run(std::string("data/fineweb.py --out ") + made("none") + " " + wrong);
        expect_error(ran, {std::string("error: ") + wrong + ": expected "});
    }
    expect_error(test::run("data/austen.py --val=1"), {"error: --val=1.0: expected "});
    const Mirror m("empty_here");
    write(m.out + m.one, "");
    expect_error(m.fetch(), {m.one.substr(1), "0 bytes", "delete it and call again"});
}

// A folder where a file is to be, in place of one without permission: root may write to any.
TEST(files_that_cannot_be_written) {
    const std::string f = made("taken");
    for (const char* name : {"/gpt2.tiktoken", "/x.part"}) std::filesystem::create_directories(f + name);
    for (const std::string module : {"austen", "gpt2_vocab"})
        expect_error(test::run("PYTHONPATH=data " + python() + " -c 'import " + module + " as m; m.write(\"" +
                               f + "/x\", b\"\")'"),
                     {"error: " + f + "/x.part is a device, a pipe or a folder"});
    const auto vocab = test::run("data/gpt2_vocab.py --out " + f + " --sdist /nowhere.tar.gz");
    expect_error(vocab, {f + "/gpt2.tiktoken is a device, a pipe or a folder"});
    for (const char* name : {"gpt2.tiktoken", "gpt2.tiktoken.part"}) {
        const std::string piped = made(std::string("pipe_") + name);
        EXPECT(mkfifo((piped + "/" + name).c_str(), 0600) == 0);
        expect_error(test::run("timeout 20 data/gpt2_vocab.py --out " + piped), {name, "a pipe or a folder"});
    }
    const Mirror shard("taken_shard"), part("taken_part");
    std::filesystem::create_directories(shard.out + shard.one);
    expect_error(shard.fetch(), {shard.out + shard.one + " is a device, a pipe or a folder"});
    std::filesystem::create_directories(part.out + part.one + ".part");
    const auto ran = part.fetch();
    expect_error(ran, {part.out + part.one + ".part is a device, a pipe or a folder"});
    EXPECT(!has(ran.out, "trying again"), "%s", ran.out.c_str());
    const Mirror linked("linked_part");
    write(f + "/mine", "mine");
    std::filesystem::create_symlink(f + "/mine", linked.out + linked.one + ".part");
    EXPECT(linked.fetch().code == 0 && read(f + "/mine") == "mine", "written through a link");
}

// ---------------------------------------------------------------------------------------------------------
// gpt2_vocab.py

TEST(gpt2_vocab_checks_what_it_unpacks) {
    const std::string f = made("vocab");
    std::filesystem::create_directories(f + "/p-1/whisper/assets");
    write(f + "/p-1/whisper/assets/gpt2.tiktoken", "IQ== 0\n");
    write(f + "/broken.tar.gz", "no archive");
    test::run("cd " + f + " && tar czf wrong.tar.gz p-1");
    test::run("cd " + f + " && rm p-1/whisper/assets/* && tar czf empty.tar.gz p-1");
    const std::string whole = read(f + "/wrong.tar.gz");
    write(f + "/cut.tar.gz", whole.substr(0, whole.size() / 2));
    write(f + "/damaged.tar.gz", whole.substr(0, 30) + std::string(40, '\xff') + whole.substr(70));
    const std::vector<std::pair<const char*, const char*>> cases = {
        {"wrong", "expected 306cd27f"},
        {"empty", "has no whisper/assets/gpt2.tiktoken"},
        {"broken", "could not be fetched"},
        {"cut", "could not be fetched"},
        {"damaged", "could not be fetched"}};
    for (const auto& [name, says] : cases) {
        const std::string archive = f + "/" + name + ".tar.gz";
        expect_error(test::run("data/gpt2_vocab.py --out " + f + "/out --sdist " + archive), {says});
        EXPECT(!std::filesystem::exists(f + "/out/gpt2.tiktoken"), "%s: a vocabulary is left", name);
    }
}

TEST(gpt2_vocab_comes_from_the_index) {
    const std::string f = made("vocab_real");
    const auto ran = test::run("timeout 60 data/gpt2_vocab.py --out " + f);
    if (ran.code != 0) return test::skip("the package index cannot be reached here");
    const auto ids = test::run("echo 'Hello world' | ./tokenize ids --tokenizer=" + f + "/gpt2.tiktoken -");
    EXPECT(ids.code == 0 && ids.out == "15496\n995\n198\n", "%s%s", ids.out.c_str(), ids.err.c_str());
}
