// The reading thread, and the checks of the data before a run starts.
#include <set>

#include "llmc/base/context.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/train/data/loader.h"
#include "llmc/train/run/run_data.h"
#include "test/shards.h"

using std::string;
using std::vector;
using test::expect_words;
using test::write_shard;
using test::folder;

static Dataset some_rows(int rows, int T, bool shuffle = true) {
    const string path = write_shard(folder("loader.bin"), test::random_ids(size_t(rows * T + 1), 500));
    return open_dataset("data.train", {{path}}, T, 1, shuffle);
}

TEST(batches_have_inputs_and_targets) {
    const int T = 5, B = 3;
    const Dataset set = some_rows(10, T);
    TokenBatch batch;
    load_batch(batch, set, 4, B);
    EXPECT(batch.B == B && batch.tokens.size() == size_t(B * T) && batch.targets.size() == size_t(B * T),
           "shape");
    vector<int32_t> row(T + 1);
    for (int b = 0; b < B; b++) {
        set.sample(4 + uint64_t(b), row.data());
        for (int t = 0; t < T; t++)
            EXPECT(batch.tokens[size_t(b * T + t)] == row[size_t(t)] &&
                       batch.targets[size_t(b * T + t)] == row[size_t(t) + 1],
                   "sequence %d, token %d", b, t);
    }
}

TEST(reading_ahead_changes_nothing) {
    const Dataset set = some_rows(10, 5);
    for (int B : {1, 3, 4, 10})
        for (uint64_t first : {0, 7, 1000}) {
            Loader loader(set, B, first);
            EXPECT(loader.position() == first, "position %zu", size_t(loader.position()));
            TokenBatch expected;
            for (uint64_t k = 0; k < 12; k++) {
                load_batch(expected, set, first + k * uint64_t(B), B);
                const TokenBatch& batch = loader.next();
                EXPECT(batch.tokens == expected.tokens && batch.targets == expected.targets && batch.B == B,
                       "B %d, batch %zu", B, size_t(k));
                EXPECT(loader.position() == first + (k + 1) * uint64_t(B), "position %zu",
                       size_t(loader.position()));
            }
        }
}

// The ranks of cp together have each token of a row once, with its target and its position.
TEST(ranks_of_cp_share_a_row) {
    const int T = 24, B = 3;
    Dataset set = some_rows(10, T);
    TokenBatch plain;
    load_batch(plain, set, 2, B);
    for (const int eot : {-1, plain.tokens[30]})
        for (const int size : {1, 2, 3, 4, 12}) {
            set.mask_eot = eot;
            TokenBatch whole;
            load_batch(whole, set, 2, B);
            std::multiset<size_t> seen;
            for (int index = 0; index < size; index++) {
                const RowPart part = {index, size};
                TokenBatch batch;
                load_batch(batch, set, 2, B, part);
                EXPECT(batch.tokens.size() == size_t(B * T / size) && batch.ends == whole.ends, "sizes");
                for (int n = 0; n < B * part.here(T); n++) {
                    const int b = n / part.here(T), t = n % part.here(T), length = part.length(T);
                    const size_t at = size_t(b * T + part.begin(t / length, T) + t % length);
                    const int position = eot < 0 ? int(at) % T : whole.positions[at];
                    seen.insert(at);
                    EXPECT(batch.tokens[size_t(n)] == whole.tokens[at] &&
                               batch.targets[size_t(n)] == whole.targets[at] &&
                               (size == 1 || batch.own_positions[size_t(n)] == position),
                           "rank %d of %d, token %d", index, size, n);
                }
            }
            for (size_t at = 0; at < size_t(B * T); at++) EXPECT(seen.count(at) == 1, "token %zu", at);
        }
}

// Causal attention costs each rank the same.
TEST(parts_of_a_row_see_equally_many_keys) {
    const int T = 240;
    for (const int size : {2, 3, 4, 5}) {
        std::set<int> pairs;
        for (int index = 0; index < size; index++) {
            const RowPart part = {index, size};
            int seen = 0;
            for (int i = 0; i < part.chunks(); i++)
                for (int t = 0; t < part.length(T); t++) seen += part.begin(i, T) + t + 1;
            pairs.insert(seen);
        }
        EXPECT(pairs.size() == 1, "%d ranks", size);
    }
}

// A rank that waits for a slow disk has a heartbeat with each row.
TEST(rows_that_are_read_are_heartbeats) {
    const Dataset set = some_rows(10, 5);
    RankProgress progress = {};
    context.progress = &progress;
    Loader(set, 10, 0).next();
    context.progress = nullptr;
    EXPECT(progress.beats >= 10, "%zu heartbeats", size_t(progress.beats));
}

