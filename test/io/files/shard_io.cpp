// Token shards: written ids come back, in one file or in seven; messages tell foreign from damaged files.
#include "llmc/io/files/shard_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "llmc/base/numbers/rng.h"
#include "llmc/io/files/rows.h"
#include "test/script_helpers.h"

static std::vector<int32_t> all_of(const std::vector<std::string>& paths) {
    std::vector<int32_t> ids;
    for (const auto& p : paths) {
        const ShardFile s = open_shard_file(p);
        ids.resize(ids.size() + s.info.tokens);
        read_tokens(s, 0, s.info.tokens, ids.data() + ids.size() - s.info.tokens);
    }
    return ids;
}

template <class Id>
static std::vector<std::string> write_set(const std::string& prefix, uint32_t vocab, uint64_t shard_tokens,
                                          const std::vector<Id>& ids) {
    ShardWriter w(prefix, vocab, 0x123456789abcdef0, shard_tokens);
    for (size_t at = 0; at < ids.size(); at += 777)
        w.append(std::span<const Id>(ids).subspan(at, std::min<size_t>(777, ids.size() - at)));
    w.close();
    publish({&w, 1});
    EXPECT(w.total == ids.size());
    return w.paths;
}

template <class Id> static void round_trip(uint32_t vocab, const char* name) {
    std::vector<Id> ids(21000);
    for (size_t i = 0; i < ids.size(); i++) ids[i] = Id(i * 2654435761u % vocab);
    const std::vector<int32_t> expected(ids.begin(), ids.end());
    const auto one = write_set(test::folder(name), vocab, 1000000, ids),
               seven = write_set(test::folder(name + std::string("7")), vocab, 3000, ids);
    EXPECT(one.size() == 1 && seven.size() == 7 && seven[6].ends_with("_000006.bin"), "%zu and %zu",
           one.size(), seven.size());
    EXPECT(all_of(one) == expected && all_of(seven) == expected);
    const ShardInfo s = open_shard_file(seven[2]).info;
    EXPECT(s.tokens == 3000 && s.vocab == vocab && s.has_largest && s.tokenizer_hash == 0x123456789abcdef0 &&
           s.id_bytes == sizeof(Id));
    EXPECT(s.largest == uint32_t(*std::max_element(expected.begin() + 6000, expected.begin() + 9000)), "%u",
           s.largest);
    EXPECT(scan_largest(open_shard_file(seven[2])) == s.largest);
    std::vector<int32_t> part(7);
    read_tokens(open_shard_file(one[0]), 12345, 7, part.data());
    EXPECT(std::equal(part.begin(), part.end(), expected.begin() + 12345));
}

TEST(round_trip_u16) { round_trip<uint16_t>(65536, "u16"); }
TEST(round_trip_u32) { round_trip<uint32_t>(100000, "u32"); }

TEST(a_set_without_tokens_has_no_file) {
    EXPECT(write_set<uint16_t>(test::folder("none"), 300, 10, {}).empty());
}

TEST(nothing_appears_before_it_is_complete) {
    const std::string prefix = test::folder("part"), first = prefix + "_000000.bin";
    {
        ShardWriter w(prefix, 300, 1, 1000);
        w.append(std::span<const uint16_t>(std::vector<uint16_t>(10)));
        EXPECT(!file_exists(first));
    }
    EXPECT(glob_files(prefix + "*").empty(), "what is not complete stays");
}

static std::string shard_header(int32_t magic, int32_t version, int32_t tokens, int32_t vocab = 0,
                                int32_t largest = 0) {
    int32_t h[256] = {magic, version, tokens, vocab, largest, 1, 2};
    return {reinterpret_cast<char*>(h), sizeof h};
}

