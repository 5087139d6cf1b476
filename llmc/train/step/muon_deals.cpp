// The deal of matrices over ranks and rounds, and the order of an update's work within a round.
#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "llmc/train/step/optimizer.h"

namespace PRECISION::inline step {

static void add_matrices(std::vector<Muon::Matrix>& matrices, const Tensor& t) {
    const Param& p = t.param;
    const int of_rows = p.split == Split::Rows ? p.tp : 1;
    std::vector<int> rows = {p.rows};
    if (p.is_fused()) rows.assign(p.fused.begin(), p.fused.end());
    int begin = 0;
    for (const int n : rows) {
        if (n == 0) continue;
        matrices.push_back({.tensor = &t, .start = size_t(begin) * size_t(p.cols), .rows = n, .cols = p.cols,
                            .all_rows = n * of_rows, .all_cols = p.whole_cols,
                            .first_row = of_rows > 1 ? n * p.tp_index : 0, .first_col = p.first_col});
        begin += n;
    }
}

int Muon::last_bucket(const Round& round) {
    int last = 0;
    for (const Deal& deal : round)
        for (const Matrix& m : deal.matrices) last = std::max(last, m.tensor->bucket);
    return last;
}

Interval Muon::in_shard_of(const Layout& layout, const Matrix& m, int k, int shards) {
    const Interval matrix{layout.in_bucket(*m.tensor).begin + m.start, m.here()};
    return common(matrix, part_of({0, layout.size(m.tensor->bucket)}, size_t(k), size_t(shards)));
}

// Calls f(rank, elements) for each rank whose shard has elements of the matrix.
template <class F>
static void for_each_shard(const Muon::Matrix& m, const Layout& layout, int shards, F&& f) {
    const size_t start = layout.in_bucket(*m.tensor).begin + m.start;
    const int first = int(start / (layout.size(m.tensor->bucket) / size_t(shards)));
    for (int k = first; k < shards; k++) {
        const size_t n = Muon::in_shard_of(layout, m, k, shards).count;
        if (n == 0) return;
        f(k, n);
    }
}

// The rank with most of a matrix's elements.
static int owner_of(const Muon::Matrix& m, const Layout& layout, int shards) {
    int owner = 0;
    size_t most = 0;
    for_each_shard(m, layout, shards, [&](int rank, size_t n) {
        if (n > most) {
            most = n;
            owner = rank;
        }
    });
    return owner;
}

// Matrices of one shape: their owners take turns.
static void alternate_owners(std::span<Muon::Matrix> matrices, const Layout& layout, int shards) {
    std::map<int, std::vector<Muon::Matrix>> of;
    for (const Muon::Matrix& m : matrices) of[owner_of(m, layout, shards)].push_back(m);
    for (size_t i = 0, at = 0; at < matrices.size(); i++)
        for (const auto& [owner, own] : of)
            if (i < own.size()) matrices[at++] = own[i];
}

// The matrices of a deal go to its leading ranks, one each: the largest overlap of a matrix and a shard
// first, as elements of a rank's own shard do not travel.
static void give_to_owners(Muon::Deal& deal, const Layout& layout, int shards) {
    struct Pair { size_t count, matrix; int rank; };
    const size_t count = deal.matrices.size();
    std::vector<Pair> pairs;
    for (size_t i = 0; i < count; i++)
        for_each_shard(deal.matrices[i], layout, shards, [&](int rank, size_t n) {
            if (size_t(rank) < count) pairs.push_back({n, i, rank});
        });
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair& a, const Pair& b) { return a.count > b.count; });
    std::vector<const Muon::Matrix*> of_rank(count);
    std::vector<bool> given(count);
    for (const Pair& p : pairs) {
        if (given[p.matrix] || of_rank[size_t(p.rank)]) continue;
        of_rank[size_t(p.rank)] = &deal.matrices[p.matrix];
        given[p.matrix] = true;
    }
    size_t left = 0;                    // the first that nobody has
    std::vector<Muon::Matrix> matrices;
    for (const Muon::Matrix* m : of_rank) {
        while (!m && given[left]) left++;
        matrices.push_back(m ? *m : deal.matrices[left++]);
    }
    deal.matrices = std::move(matrices);
}

