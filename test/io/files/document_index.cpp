// Indexes of documents: what ./tokenize encode writes is what a scan finds, and each lie has its message.
#include "llmc/io/files/document_index.h"

#include <xxhash.h>

#include <cstring>

#include "llmc/base/disk/output_file.h"
#include "llmc/io/corpus/encode_set.h"
#include "test/shards.h"

using std::string;
using std::vector;
using test::expect_words;
using test::folder;

static const string kData = "test/data/tokenizer/";

TEST(a_scan_finds_every_document) {
    for (const int id_bytes : {2, 4})
        for (const size_t tokens : {0, 1, 255, 256, 257, 5000, 600'000}) {
            const auto ids = test::random_ids(tokens, 90, tokens + 1);
            const ShardFile shard = open_shard_file(
                test::write_shard(folder("scan.bin"), ids, {.id_bytes = id_bytes}));
            for (const int32_t eot : {7, 89, 65536 + 7}) {
                vector<uint32_t> places;
                for (size_t i = 0; i < tokens; i++)
                    if (ids[i] == eot) places.push_back(uint32_t(i));
                uint64_t bytes = 0;
                const auto index = scan_documents(shard, eot, [&](uint64_t n) { bytes += n; });
                EXPECT(index.starts == places && bytes == tokens * uint64_t(id_bytes), "%zu of %zu in %zu",
                       index.starts.size(), places.size(), tokens);
            }
        }
}

// The set of some documents of many lengths, in shards of a few thousand tokens.
static EncodeResult encode(const Tokenizer& t, const string& prefix, uint64_t shard_tokens, int threads,
                           size_t documents = 300, uint64_t indexed_tokens = 0) {
    string rows;
    for (size_t i = 0; i < documents; i++) {
        rows += "{\"text\": \"";
        for (size_t w = 0; w < philox(1, 2, i).x[0] % 90; w++) rows += w % 9 ? "of words " : "a line\\n";
        rows += "\"}\n";
    }
    write_file(folder("rows.jsonl"), rows);
    DocumentReader reader({folder("rows.jsonl")}, 0.2, test::temporary_directory());
    return encode_set(t, reader, {folder(prefix), shard_tokens, threads, indexed_tokens});
}

TEST(encode_writes_what_a_scan_finds) {
    const Tokenizer t = Tokenizer::load(kData + "hf.json");
    string first;
    for (const int threads : {1, 2, 5}) {
        const EncodeResult r = encode(t, "set", 1000, threads);
        size_t documents = 0;
        string bytes;
        for (const string& path : r.shards) {
            const ShardFile shard = open_shard_file(path);
            const auto index = read_index(shard);
            EXPECT(index && index->eot == int32_t(t.eot()), "%s has no index", path.c_str());
            EXPECT(index->starts == scan_documents(shard, int32_t(t.eot())).starts, "%s", path.c_str());
            documents += index->starts.size();
            bytes += read_file(index_path(path));
        }
        EXPECT(documents == r.documents && r.shards.size() > 8, "%zu documents, %zu shards", documents,
               r.shards.size());
        EXPECT(first.empty() || bytes == first, "%d threads write another index", threads);
        first = bytes;
    }
    const EncodeResult fewer = encode(t, "set", 1'000'000, 1);
    EXPECT(glob_files(folder("set_*.idx")).size() == fewer.shards.size(), "indexes of the set before stay");
    EXPECT(shard_files(folder("set_*")) == glob_files(folder("set_*.bin")), "an index is no shard");
    for (const string& names : {folder("set_*"), "'" + folder("set_*") + "'"}) {    // the shell, and we
        const auto info = test::run("./tokenize info " + names);
        EXPECT(info.code == 0 && info.out.find("2 shards") != info.out.npos &&
                   info.out.find(" documents") != info.out.npos, "%s%s", info.out.c_str(),
               info.err.c_str());
    }
    const EncodeResult small = encode(t, "set", 1000, 2, 300, 1000);
    EXPECT(glob_files(folder("set_*.idx")).size() == small.shards.size() - 2, "the last shards are smaller");
    encode(t, "set", 1'000'000, 1);
    expect_words("an index", test::fatal_of([] { open_shard_file(folder("set_train_000000.idx")); }),
                 {"set_train_000000.idx", "index of a shard's documents", ".bin"});
}

// ---------------------------------------------------------------------------------------------------------
// lies

// An index of a shard of 1,000 tokens, 0 at each hundredth: the header's fields, offsets, their hash.
struct Written {
    int32_t fields[6] = {20241120, 1, 1000, 10, 0, 0};
    vector<uint32_t> starts = {0, 100, 200, 300, 400, 500, 600, 700, 800, 900};
    bool hashed = true;

    string text() const {
        const uint64_t hash = hashed ? XXH3_64bits(starts.data(), starts.size() * 4) : 12345;
        string all(reinterpret_cast<const char*>(fields), sizeof fields);
        all.append(reinterpret_cast<const char*>(&hash), sizeof hash);
        return all.append(reinterpret_cast<const char*>(starts.data()), starts.size() * 4);
    }
};

static const ShardFile& shard_of_hundreds() {
    static const ShardFile shard = [] {
        vector<int32_t> ids(1000, 5);
        for (size_t i = 0; i < 1000; i += 100) ids[i] = 0;
        return open_shard_file(test::write_shard(folder("lies.bin"), ids));
    }();
    return shard;
}

static void refused(const char* what, const string& text, vector<string> words) {
    const ShardFile& shard = shard_of_hundreds();
    write_file(folder("lies.idx"), text);
    words.push_back("lies.idx"), words.push_back("remove the file");
    const Fatal f = test::fatal_of([&] { read_index(shard); });
    expect_words(what, f, words);
    EXPECT(!strchr(f.what(), '\n'), "%s: more than a line: '%s'", what, f.what());
}

TEST(an_index_is_read_as_written) {
    const ShardFile& shard = shard_of_hundreds();
    EXPECT(!read_index(shard), "no index is there");
    write_file(folder("lies.idx"), Written().text());
    const auto index = read_index(shard);
    EXPECT(index && index->starts == Written().starts && index->eot == 0, "other offsets");
    EXPECT(index_text(*index, 1000) == Written().text(), "other bytes");
}

TEST(each_lie_of_an_index_has_its_message) {
    const auto with = [](int field, int32_t value) {
        Written w;
        w.fields[field] = value;
        return w.text();
    };
    const auto offsets = [](vector<uint32_t> starts) {
        Written w;
        w.starts = std::move(starts), w.fields[3] = int32_t(w.starts.size());
        return w.text();
    };
    refused("empty", "", {"no index", "20241120", "0 bytes"});
    refused("a part of the header", Written().text().substr(0, 31), {"no index", "31 bytes"});
    refused("text", string(100, 'a'), {"no index", "20241120", "1633771873"});
    refused("version", with(1, 2), {"version 1", "and 2"});
    refused("another shard", with(2, 999), {"999 tokens", "lies.bin has 1000"});
    refused("negative tokens", with(2, -1), {"-1 tokens", "lies.bin has 1000"});
    refused("negative documents", with(3, -1), {"-1 documents", "1000 tokens"});
    refused("documents", with(3, 1001), {"1001 documents", "1000 tokens"});
    refused("truncated", with(3, 11), {"truncated", "11 documents", "76 bytes", "72"});
    refused("too long", with(3, 9), {"too long", "68 bytes", "72"});
    Written damaged;
    damaged.hashed = false;
    refused("damaged", damaged.text(), {"damaged", "hash", "0000000000003039"});
    refused("order", offsets({0, 100, 100}), {"document 2", "token 100", "before at 100"});
    refused("backwards", offsets({0, 200, 100}), {"document 2", "token 100", "before at 200"});
    refused("beyond", offsets({0, 100, 1000}), {"token 1000", "shard of 1000"});
    refused("no document there", offsets({0, 100, 201}), {"token 201", "lies.bin", "id 5", "end-of-text 0"});
    refused("another end-of-text", with(4, 1), {"token 0", "id 0", "end-of-text 1"});
    refused("Megatron's", "MMIDIDX" + string(100, '\0'), {"Megatron"});
    for (const auto& [starts, words] : std::initializer_list<std::pair<vector<uint32_t>, vector<string>>>{
             {{0, 100, 200, 301, 400, 500, 600, 700, 800, 900},
              {"document 3 begins at token 301", "at token 300"}},
             {{0, 100, 200, 400, 500, 600, 700, 800, 900},
              {"document 3 begins at token 400", "at token 300"}},
             {{0, 100, 200, 300, 400, 500, 600, 700, 800}, {"document 9 begins nowhere", "at token 900"}},
             {{0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 901},
              {"begins at token 901", "stands nowhere"}}})
        expect_words(
            "a pass over the shard",
            test::fatal_of([&] { compare_index({.eot = 0, .starts = starts}, shard_of_hundreds()); }), words);
    compare_index({.eot = 0, .starts = Written().starts}, shard_of_hundreds());
}
