// What a dataset refuses: too little text, ids outside the vocabulary, shards of another tokenizer.
#include "llmc/train/data/dataset.h"
#include "llmc/train/run/run_data.h"
#include "test/shards.h"

using std::string;
using std::vector;
using test::expect_words;
using test::write_shard;
using test::folder;

static Dataset open_set(const string& glob, int T) {
    return open_dataset("data.train", {{glob}}, T, 1, false);
}

static void read_row(const Dataset& set, uint64_t i) {
    vector<int32_t> row(size_t(set.T) + 1);
    set.sample(i, row.data());
}

TEST(a_set_without_rows) {
    const string path = write_shard(folder("short.bin"), test::random_ids(64, 100));
    expect_words("64 tokens", test::fatal_of([&] { open_dataset("data.val", {{path}}, 64, 1, false); }),
                 {"data.val", "short.bin", "64 tokens", "model.context = 64", "needs 65"});
    expect_words("no file", test::fatal_of([&] { open_set(folder("nothing_*.bin"), 8); }),
                 {"data.train", "nothing_*.bin", "./tokenize encode"});
    const Fatal e = test::fatal_of([&] { open_dataset("data.train", {{path, 0}}, 8, 1, false); });
    expect_words("no weight", e, {"data.train", "weight"});
}

TEST(ids_outside_the_vocabulary_at_start) {
    vector<int32_t> ids(3000, 5);
    ids[2500] = 700;
    Dataset foreign = open_set(write_shard(folder("foreign.bin"), ids), 8);
    expect_words("read through", test::fatal_of([&] { validate_ids(foreign, 700); }),
                 {"foreign.bin", "token 2500", "700", "model.vocab"});
    validate_ids(foreign, 701);
    vector<int32_t> wide(3000, 5);
    wide[7] = INT32_MIN;
    Dataset large = open_set(write_shard(folder("wide.bin"), wide, {.id_bytes = 4}), 8);
    expect_words("of 32 bits", test::fatal_of([&] { validate_ids(large, 700); }), {"wide.bin", "token 7 "});
    Dataset ours = open_set(write_shard(folder("ours.bin"), ids, {.vocab = 1000, .largest = 700}), 8);
    expect_words("by the header", test::fatal_of([&] { validate_ids(ours, 700); }),
                 {"ours.bin", "largest id is 700", "700 ids"});
    validate_ids(ours, 701);
}

// A foreign shard that changed after the scan, or was too large to scan.
TEST(ids_outside_the_vocabulary_as_they_are_loaded) {
    vector<int32_t> ids(3000, 5);
    Dataset set = open_set(write_shard(folder("later.bin"), ids), 8);
    validate_ids(set, 700);
    ids[2500] = 700;
    write_shard(folder("later.bin"), ids);
    set = open_set(folder("later.bin"), 8);
    set.vocab = 700;
    read_row(set, 2500 / 8 - 1), read_row(set, 2500 / 8 + 1);
    expect_words("row", test::fatal_of([&] { read_row(set, 2500 / 8); }),
                 {"later.bin", "token 2500", "id 700", "700 ids", "model.vocab"});
    // the last target of a row is the first token of the next
    ids[2500] = 5, ids[2504] = 700;
    write_shard(folder("later.bin"), ids);
    read_row(set, 2504 / 8 - 2);
    for (const uint64_t row : {2504 / 8 - 1, 2504 / 8})
        expect_words("a target", test::fatal_of([&] { read_row(set, row); }), {"token 2504", "id 700"});
}