// The ranks of a deal wait for its largest matrix: matrices are dealt by size.
static std::vector<Muon::Deal> deal(const Layout& layout, size_t ranks) {
    std::vector<Muon::Matrix> matrices;
    for (const Tensor& t : layout.tensors)
        if (t.trailing) add_matrices(matrices, t);
    const auto shape = [](const Muon::Matrix& m) { return std::tuple(m.all(), m.all_rows, m.rows); };
    std::stable_sort(matrices.begin(), matrices.end(),
                     [&](const auto& a, const auto& b) { return shape(a) > shape(b); });
    for (size_t first = 0, end; first < matrices.size() && ranks > 1; first = end) {
        end = first + 1;
        while (end < matrices.size() && shape(matrices[end]) == shape(matrices[first])) end++;
        alternate_owners(std::span(matrices).subspan(first, end - first), layout, int(ranks));
    }
    std::vector<Muon::Deal> deals((matrices.size() + ranks - 1) / ranks);
    for (size_t i = 0; i < matrices.size(); i++) deals[i / ranks].matrices.push_back(matrices[i]);
    for (Muon::Deal& d : deals) give_to_owners(d, layout, int(ranks));
    return deals;
}

// Of whole matrices, and of a rank's slices.
static bool have_one_shape(const Muon::Deal& a, const Muon::Deal& b) {
    const auto sides = [](const Muon::Matrix& m) {
        return std::tuple(m.all_rows, m.all_cols, m.rows, m.cols);
    };
    const auto same = [&](const Muon::Matrix& m) { return sides(m) == sides(a.matrices.front()); };
    return std::all_of(a.matrices.begin(), a.matrices.end(), same) &&
           std::all_of(b.matrices.begin(), b.matrices.end(), same);
}

// A transport takes eight collectives in flight; directions of a round are one for each deal.
static constexpr size_t kDealsInFlight = 6;

// Rounds are about equally large. They run in the order of the buckets that they complete, as complete
// buckets are gathered during later rounds.
std::vector<Muon::Round> Muon::rounds_of(const Layout& layout, int ranks) {
    const std::vector<Deal> deals = deal(layout, size_t(ranks));
    std::vector<Round> rounds;
    for (size_t first = 0, end; first < deals.size(); first = end) {
        end = first + 1;
        while (end < deals.size() && have_one_shape(deals[first], deals[end])) end++;
        const Muon::Matrix& m = deals[first].matrices.front();
        size_t most = size_t(ops::muon_batch(ops::target(), m.all_rows, m.all_cols));
        if (ranks > 1) most = std::min(most, kDealsInFlight);
        const size_t count = (end - first + most - 1) / most;
        for (size_t i = 0; i < count; i++) {
            const Interval round = part_of({first, end - first}, i, count);
            rounds.emplace_back(deals.begin() + int64_t(round.begin), deals.begin() + int64_t(round.end()));
        }
    }
    std::stable_sort(rounds.begin(), rounds.end(), [](const auto& a, const auto& b) {
        return Muon::last_bucket(a) < Muon::last_bucket(b);
    });
    return rounds;
}

// ---------------------------------------------------------------------------------------------------------
// rounds in the list of an update

// With shards of the state all gradients are there: directions of the next round can be on their way.
void Optimizer::add_round(std::vector<Work>& works, size_t round, size_t most) const {
    const bool ahead = shards.sharding.state && zero.overlap;
    if (!ahead || round == 0) add_start(works, round, most);
    works.push_back({.kind = Work::Normalize, .round = round});
    if (ahead && round + 1 < muon->rounds.size()) add_start(works, round + 1, most);
    works.push_back({.kind = Work::Orthogonalize, .round = round});
    add_runs(works, Work::Weights, round, most);
}

void Optimizer::add_start(std::vector<Work>& works, size_t round, size_t most) const {
    add_runs(works, Work::Momentum, round, most);
    works.push_back({.kind = Work::Start, .round = round});
}

void Optimizer::add_runs(std::vector<Work>& works, Work::Kind kind, size_t round, size_t most) const {
    for (const Muon::MatrixRun& run : muon->runs_of(round))
        for (Interval rest = run.elements; !rest.empty();) {
            const Interval now = rest.take(most);
            works.push_back({.kind = kind, .bucket = run.matrix->tensor->bucket, .elements = now,
                             .run = {run.matrix, now, run.at + (now.begin - run.elements.begin)}});
        }
}

}  // namespace PRECISION::step