// A sparse file: only its end is on the disk.
TEST(a_shard_beyond_four_gigabytes) {
    const std::string path = test::folder("big.bin");
    const int32_t tokens = 1200000000;
    write_file(path, shard_header(20240801, 7, tokens));
    if (truncate(path.c_str(), 1024 + 4 * int64_t(tokens)) != 0)
        return test::skip("the disk refuses a file of 4.8 GB: %s", strerror(errno));
    const ShardFile s = open_shard_file(path);
    EXPECT(s.info.tokens == uint64_t(tokens) && !s.info.has_largest && s.info.vocab == 0);
    const int32_t last[2] = {123456, 7};
    FILE* f = fopen(path.c_str(), "r+b");
    fseeko(f, -8, SEEK_END);
    fwrite(last, 4, 2, f);
    fclose(f);
    int32_t got[3];
    read_tokens(s, uint64_t(tokens) - 3, 3, got);
    EXPECT(got[0] == 0 && got[1] == 123456 && got[2] == 7, "%d %d %d", got[0], got[1], got[2]);
    unlink(path.c_str());
}

// On file systems with and without nameless files.
TEST(a_new_file_has_its_name_when_it_is_whole) {
    for (const bool nameless : {true, false}) {
        const std::string folder = test::folder(nameless ? "nameless" : "named"), path = folder + "/file";
        make_directories(folder);
        const auto files = [&] { return glob_files(folder + "/*"); };
        { NewFile f(path, nameless); f.write("part", 4); EXPECT(!file_exists(path)); }
        EXPECT(files().empty(), "%s stays", files()[0].c_str());
        write_file(path, "old");
        NewFile f(path, nameless);
        EXPECT(nameless || f.named, "the parameter does nothing");
        f.write("new ", 4), f.write("text", 4);
        EXPECT(read_file(path) == "old" && files().size() == (f.named ? 2u : 1u), "%zu", files().size());
        f.commit();
        EXPECT(read_file(path) == "new text" && files().size() == 1, "%zu files", files().size());
    }
}

// Names `path`: 0 a symbolic link to `other`, 1 a hard link, 2 a link to nothing.
static void make_link(int kind, const std::string& other, const std::string& path) {
    unlink(path.c_str());
    const int error = kind == 1 ? link(other.c_str(), path.c_str())
                                : symlink(kind == 2 ? "/nowhere/at/all" : other.c_str(), path.c_str());
    EXPECT(error == 0, "%s", path.c_str());
}

TEST(no_file_is_written_through_a_link) {
    const std::string other = test::folder("precious"), path = test::folder("by_link"), old = "{\"old\":1}\n";
    write_file(other, old);
    for (const int kind : {0, 1, 2}) {
        const std::string before = kind == 2 ? "" : old;
        const auto after = [&](auto write) {
            make_link(kind, other, path);
            for (const char* name : {".new", ".tmp"}) make_link(kind, other, path + name);
            write();
            EXPECT(read_file(other) == old, "link %d: '%s'", kind, read_file(other).c_str());
            return read_file(path);
        };
        EXPECT(after([&] { write_file(path, "new"); }) == "new", "write_file, link %d", kind);
        EXPECT(after([&] { EXPECT(try_replace_file(path, "new") == ""); }) == "new", "replaced, %d", kind);
        EXPECT(after([&] { EXPECT(try_append(path, "new") == ""); }) == before + "new", "added, %d", kind);
        EXPECT(after([&] { EXPECT(try_append_row(path, "r\n") == ""); }) == before + "r\n", "row, %d", kind);
        EXPECT(after([&] { EXPECT(try_own_file(path) == ""); }) == before, "copied, %d", kind);
    }
    make_directories(test::folder("others"));
    make_link(0, test::folder("others"), path);
    EXPECT(try_own_folder(path).find("is a link") != std::string::npos, "a folder behind a link");
    const std::string reason = try_own_folder(test::folder("others"));
    EXPECT(reason.empty(), "%s", reason.c_str());
}

// No writer waits for a reader of the pipe, whatever name the pipe has.
TEST(a_pipe_in_place_of_a_file_is_an_error_at_once) {
    const std::string path = test::folder("a_pipe");
    EXPECT(mkfifo(path.c_str(), 0600) == 0 && mkfifo((path + ".new").c_str(), 0600) == 0, "no pipe");
    for (const std::string& reason : {try_replace_file(path, "x"), try_append(path, "x"),
                                      try_append_row(path, "x\n"), try_own_file(path)})
        EXPECT(reason.find("a pipe") != std::string::npos, "'%s'", reason.c_str());
    const Fatal f = test::fatal_of([&] { write_file(path, "x"); });
    EXPECT(f.code == kExitConfig && strstr(f.what(), "a pipe"), "%d '%s'", f.code, f.what());
    EXPECT(try_replace_file(path + "_not", "x") == "" && read_file(path + "_not") == "x", "a file beside");
}

