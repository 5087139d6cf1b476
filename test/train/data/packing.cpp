// Rows that begin with a document: best fit, whatever the shards, ranks, resumed row and epoch.
#include "llmc/train/data/packing.h"

#include <unistd.h>

#include <map>
#include <set>

#include "llmc/io/files/shard_writer.h"
#include "llmc/train/data/loader.h"
#include "llmc/train/run/run_data.h"
#include "test/shards.h"

using std::string;
using std::vector;
using test::expect_words;
using test::write_shard;
using test::folder;

using Lengths = vector<uint64_t>;
using Row = vector<std::pair<uint64_t, uint64_t>>;      // start and length of each passage

constexpr int32_t kEot = 0;
const RowRule kRule = {RowKind::Documents, kEot};

static Lengths random_lengths(size_t count, uint64_t most, uint64_t seed) {
    Lengths lengths(count);
    for (size_t i = 0; i < count; i++) lengths[i] = 1 + philox(seed, 5, i).x[0] % most;
    return lengths;
}

static vector<Row> packed(const Lengths& lengths, int T) {
    Packer packer(T);
    uint64_t at = 0;
    for (const uint64_t n : lengths) packer.add(at, n), at += n;
    const PackedRows rows = packer.finish();
    vector<Row> all(rows.rows());
    for (size_t r = 0; r < all.size(); r++)
        for (const Passage& p : rows.row(r)) all[r].push_back({p.start(), p.length()});
    return all;
}

// The rule, written down directly: the best of the first 1,000 documents of the list, again and again.
static vector<Row> expected(const Lengths& lengths, int T) {
    Row left;
    uint64_t at = 0;
    for (const uint64_t n : lengths) left.push_back({at, std::min<uint64_t>(n, uint64_t(T) + 1)}), at += n;
    vector<Row> rows;
    Row row;
    uint64_t rest = uint64_t(T) + 1;
    while (!left.empty()) {
        const size_t count = std::min<size_t>(left.size(), 1000);
        size_t longest = count, shortest = 0;
        for (size_t i = 0; i < count; i++) {
            const uint64_t n = left[i].second;
            if (n <= rest && (longest == count || n > left[longest].second)) longest = i;
            if (n < left[shortest].second) shortest = i;
        }
        const size_t chosen = longest < count ? longest : shortest;
        const uint64_t taken = std::min(left[chosen].second, rest);
        row.push_back({left[chosen].first, taken});
        left.erase(left.begin() + std::ptrdiff_t(chosen));
        if ((rest -= taken) > 0) continue;
        rows.push_back(std::exchange(row, {}));
        rest = uint64_t(T) + 1;
    }
    return rows;
}

TEST(best_fit_is_that_of_a_plain_search) {
    for (const int T : {1, 2, 7, 32, 100, 1000})
        for (const size_t documents : {0, 1, 5, 999, 1000, 1001, 4000})
            for (const uint64_t most : {1, 3, 40, 90, 3000}) {
                const Lengths lengths = random_lengths(documents, most, most + uint64_t(T));
                EXPECT(packed(lengths, T) == expected(lengths, T), "T = %d, %zu documents of up to %zu", T,
                       documents, size_t(most));
            }
}

TEST(rows_of_a_few_documents) {
    EXPECT(packed({20, 13, 20, 13}, 32) == (vector<Row>{{{0, 20}, {20, 13}}, {{33, 20}, {53, 13}}}), "a fit");
    EXPECT(packed({13, 13, 20, 20}, 32) == (vector<Row>{{{26, 20}, {0, 13}}, {{46, 20}, {13, 13}}}),
           "the earliest of one length");
    EXPECT(packed({5, 4, 9}, 5) == (vector<Row>{{{9, 6}}, {{0, 5}, {5, 1}}}),
           "a long document is a row, and where none fits the shortest is cut");
    EXPECT(packed({33}, 32) == (vector<Row>{{{0, 33}}}) && packed({32}, 32).empty(), "a row, and too little");
}

// ---------------------------------------------------------------------------------------------------------
// sets of shards