// Any number of ranks takes the same samples in the same steps, each its micro-batches.
TEST(ranks_share_a_step) {
    const Dataset set = some_rows(50, 5);
    for (int ranks : {1, 2, 3})
        for (int B : {1, 2}) {
            TokenBatch expected;
            for (int r = 0; r < ranks; r++) {
                Loader loader(set, B, 6, r, ranks);
                for (int m = 0; m < 4; m++) {
                    load_batch(expected, set, uint64_t(6 + (m * ranks + r) * B), B);
                    EXPECT(loader.next().tokens == expected.tokens, "%d ranks, rank %d, batch %d", ranks, r,
                           m);
                    EXPECT(loader.position() == uint64_t(6 + (m + 1) * ranks * B), "position %zu",
                           size_t(loader.position()));
                }
            }
        }
}

// A loader that is let go while its thread reads, has read, or has not begun.
TEST(a_loader_ends_at_any_time) {
    const Dataset set = some_rows(200, 64);
    for (int i = 0; i < 200; i++) {
        Loader loader(set, 1 + i % 50, uint64_t(i));
        for (int k = 0; k < i % 4; k++) loader.next();
        const auto expected = uint64_t(i + i % 4 * (1 + i % 50));
        EXPECT(loader.position() == expected, "loader %d is at %zu", i, size_t(loader.position()));
    }
}

// fatal() in the reading thread would exit without the caller's word; the message has to reach next(), each
// time.
TEST(errors_arrive_where_batches_are_taken) {
    vector<int32_t> ids(201, 5);
    ids[150] = 77;
    write_shard(folder("bad.bin"), ids);
    Dataset set = open_dataset("data.train", {{folder("bad.bin")}}, 10, 1, false);
    set.vocab = 50;
    Loader loader(set, 5, 0);
    loader.next();
    loader.next();
    for (int again = 0; again < 2; again++)
        expect_words("rows 10 to 14, or 15", test::fatal_of([&] { loader.next(), loader.next(); }),
                     {"bad.bin", "token 150", "id 77", "50 ids"});
}

// ---------------------------------------------------------------------------------------------------------
// what a run checks

static Config config_of(const string& train, const string& val) {
    Config cfg;
    cfg.model = {.layers = 1, .heads = 1, .channels = 8, .context = 10, .vocab = 500, .init = "random"};
    cfg.data.train = {{train}}, cfg.data.val = {{val}};
    cfg.train.batch_tokens = 80;
    return cfg;
}

TEST(the_least_that_a_step_needs) {
    const string val = write_shard(folder("val.bin"), test::random_ids(100, 500));
    const string enough = write_shard(folder("enough.bin"), test::random_ids(81, 500));
    const string small = write_shard(folder("small.bin"), test::random_ids(80, 500));
    EXPECT(open_run_data(config_of(enough, val)).train.rows() == 8, "81 tokens are enough");
    expect_words("80 tokens", test::fatal_of([&] { open_run_data(config_of(small, val)); }),
                 {"data.train", "small.bin", "80 tokens", "model.context = 10", "train.batch_tokens = 80",
                  "at least 81"});
}

TEST(vocabulary_comes_from_where_it_is_known) {
    const string named =
        write_shard(folder("named.bin"), test::random_ids(200, 500), {.vocab = 500, .largest = 499});
    const string foreign = write_shard(folder("unnamed.bin"), test::random_ids(200, 500));
    Config cfg = config_of(named, foreign);
    cfg.model.vocab = 0;
    EXPECT(open_run_data(cfg).vocab == 500, "of the shards");
    cfg.data.train = {{foreign}};
    expect_words("nobody says", test::fatal_of([&] { open_run_data(cfg); }), {"model.vocab = 0", "50257"});
    cfg.model.vocab = 400;
    expect_words("too small", test::fatal_of([&] { open_run_data(cfg); }),
                 {"unnamed.bin", "400 ids", "model.vocab"});
}

// eval.batches = 0: every row of every corpus, whatever the weights.
TEST(evaluation_reads_every_row_once) {
    const auto ids = test::random_ids(2000, 500);
    const string train = write_shard(folder("train.bin"), ids);
    vector<int32_t> a(71, 1), b(501, 2), c(11, 3);
    for (auto* part : {&a, &b, &c})
        for (size_t i = 0; i < part->size() / 10; i++) (*part)[i * 10] = (*part)[1] * 100 + int32_t(i);
    Config cfg = config_of(train, "");
    cfg.data.val = {{write_shard(folder("va.bin"), a), 5},
                    {write_shard(folder("vb.bin"), b), 1},
                    {write_shard(folder("vc.bin"), c), 9}};
    cfg.eval.batches = 0;
    const RunData data = open_run_data(cfg);
    std::set<int32_t> seen;
    for (uint64_t i = 0; i < data.val.rows(); i++) {
        vector<int32_t> row(11);
        data.val.sample(i, row.data());
        seen.insert(row[0]);
    }
    EXPECT(data.val.rows() == 58 && seen.size() == 58, "%zu rows, %zu different", size_t(data.val.rows()),
           seen.size());
}
