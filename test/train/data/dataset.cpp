// Which tokens a sample is made of: permutation, mixture of corpora, rows, shards.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "llmc/train/data/dataset.h"
#include "test/shards.h"

using std::string;
using std::vector;
using test::write_shard;
using test::folder;

static Dataset open_set(const string& glob, int T, uint64_t seed = 1, bool shuffle = false) {
    return open_dataset("data.train", {{glob}}, T, seed, shuffle);
}

static vector<int32_t> row_of(const Dataset& set, uint64_t i) {
    vector<int32_t> row(size_t(set.T) + 1);
    set.sample(i, row.data());
    return row;
}

// tokens [iT, iT + T]
static vector<int32_t> expected_row(const vector<int32_t>& ids, uint64_t i, int T) {
    return {ids.begin() + int64_t(i) * T, ids.begin() + (int64_t(i) + 1) * T + 1};
}

// ---------------------------------------------------------------------------------------------------------
// permutation

TEST(permute_is_a_bijection) {
    for (uint64_t n :
         {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 1023, 1024, 1025, 4095})
        for (uint64_t key : {0, 1, 0x7fffffff})
            for (uint64_t stream : {0, 1, 1 << 20}) {
                vector<int> seen(n);
                for (uint64_t i = 0; i < n; i++) {
                    const uint64_t p = permute(i, n, key, stream);
                    EXPECT(p < n && seen[p]++ == 0, "n = %zu: %zu -> %zu", size_t(n), size_t(i), size_t(p));
                    if (p >= n) return;
                }
            }
}

TEST(permute_of_many_rows_stays_inside) {
    for (uint64_t n : {(uint64_t(1) << 40) - 1, (uint64_t(1) << 40) + 1, uint64_t(1) << 62})
        for (uint64_t i : {uint64_t(0), n / 3, n - 1}) EXPECT(permute(i, n, 1, 2) < n, "n = %zu", size_t(n));
}

// Two orders agree in about one place, like random orders.
TEST(permute_differs_by_seed_and_stream) {
    const uint64_t n = 3000;
    const auto alike = [&](uint64_t key, uint64_t stream) {
        int count = 0;
        for (uint64_t i = 0; i < n; i++) count += permute(i, n, 1, 1) == permute(i, n, key, stream);
        return count;
    };
    EXPECT(alike(1, 1) == int(n), "not a pure function");
    for (uint64_t other = 2; other < 10; other++) {
        EXPECT(alike(other, 1) < 10, "seeds 1 and %zu: %d of %zu alike", size_t(other), alike(other, 1),
               size_t(n));
        EXPECT(alike(1, other) < 10, "streams 1 and %zu: %d of %zu alike", size_t(other), alike(1, other),
               size_t(n));
    }
}

// Displacements and steps between neighbours have the mean of random orders, n / 3; a run of indices spreads.
TEST(permute_spreads) {
    for (uint64_t n : {1024, 3000, 5000}) {
        double moved = 0, step = 0, chi = 0;
        vector<int> bucket(16);
        for (uint64_t i = 0; i < n; i++) {
            const double p = double(permute(i, n, 5, 9)), q = double(permute((i + 1) % n, n, 5, 9));
            moved += std::abs(p - double(i)) / double(n), step += std::abs(p - q) / double(n);
            if (i < n / 4) bucket[size_t(p * 16 / double(n))]++;
        }
        EXPECT_NEAR(moved / double(n), 1. / 3, 0.03);
        EXPECT_NEAR(step / double(n), 1. / 3, 0.03);
        for (int b : bucket) chi += (b - double(n) / 64) * (b - double(n) / 64) / (double(n) / 64);
        EXPECT(chi < 40, "n = %zu: chi squared %.1f of 15 degrees of freedom", size_t(n), chi);
    }
}

// ---------------------------------------------------------------------------------------------------------
// mixture