TEST(a_row_stands_on_a_line_of_its_own) {
    const std::string path = test::folder("rows.jsonl"), far(100'000, 'x');
    const std::pair<std::string, std::string> cases[] = {
        {"", ""}, {"{\"a\":1}\n", "{\"a\":1}\n"}, {"{\"a\":1}", "{\"a\":1}\n"}, {"{\"a\"", ""},
        {"{\"a\":1}\n{\"b\"", "{\"a\":1}\n"}, {far, ""}, {far + "}\n" + far, far + "}\n"}, {"\n", "\n"},
        {"{\"a\":{\"b\":1}", ""}, {"{\"a\":1}\n{\"b\":{\"c\":2}", "{\"a\":1}\n"}, {"\"x}", ""},
        {"{\"a\":{\"b\":[1,{}]}}", "{\"a\":{\"b\":[1,{}]}}\n"}};
    for (const auto& [before, kept] : cases) {
        write_file(path, before);
        EXPECT(try_append_row(path, "{\"c\":3}\n") == "" && read_file(path) == kept + "{\"c\":3}\n", "'%s'",
               read_file(path).substr(0, 60).c_str());
    }
    const std::string reason = try_append_row(test::folder("no/such/folder"), "{}\n");
    EXPECT(reason.find("No such") != std::string::npos, "'%s'", reason.c_str());
}

static void refused(const std::string& content, const std::vector<std::string>& words) {
    const std::string path = test::folder("refused.bin");
    write_file(path, content);
    const Fatal f = test::fatal_of([&] { open_shard_file(path); });
    EXPECT(f.code == kExitConfig, "exit code %d", f.code);
    EXPECT(std::string(f.what()).find("refused.bin") != std::string::npos, "%s", f.what());
    for (const auto& w : words)
        EXPECT(std::string(f.what()).find(w) != std::string::npos, "no \"%s\" in: %s", w.c_str(), f.what());
}

TEST(foreign_and_damaged_files_are_named) {
    refused("<!DOCTYPE html>" + std::string(5000, 'x'), {"20240520", "20240801", "HTML", "download"});
    refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            {"Git LFS", "git lfs pull"});
    refused("plain text, more of it\n", {"text", "./tokenize encode"});
    refused("\x93NUMPY" + std::string(3000, '\1'), {"NumPy", "data/README.md"});
    refused("PAR1" + std::string(3000, '\1'), {"Parquet", ".jsonl"});
    std::string ids(3000, '\0');
    for (size_t i = 0; i < ids.size(); i += 2) ids[i] = char(i * 7), ids[i + 1] = char(i % 196);
    refused(ids, {"without a header", "nanoGPT", "data/README.md"});
    ids[101] = '\xc5';
    refused(ids, {"make shards with ./tokenize encode"});
    refused("\x1f\x8b" + std::string(3000, '\1'), {"compressed"});
    refused("", {"20240520", "0 bytes"});
    refused(shard_header(20240520, 1, 0).substr(0, 700), {"700 bytes"});
    refused(shard_header(20240521, 1, 0), {"20240521"});
    refused(shard_header(20240520, 7, 0), {"version 7", "expected version 1"});
    refused(shard_header(20240520, 1, 100) + std::string(199, 0),
            {"truncated", "100 tokens", "1224 bytes", "1223"});
    refused(shard_header(20240801, 7, 100) + std::string(401, 0), {"too long", "1424 bytes", "1425"});
    refused(shard_header(20240520, 1, -5), {"-5 tokens"});
    refused(shard_header(20240520, 1, 0, 300, 300), {"300", "damaged"});
    refused(shard_header(20240520, 1, 0, INT32_MAX), {"2147483647", "65536", "damaged"});
    refused(shard_header(20240520, 1, 0, 65537), {"65537", "damaged"});
    refused(shard_header(20240801, 7, 0, INT32_MAX), {"2147483647", "1048576", "damaged"});
    refused(shard_header(20240801, 7, 0, -1), {"-1", "damaged"});
    EXPECT(test::fatal_of([] { open_shard_file("/nowhere/x.bin"); }).code == kExitConfig);
}