// Documents with places in the stream as ids: a row's ids are the places of its tokens.
static vector<int32_t> stream_of_documents(const Lengths& lengths, size_t headless = 0) {
    vector<int32_t> ids;
    for (size_t i = 0; i < headless; i++) ids.push_back(int32_t(ids.size()) + 1);
    for (const uint64_t n : lengths)
        for (uint64_t t = 0; t < n; t++) ids.push_back(t == 0 ? kEot : int32_t(ids.size()) + 1);
    return ids;
}

static string write_wide(const string& name, const vector<int32_t>& ids) {
    return write_shard(folder(name), ids, {.id_bytes = 4});
}

static Dataset open_set(const string& glob, int T, bool shuffle = false, const RowRule& rule = kRule) {
    return open_dataset("data.train", {{glob}}, T, 3, shuffle, rule);
}

static vector<int32_t> row_of(const Dataset& set, uint64_t i) {
    vector<int32_t> row(size_t(set.T) + 1, -1);
    set.sample(i, row.data());
    return row;
}

static vector<vector<int32_t>> rows_of(const Dataset& set, uint64_t first, uint64_t count) {
    vector<vector<int32_t>> rows;
    for (uint64_t i = first; i < first + count; i++) rows.push_back(row_of(set, i));
    return rows;
}

TEST(rows_are_whole_and_no_token_comes_twice) {
    for (const int T : {1, 6, 31, 200}) {
        const Lengths lengths = random_lengths(3000, 150, 2);
        const vector<int32_t> ids = stream_of_documents(lengths, 11);
        const Dataset set = open_set(write_wide("whole.bin", ids), T);
        std::set<int32_t> seen;
        size_t used = 0, documents = 0;
        for (const auto& row : rows_of(set, 0, set.rows())) {
            EXPECT(row[0] == kEot, "a row begins with id %d", row[0]);
            for (size_t t = 0; t < row.size(); t++) {
                used++;
                if (row[t] == kEot) documents++;
                else EXPECT(row[t] > 11 && seen.insert(row[t]).second, "token %d again, or without a head",
                            row[t]);
                const bool goes_on = row[t] == kEot || row[t - 1] == kEot || row[t] == row[t - 1] + 1;
                EXPECT(goes_on, "%d after %d", row[t], row[t - 1]);
            }
        }
        EXPECT(documents <= lengths.size() && used == set.rows() * size_t(T + 1), "%zu documents", documents);
        EXPECT_NEAR(*cut_off(set), 1 - double(used) / double(ids.size()), 1e-12);
    }
}

TEST(documents_go_on_in_the_next_shard) {
    const vector<int32_t> ids = stream_of_documents(random_lengths(2000, 60, 9));
    const Dataset one = open_set(write_wide("one.bin", ids), 40, true);
    const vector<size_t> cuts = {0, 1, 2, 700, 700, 705, 30000, ids.size()};
    for (size_t i = 0; i + 1 < cuts.size(); i++)
        write_wide(fmt::format("cut_{}.bin", i),
                   {ids.begin() + std::ptrdiff_t(cuts[i]), ids.begin() + std::ptrdiff_t(cuts[i + 1])});
    const Dataset seven = open_set(folder("cut_*.bin"), 40, true);
    EXPECT(seven.shards() == 7 && rows_of(one, 0, 2 * one.rows()) == rows_of(seven, 0, 2 * one.rows()),
           "%zu shards", seven.shards());
}