// Two sparse foreign shards of 0.6 GB each, with a header and a bad id: the scan at start ends within the
// second shard.
TEST(shards_are_read_through_up_to_a_gigabyte_in_all) {
    if (test::kAddressSanitizer) return test::skip("a gigabyte takes long there");
    const uint64_t tokens = 300'000'000;
    const auto write_sparse = [&](const string& name, uint64_t bad) {
        FILE* f = fopen(folder(name).c_str(), "wb");
        test::write_header(f, tokens, {});
        const uint16_t id = 700, end = 0;
        if (bad) fseeko(f, off_t(1024 + 2 * bad), SEEK_SET), fwrite(&id, 2, 1, f);
        fseeko(f, off_t(1024 + 2 * tokens - 2), SEEK_SET), fwrite(&end, 2, 1, f), fclose(f);
    };
    write_sparse("sparse_0.bin", 0);
    write_sparse("sparse_1.bin", 200'000'000);
    Dataset set = open_set(folder("sparse_*.bin"), 8);
    EXPECT(validate_ids(set, 700) == 0, "0.4 GB of the second shard, up to token 200,000,000");
    read_row(set, 499'999'999 / 8 - 1);
    expect_words("its row", test::fatal_of([&] { read_row(set, 500'000'000 / 8); }),
                 {"sparse_1.bin", "token 200000000", "id 700", "700 ids"});
    // training's set gets what validation's has left
    Config cfg;
    cfg.model.vocab = 700, cfg.model.context = 8, cfg.train.batch_tokens = 8, cfg.train.micro_batch = 1;
    cfg.data.val = {{folder("sparse_0.bin")}}, cfg.data.train = {{folder("sparse_1.bin")}};
    EXPECT(open_run_data(cfg).vocab == 700);
    write_sparse("sparse_1.bin", 199'999'999);
    expect_words("of both", test::fatal_of([&] { open_run_data(cfg); }), {"sparse_1.bin", "token 199999999"});
    Dataset sooner = open_set(folder("sparse_1.bin"), 8);
    expect_words("at start", test::fatal_of([&] { validate_ids(sooner, 700, {}, 400'000'000); }),
                 {"sparse_1.bin", "token 199999999", "700"});
    // sets share the budget; shards with their largest id in the header use no budget
    Dataset small = open_set(write_shard(folder("small.bin"), vector<int32_t>(100, 5)), 8);
    EXPECT(validate_ids(small, 700, {}, 300) == 100 && validate_ids(small, 700, {}, 150) == 0, "bytes left");
    Dataset wide = open_set(write_shard(folder("four.bin"), vector<int32_t>(100, 5), {.id_bytes = 4}), 8);
    EXPECT(validate_ids(wide, 700, {}, 500) == 100 && validate_ids(wide, 700, {}, 300) == 0, "of 4 bytes");
    const string ours = write_shard(folder("told.bin"), vector<int32_t>(100, 5), {.vocab = 9, .largest = 5});
    Dataset told = open_set(ours, 8);
    EXPECT(validate_ids(told, 700, {}, 300) == 300, "a shard that says its largest id is not read");
}

TEST(shards_of_another_tokenizer) {
    const string path = write_shard(folder("hash.bin"), test::random_ids(100, 50),
                                    {.vocab = 50, .largest = 49, .hash = 0x1234567890abcdef});
    Dataset set = open_set(path, 8);
    validate_ids(set, 50, {0x1234567890abcdef, "data.tokenizer"});
    validate_ids(set, 50);
    const KnownTokenizer other = {0xfedcba0987654321, "data.tokenizer"};
    expect_words("hash", test::fatal_of([&] { validate_ids(set, 50, other); }),
                 {"hash.bin", "1234567890abcdef", "fedcba0987654321", "data.tokenizer"});

    const KnownTokenizer first = tokenizer_of(set);
    EXPECT(first.hash == 0x1234567890abcdef && first.said_by == path, "'%s'", first.said_by.c_str());
    const string more = write_shard(folder("hash_of_another.bin"), test::random_ids(100, 50),
                                    {.vocab = 50, .largest = 49, .hash = 77});
    Dataset another = open_set(more, 8);
    expect_words("hash", test::fatal_of([&] { validate_ids(another, 50, first); }),
                 {"hash_of_another.bin", "hash.bin", "1234567890abcdef"});
}