// Ids of a width that the header does not say, and of arrays of other programs.
TEST(ids_of_another_width) {
    const auto raw = [](const auto& ids) {
        return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]);
    };
    std::vector<int32_t> wide(400);
    for (size_t i = 0; i < wide.size(); i++) wide[i] = int32_t(philox(1, 2, i).x[0] % 100000);
    const std::vector<int64_t> longs(wide.begin(), wide.end());
    const std::vector<uint16_t> narrow(wide.begin(), wide.end());
    refused(raw(wide), {"ids of 4 bytes without a header", "Megatron", "data/README.md"});
    refused("\n " + raw(wide).substr(2), {"ids of 4 bytes without a header"});
    refused(raw(longs), {"ids of 8 bytes without a header"});
    refused("MMIDIDX" + std::string(100, '\0'), {"Megatron", "the .bin beside it"});
    refused("\x93NUMPY\1\1v\1{'descr': '<i4', 'fortran_order': False, }" + std::string(100, '\0'),
            {"NumPy, of <i4", "data/README.md"});
    refused("\x93NUMPY", {"NumPy"}), refused("\x93NUMPY'descr': '", {"NumPy"});
    refused(shard_header(20240520, 1, 400) + raw(wide),
            {"ids of 2 bytes", "400 tokens in 2624 bytes", "20240801"});
    refused(shard_header(20240801, 7, 400) + raw(narrow), {"ids of 4 bytes", "20240520, version 1"});
    refused(shard_header(20240520, 1, 800) + raw(wide), {"every second one is below 16", "20240801"});
    for (const uint16_t other : {0, 20000}) {       // every second one is small, or all are; both are ids
        std::vector<uint16_t> ids(800, 3);
        for (size_t i = 0; i < ids.size(); i += 3) ids[i] = other;
        write_file(test::folder("narrow.bin"), shard_header(20240520, 1, 800) + raw(ids));
        EXPECT(open_shard_file(test::folder("narrow.bin")).info.tokens == 800);
    }
}

// The lines of data/README.md that make shards of ids of others.
TEST(the_recipe_for_ids_of_others) {
    if (test::run(python() + " -c 'import numpy'").code != 0) return test::skip("no NumPy");
    const auto ran = test::run(python() + " - " + made("recipe") + R"py( <<'EOF'
import os, re, sys
import numpy as np
recipe, = (x for x in re.findall(r"```\n(.*?)```", open("data/README.md").read(), re.S) if "np.memmap" in x)
os.chdir(sys.argv[1])
os.makedirs("data/mine")
source = 'np.memmap("train.bin", dtype=np.uint16, mode="r")'
narrow, wide = [1, 65535, 3] * 50, [152000, 7, 0] * 50
for dtype, ids in ((np.uint16, narrow), (np.int32, narrow), (np.int32, wide), (np.int64, wide)):
    np.array(ids, dtype=dtype).tofile("train.bin")
    np.save("train.npy", np.array(ids, dtype=dtype))
    for other in (source.replace("uint16", dtype.__name__), 'np.load("train.npy")'):
        exec(recipe.replace(source, other), {})
        shard = open("data/mine/ids_train_000000.bin", "rb").read()
        head, size = np.frombuffer(shard[:1024], np.int32), 4 if max(ids) > 65535 else 2
        assert list(head[:4]) == ([20240520, 1] if size == 2 else [20240801, 7]) + [150, 0], head[:4]
        assert list(np.frombuffer(shard[1024:], f"<u{size}")) == ids, source
for ids in ([-1, 5], [1 << 20, 5]):
    np.save("train.npy", np.array(ids))
    try:
        exec(recipe.replace(source, 'np.load("train.npy")'), {})
        sys.exit(f"{ids} pass")
    except AssertionError as e:
        assert "no ids" in str(e)
EOF)py");
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
}