static void check_pick(const vector<uint64_t>& weights, uint64_t samples, double allowed) {
    double total = 0, worst = 0;
    for (uint64_t w : weights) total += double(w);
    vector<uint64_t> count(weights.size());
    for (uint64_t i = 0; i < samples; i++) {
        const Pick p = pick(i, weights);
        EXPECT(p.stream < weights.size(), "stream %zu of %zu", p.stream, weights.size());
        EXPECT(p.index == count[p.stream], "sample %zu: index %zu of stream %zu, expected %zu", size_t(i),
               size_t(p.index), p.stream, size_t(count[p.stream]));
        count[p.stream]++;
        for (size_t s = 0; s < weights.size(); s++)
            worst = std::max(worst, std::abs(double(count[s]) - double(i + 1) * double(weights[s]) / total));
    }
    EXPECT(worst <= allowed, "%zu streams: a share is off by %.2f samples", weights.size(), worst);
}

TEST(pick_keeps_shares_at_every_prefix) {
    check_pick({1}, 100, 0);
    check_pick({1, 1}, 1000, 0.5);
    check_pick({uint64_t(1) << 31, uint64_t(1) << 31}, 1000, 0.5);
    check_pick({1, 999}, 5000, 0.5);
    check_pick({3, 1, 2}, 5000, 2);
    check_pick({7, 11, 13, 17, 19}, 5000, 2);
    check_pick({1, 1, 1, 1, 1, 90, 1, 1, 1, 1, 1}, 5000, 2);
    check_pick({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 90}, 5000, 2);
    check_pick({90, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 5000, 2);
    check_pick(vector<uint64_t>(16, uint64_t(1) << 28), 5000, 2);
    vector<uint64_t> uneven;
    for (uint64_t i = 0; i < 40; i++) uneven.push_back(1 + philox(3, 4, i).x[0] % 1000);
    check_pick(uneven, 5000, 2);
}

// Far out, where a 64-bit product of index and weight would overflow.
TEST(pick_far_out) {
    const uint64_t far = uint64_t(1) << 45;
    const vector<uint64_t> weights = {uint64_t(1) << 30, uint64_t(3) << 30};
    uint64_t first = 0;
    for (uint64_t i = far; i < far + 400; i++) {
        const Pick p = pick(i, weights);
        const double share = p.stream ? 0.75 : 0.25;
        EXPECT(std::abs(double(p.index) - double(i) * share) <= 1, "sample %zu: index %zu", size_t(i),
               size_t(p.index));
        first += p.stream == 0;
    }
    EXPECT(first == 100, "%zu of 400 from a quarter", size_t(first));
}

// ---------------------------------------------------------------------------------------------------------
// rows

TEST(rows_are_the_tokens_they_should_be) {
    const int T = 7;
    for (size_t tokens : {8, 14, 15, 1000, 1001}) {
        const auto ids = test::random_ids(tokens, 60000);
        const Dataset set = open_set(write_shard(folder("rows.bin"), ids), T);
        EXPECT(set.rows() == (tokens - 1) / T && set.tokens() == tokens, "%zu rows of %zu tokens",
               size_t(set.rows()), tokens);
        for (uint64_t i = 0; i < set.rows(); i++)
            EXPECT(row_of(set, i) == expected_row(ids, i, T), "row %zu", size_t(i));
        EXPECT(row_of(set, set.rows()) == expected_row(ids, 0, T), "the second epoch starts anew");
    }
}

// The same stream in one shard or seven, cut anywhere, with a shard of one token and an empty shard.
TEST(shards_do_not_matter) {
    const int T = 9;
    const auto ids = test::random_ids(2000, 500);
    const vector<int64_t> cuts = {0, 1, 300, 300, 311, 900, 1999, 2000};
    for (size_t i = 0; i + 1 < cuts.size(); i++)
        write_shard(folder(fmt::format("part_{:06}.bin", i)),
                    {ids.begin() + cuts[i], ids.begin() + cuts[i + 1]});
    const Dataset one = open_set(write_shard(folder("whole.bin"), ids), T, 3, true);
    const Dataset seven = open_set(folder("part_*.bin"), T, 3, true);
    EXPECT(seven.shards() == 7 && one.rows() == seven.rows(), "%zu shards", seven.shards());
    for (uint64_t i = 0; i < 3 * one.rows(); i++)
        EXPECT(row_of(one, i) == row_of(seven, i), "sample %zu", size_t(i));
}

// Ids that name their row: the first token of row i is i.
static vector<int32_t> numbered(size_t rows, int T, int32_t first = 0) {
    vector<int32_t> ids(rows * size_t(T) + 1);
    for (size_t i = 0; i < rows; i++) ids[i * size_t(T)] = first + int32_t(i);
    return ids;
}

TEST(an_epoch_visits_each_row_once) {
    const int T = 3;
    const uint64_t rows = 101;
    const Dataset set = open_set(write_shard(folder("epoch.bin"), numbered(rows, T)), T, 11, true);
    vector<vector<int32_t>> epochs(3);
    for (uint64_t i = 0; i < 3 * rows; i++) epochs[i / rows].push_back(row_of(set, i)[0]);
    for (const auto& e : epochs)
        EXPECT(std::set<int32_t>(e.begin(), e.end()).size() == rows &&
                   *std::max_element(e.begin(), e.end()) == 100,
               "rows are missing");
    EXPECT(epochs[0] != epochs[1] && epochs[1] != epochs[2], "each epoch has an order of its own");

    const Dataset other = open_set(folder("epoch.bin"), T, 12, true);
    int alike = 0;
    for (uint64_t i = 0; i < rows; i++) alike += row_of(other, i) == row_of(set, i);
    EXPECT(alike < 10, "another seed, and %d of %zu rows in the same place", alike, size_t(rows));
}

TEST(each_corpus_has_an_order_of_its_own) {
    const int T = 3;
    const uint64_t rows = 101;
    const string path = write_shard(folder("twice.bin"), numbered(rows, T));
    const Dataset set = open_dataset("data.train", {{path, 1}, {path, 1}}, T, 5, true);
    vector<int32_t> orders[2];
    for (uint64_t i = 0; i < 2 * rows; i++) orders[pick(i, set.weights).stream].push_back(row_of(set, i)[0]);
    int alike = 0;
    for (uint64_t i = 0; i < rows; i++) alike += orders[0].at(i) == orders[1].at(i);
    EXPECT(alike < 10, "%d of %zu rows in the same place", alike, size_t(rows));
}

// Two epochs of 600 corpora of 20 rows: 1,200 orders.
TEST(hundreds_of_corpora_do_not_share_orders) {
    const int T = 3;
    const uint64_t rows = 20, corpora = 600;
    const string path = write_shard(folder("many.bin"), numbered(rows, T));
    const Dataset set = open_dataset("data.train", vector<Corpus>(corpora, {path, 1}), T, 5, true);
    vector<vector<int32_t>> read(corpora);
    for (uint64_t i = 0; i < 2 * rows * corpora + corpora; i++)
        read[pick(i, set.weights).stream].push_back(row_of(set, i)[0]);
    std::set<vector<int32_t>> orders;
    for (const auto& r : read)
        for (size_t epoch : {0, 1})
            orders.emplace(r.begin() + long(epoch * rows), r.begin() + long((epoch + 1) * rows));
    EXPECT(orders.size() == 2 * corpora, "%zu orders", orders.size());
}

TEST(a_tiny_weight_is_one_all_the_same) {
    const string path = write_shard(folder("tiny_weight.bin"), numbered(9, 3));
    for (const size_t others : {2, 6}) {
        vector<Corpus> corpora(others, {path, 1});
        corpora.push_back({path, 1e-10});
        const Dataset set = open_dataset("data.train", corpora, 3, 5, true);
        uint64_t sum = 0;
        for (const uint64_t w : set.weights) sum += w;
        EXPECT(set.weights.back() == 1 && sum == uint64_t(1) << 32, "the last of %zu weighs %llu", others + 1,
               (unsigned long long)set.weights.back());
    }
}

// Weights count relative to each other, up to the ends of a double's range.
TEST(weights_of_any_size) {
    const string path = write_shard(folder("any_weight.bin"), numbered(9, 3));
    const auto weights = [&](double a, double b) {
        return open_dataset("data.train", {{path, a}, {path, b}}, 3, 5, true).weights;
    };
    const vector<uint64_t> even = {uint64_t(1) << 31, uint64_t(1) << 31}, third = weights(1, 3);
    for (const double w : {1e308, 1.7976931348623157e308, 1.0, 0.1, 5e-324})
        EXPECT(weights(w, w) == even, "%g twice: %llu", w, (unsigned long long)weights(w, w)[0]);
    for (const int exponent : {1000, -1000})
        EXPECT(weights(std::ldexp(1, exponent), std::ldexp(3, exponent)) == third, "2^%d", exponent);
    EXPECT(weights(1e308, 5e-324)[1] == 1, "the least");
}

TEST(corpora_are_mixed_by_weight) {
    const int T = 3;
    write_shard(folder("a_0.bin"), numbered(40, T, 1000));
    write_shard(folder("b_0.bin"), numbered(10, T, 2000));
    const vector<Corpus> corpora = {{folder("a_*.bin"), 3}, {"none.bin", 0}, {folder("b_*.bin"), 1}};
    const Dataset set = open_dataset("data.train", corpora, T, 5, true);
    EXPECT(set.streams.size() == 2 && set.rows() == 50, "%zu rows", size_t(set.rows()));
    std::multiset<int32_t> a, b;
    for (uint64_t i = 0; i < 160; i++) {
        const int32_t id = row_of(set, i)[0];
        (id < 2000 ? a : b).insert(id);
    }
    EXPECT(a.size() == 120 && b.size() == 40, "%zu and %zu of 160 samples", a.size(), b.size());
    for (int32_t i = 0; i < 40; i++)
        EXPECT(a.count(1000 + i) == 3, "row %d of a: %zu times in three epochs", i, a.count(1000 + i));
    for (int32_t i = 0; i < 10; i++)
        EXPECT(b.count(2000 + i) == 4, "row %d of b: %zu times in four epochs", i, b.count(2000 + i));
}

TEST(shards_of_wide_ids) {
    const auto ids = test::random_ids(500, 200000);
    const string path =
        write_shard(folder("wide.bin"), ids, {.vocab = 200000, .largest = 199999, .id_bytes = 4});
    const Dataset set = open_set(path, 8);
    EXPECT(vocab_of(set) == 200000, "vocabulary %d", vocab_of(set));
    for (uint64_t i = 0; i < set.rows(); i++)
        EXPECT(row_of(set, i) == expected_row(ids, i, 8), "row %zu", size_t(i));
}

// Sparse files whose last tokens lie beyond 2 GiB, and beyond 4 GiB for wide ids.
TEST(files_over_two_gigabytes) {
    for (const auto& [id_bytes, tokens] :
         {std::pair<int, uint64_t>{2, (1u << 30) + 1000}, {4, (1u << 30) + 1000}}) {
        const int T = 16;
        const string path = folder("sparse.bin");
        const auto tail = test::random_ids(5 * T, 50000);
        FILE* f = fopen(path.c_str(), "wb");
        test::write_header(f, tokens, {.vocab = 50000, .largest = 49999, .id_bytes = id_bytes});
        const uint64_t first = (tokens - tail.size() - 1) / T * T;
        fseeko(f, off_t(1024 + first * uint64_t(id_bytes)), SEEK_SET);
        for (int32_t id : tail) fwrite(&id, 1, size_t(id_bytes), f);
        fclose(f);
        if (truncate(path.c_str(), off_t(1024 + tokens * uint64_t(id_bytes))) != 0)
            return test::skip("no sparse files in /tmp");
        Dataset set = open_set(path, T);
        validate_ids(set, 50000);
        for (uint64_t i = 0; i < 4; i++)
            EXPECT(row_of(set, first / T + i) == expected_row(tail, i, T), "row %zu", size_t(i));
        unlink(path.c_str());
    }
}