TEST(an_index_gives_the_rows_of_a_scan) {
    const vector<int32_t> wide = stream_of_documents(random_lengths(3000, 60, 4));
    vector<uint16_t> ids;
    for (const int32_t id : wide) ids.push_back(id == kEot ? uint16_t(499) : uint16_t(id % 499));
    ShardWriter writer(folder("indexed"), 500, 7, 10'000, 499);
    writer.indexed_tokens = 0;
    for (size_t at = 0; at < ids.size(); at += 777)
        writer.append(std::span(ids).subspan(at, std::min<size_t>(777, ids.size() - at)));
    writer.close();
    publish({&writer, 1});
    const string all = folder("indexed_*.bin");
    const Dataset named = open_set(all, 50, true, {RowKind::Documents, 499}),
                  unnamed = open_set(folder("indexed_*"), 50, true, {RowKind::Documents, -1});
    EXPECT(glob_files(folder("indexed_*.idx")).size() == named.shards() && named.shards() > 8, "%zu shards",
           named.shards());
    const auto rows = rows_of(named, 0, named.rows());
    EXPECT(rows == rows_of(unnamed, 0, named.rows()), "the index says which id ends a text");
    const ShardFile shard = open_shard_file(folder("indexed_000001.bin"));
    DocumentIndex shifted = *read_index(shard);
    const string kept = read_file(index_path(shard.info.path));
    shifted.starts[shifted.starts.size() / 2 + 1]++;
    write_file(index_path(shard.info.path), index_text(shifted, shard.info.tokens));
    EXPECT(test::fatal_of([&] { read_index(shard); }).code == 0, "a place where read_index() looks");
    expect_words("shifted in its middle", test::fatal_of([&] {
                     open_set(all, 50, true, {RowKind::Documents, 499});
                 }),
                 {"indexed_000001.idx", "end-of-text 499", "remove the file"});
    write_file(index_path(shard.info.path), kept);
    expect_words("another id", test::fatal_of([&] { open_set(all, 50, true, {RowKind::Documents, 498}); }),
                 {"indexed_000000.idx", "end-of-text is id 499", "data.tokenizer", "498"});
    for (const string& path : glob_files(folder("indexed_*.idx"))) {
        unlink(path.c_str());       // one after the other: part is read, part scanned
        EXPECT(rows == rows_of(open_set(all, 50, true, {RowKind::Documents, 499}), 0, named.rows()), "scan");
    }
    expect_words("unknown", test::fatal_of([&] { open_set(all, 50, true, {RowKind::Documents, -1}); }),
                 {"indexed_*.bin", "end-of-text", "50256", "data.rows", "data.tokenizer"});
}

TEST(ranks_and_resuming_change_no_row) {
    const Dataset set = open_set(write_wide("ranks.bin", stream_of_documents(random_lengths(900, 60, 6))), 32,
                                 true);
    const auto rows = rows_of(set, 0, 3 * set.rows());
    for (const int ranks : {1, 2, 3, 4})
        for (const uint64_t from : {uint64_t(0), uint64_t(5), set.rows() - 1, set.rows() + 7})
            for (int r = 0; r < ranks; r++) {
                Loader loader(set, 2, from, r, ranks);
                for (uint64_t step = 0; step < 6; step++) {
                    const TokenBatch& batch = loader.next();
                    for (size_t b = 0; b < 2; b++) {
                        const auto& row = rows[from + (step * uint64_t(ranks) + uint64_t(r)) * 2 + b];
                        const auto at = std::ptrdiff_t(b * 32);
                        EXPECT(std::equal(row.begin(), row.end() - 1, batch.tokens.begin() + at) &&
                                   std::equal(row.begin() + 1, row.end(), batch.targets.begin() + at),
                               "rank %d of %d from %zu", r, ranks, size_t(from));
                    }
                }
            }
}

TEST(an_epoch_has_each_row_once) {
    const string path = write_wide("epochs.bin", stream_of_documents(random_lengths(900, 60, 8)));
    const Dataset set = open_set(path, 32, true), plain = open_set(path, 32);
    const uint64_t n = set.rows();
    const auto in_order = rows_of(plain, 0, n);
    EXPECT(in_order == rows_of(plain, n, n), "without shuffling, epochs are alike");
    vector<vector<vector<int32_t>>> orders;
    for (const uint64_t epoch : {0, 1, 2}) {
        auto rows = rows_of(set, epoch * n, n);
        orders.push_back(rows);
        std::sort(rows.begin(), rows.end());
        auto sorted = in_order;
        std::sort(sorted.begin(), sorted.end());
        EXPECT(rows == sorted, "epoch %zu has other rows", size_t(epoch));
    }
    EXPECT(orders[0] != orders[1] && orders[1] != orders[2] && orders[0] != in_order, "orders are alike");
}

TEST(each_corpus_is_packed_by_itself) {
    const string a = write_wide("corpus_a.bin", stream_of_documents(random_lengths(400, 60, 1))),
                 b = write_wide("corpus_b.bin", stream_of_documents(random_lengths(300, 20, 2)));
    const Dataset both = open_dataset("data.train", {{a, 3}, {b, 1}}, 32, 3, false, kRule),
                  sets[] = {open_set(a, 32), open_set(b, 32)};
    EXPECT(both.rows() == sets[0].rows() + sets[1].rows(), "%zu rows", size_t(both.rows()));
    for (uint64_t i = 0; i < 200; i++) {
        const Pick p = pick(i, both.weights);
        EXPECT(row_of(both, i) == row_of(sets[p.stream], p.index), "sample %zu", size_t(i));
    }
}

TEST(texts_that_fill_no_row) {
    const string short_ones = write_wide("short.bin", stream_of_documents({9, 9, 9}, 30));
    expect_words("no row", test::fatal_of([&] { open_set(short_ones, 32); }),
                 {"data.train", "short.bin", "57 tokens", "model.context + 1 = 33"});
    const string none = write_wide("none.bin", vector<int32_t>(100, 5));
    expect_words("no document", test::fatal_of([&] { open_set(none, 32); }),
                 {"none.bin", "100", "end-of-text, id 0", "data.rows to stream"});
    expect_words("a token", test::fatal_of([&] { open_set(write_wide("few.bin", {0, 1}), 32); }),
                 {"2 tokens", "needs 33"});
}

// Reading a row notices a shard that changed under the run, or an index that lacks a document.
TEST(rows_without_the_documents_that_they_should_have) {
    const vector<int32_t> ids = stream_of_documents({20, 13, 20, 13});
    for (const auto& [at, id, words] :
         {std::tuple<long, int32_t, vector<string>>{53, 77, {"token 53", "id 77", "expected end-of-text 0"}},
          {60, kEot, {"token 60", "is end-of-text", "no document"}}}) {
        const Dataset set = open_set(write_wide("changed.bin", ids), 32);
        FILE* f = fopen(folder("changed.bin").c_str(), "r+b");
        fseek(f, 1024 + 4 * at, SEEK_SET), fwrite(&id, 4, 1, f), fclose(f);
        row_of(set, 0);
        const Fatal e = test::fatal_of([&] { row_of(set, 1); });
        expect_words("changed", e, words), expect_words("changed", e, {"changed.bin", "NAME.idx"});
    }
}

// While encode replaces a set, an index may belong to another shard: the error names the cause.
TEST(an_interrupted_replacement_comes_first) {
    const string shard = write_wide("half_train_000000.bin", stream_of_documents({20, 13, 20, 13}));
    write_file(index_path(shard), "of another shard");
    write_file(replacement_mark(folder("half")), "");
    expect_words("replaced", test::fatal_of([&] { open_set(shard, 32); }), {"half.replacing", "encode"});
    unlink(replacement_mark(folder("half")).c_str());
    expect_words("index", test::fatal_of([&] { open_set(shard, 32); }),
                 {"half_train_000000.idx", "no index of documents", "remove the file"});
}

// Training and validation follow data.rows; both shares are told.
TEST(validation_has_the_same_kind_of_rows) {
    Config cfg;
    cfg.model = {.layers = 1, .heads = 1, .channels = 8, .context = 32, .vocab = 60000, .init = "random"};
    cfg.data.rows = RowKind::Documents, cfg.train.batch_tokens = 32, cfg.eval.batches = 0;
    vector<int32_t> ids = stream_of_documents({20, 13, 40, 20, 13});
    for (int32_t& id : ids) if (id == kEot) id = 50256;
    cfg.data.train = {{write_shard(folder("t.bin"), ids)}};
    ids.resize(33);
    cfg.data.val = {{write_shard(folder("v.bin"), ids)}};
    const RunData data = open_run_data(cfg);
    EXPECT(data.train.rows() == 3 && data.val.rows() == 1 && row_of(data.val, 0) == ids, "rows");
    const string told = "begin with documents: cut off are 6.6% of the tokens, 0.0% for validation";
    EXPECT(data.describe_rows() == told, "%s", data.describe_rows().c_str());
    cfg.data.rows = RowKind::Stream;
    EXPECT(open_run_data(cfg).describe_rows().empty() && open_run_data(cfg).train.rows() == 3, "a stream");
}
