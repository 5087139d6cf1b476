#include "llmc/train/step/muon_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "llmc/base/guard/progress_page.h"

namespace PRECISION::inline step {

Muon::Muon(const OptimizerConfig& c, uint64_t s, Zero& z)
    : zero(z), shards(z.shards),
      shard(shards.sharding.state ? shards.group_of(shards.layout.blocks).shard : Axis()), cfg(c), seed(s),
      iterations(iterations_of(c)), rounds(rounds_of(shards.layout, shard.size)),
      rounds_until(size_t(shards.layout.count())) {
    for (size_t r = 0; r < rounds.size(); r++) {
        size_t at = 0;
        for (Deal& d : rounds[r]) {
            d.at = at;
            d.given.resize(size_t(shard.size));
            d.taken.resize(size_t(shard.size));
            for (size_t k = 0; k < d.matrices.size(); k++) {
                at += d.given[k] = in_shard_of(d.matrices[k], shard.index).count;
                rounds_until[size_t(d.matrices[k].tensor->bucket)] = r + 1;
            }
            const bool has = size_t(shard.index) < d.matrices.size();
            for (int k = 0; has && k < shard.size; k++) d.taken[size_t(k)] = in_shard_of(own_of(d), k).count;
        }
    }
    std::inclusive_scan(rounds_until.begin(), rounds_until.end(), rounds_until.begin(),
                        [](size_t a, size_t b) { return std::max(a, b); });
}

std::vector<Muon::MatrixRun> Muon::runs_of(size_t round) const {
    std::vector<MatrixRun> runs;
    size_t at = 0;
    for (const Deal& deal : rounds[round])
        for (const Matrix& m : deal.matrices) {
            const Interval own = in_shard_of(m, shard.index);
            if (!own.empty()) runs.push_back({&m, own, at});
            at += own.count;
        }
    return runs;
}

int Muon::own(size_t round) const {
    return int(std::count_if(rounds[round].begin(), rounds[round].end(), [&](const Deal& deal) {
        return size_t(shard.index) < deal.matrices.size();
    }));
}

static int side_of(int n) { return ops::muon_side(ops::target(), n); }

void Muon::add_to(ArenaOf arena) {
    size_t in_shard = 0, here = 0, all = 0, padded = 0, side = 0, tall = 0;
    for (const Round& round : rounds) {
        std::vector<size_t> elements(size_t(shard.size));
        const size_t n = round.size();
        for (const Deal& deal : round)
            for (const Matrix& m : deal.matrices) {
                const int rows = side_of(m.all_rows), cols = side_of(m.all_cols);
                const size_t smaller = size_t(std::min(rows, cols));
                here = std::max(here, n * m.here());
                all = std::max(all, m.all());
                padded = std::max(padded, n * size_t(rows) * size_t(cols));
                side = std::max(side, n * smaller * smaller);
                tall = std::max(tall, n * ops::gram_sums(ops::target(), rows, cols));
                for (int k = 0; k < shard.size; k++) elements[size_t(k)] += in_shard_of(m, k).count;
            }
        in_shard = std::max(in_shard, *std::max_element(elements.begin(), elements.end()));
    }
    const char* const what = "matrices of Muon";
    arena.add(what, &directions, in_shard);
    arena.add(what, &received, shard.staging(here));
    arena.add(what, &returned, shard.staging(in_shard));
    arena.add(what, &sums, ops::norm_blocks(all));
    arena.add(what, &squares, 1);
    arena.add(what, &buffers[0], padded);
    // The products' memory. Slices of other ranks of tp are gathered there, before the products begin.
    const auto bytes = [](size_t count, size_t element) { return (count * element + 63) / 64 * 64; };
    const size_t of_x = bytes(padded, sizeof(floatX)), of_square = bytes(tall, sizeof(real)),
                 of_a = bytes(side, sizeof(floatX)), of_slices = shards.mesh.tp.staging(all) * sizeof(real);
    arena.reserve(what, std::max(of_x + of_square + 2 * of_a, of_slices), [=, this](std::byte* p) {
        gathered = reinterpret_cast<real*>(p);
        buffers[1] = reinterpret_cast<floatX*>(p);
        square = reinterpret_cast<real*>(p + of_x);
        a = reinterpret_cast<floatX*>(p + of_x + of_square);
        b = reinterpret_cast<floatX*>(p + of_x + of_square + of_a);
    });
}

// ---------------------------------------------------------------------------------------------------------
// a round

void Muon::momentum(const MatrixRun& run, const Momentum& momentum, const real* grad,
                    const ops::GradientState* state, int64_t step) const {
    const real mu = real(muon_momentum_of(cfg, step));
    if (momentum.dtype == dtype_of<real>)
        return ops::muon_momentum(directions + run.at, reinterpret_cast<real*>(momentum.memory), grad, state,
                                  mu, run.elements.count);
    const Tensor& t = *run.matrix->tensor;
    const Interval elements = run.elements.from(shards.layout.in_bucket(t).begin);
    const size_t stride = size_t(run.matrix->all_cols);
    for (const Piece& piece : pieces_of(t, elements)) {
        const size_t at = piece.at - elements.begin;
        ops::muon_rounded_momentum({.u = directions + run.at + at,
                                    .m = reinterpret_cast<bfloat16*>(momentum.memory) + at, .grad = grad + at,
                                    .state = state, .mu = mu, .rows = int(piece.rows),
                                    .cols = int(piece.cols), .step = step + 1, .seed = seed,
                                    .global = t.global + piece.row * stride + piece.col, .stride = stride});
    }
}

void Muon::start(size_t round) {
    const int count = own(round);
    const size_t here = count ? own_of(rounds[round].front()).here() : 0;
    real* to = received;
    for (const Deal& d : rounds[round]) {
        travelling.push_back(
            shard.start_all_to_all(to, directions + d.at, d.given.data(), d.taken.data()));
        to += here;
    }
}

void Muon::finish_travel() {
    for (Pending& p : travelling) shard.wait(p);
    travelling.clear();
}

void Muon::normalize(size_t round) {
    zero.finish_gather();
    finish_travel();
    x = buffers[0];
    next = buffers[1];
    const real* slice = shard.whole(directions, received);
    floatX* to = x;
    for (int i = 0; i < own(round); i++) {
        beat();
        const Matrix& m = own_of(rounds[round][size_t(i)]);
        const real* const whole =
            m.here() == m.all() ? slice : shards.mesh.tp.all_gather(gathered, slice, m.here());
        ops::sum_of_squares(sums, whole, m.all());
        ops::set_zero(squares, sizeof *squares);
        ops::sum_in_order(squares, sums, ops::norm_blocks(m.all()));
        ops::muon_normalize(to, whole, squares, m.all_rows, m.all_cols, m.all_cols / m.cols);
        slice += m.here();
        to += size_t(side_of(m.all_rows)) * size_t(side_of(m.all_cols));
    }
}

void Muon::iterate(const Matrix& m, int count) {
    const int rows = side_of(m.all_rows), cols = side_of(m.all_cols);
    const int side = std::min(rows, cols);
    const size_t n = size_t(count), all = n * size_t(rows) * size_t(cols),
                 squared = n * size_t(side) * size_t(side);
    for (const MuonCoefficients& k : iterations) {
        ops::gram(a, square, x, rows, cols, count);
        ops::gram(b, square, a, side, side, count);     // a is its own transpose
        ops::linear_combination(b, real(k[1]), a, real(k[2]), b, squared);
        ops::muon_product(next, b, x, rows, cols, count);
        ops::linear_combination(next, real(k[0]), x, 1, next, all);
        std::swap(x, next);
    }
}

const floatX* Muon::slices_here(const Round& round, int count) const {
    const Matrix& m = own_of(round.front());
    const size_t stride = size_t(side_of(m.all_cols)), each = size_t(side_of(m.all_rows)) * stride;
    const floatX* const first = x + size_t(m.first_row) * stride + m.first_col;
    if (size_t(m.cols) == stride && (count == 1 || m.here() == each)) return first;
    for (size_t i = 0; i < size_t(count); i++)
        ops::copy_rows(next + i * m.here(), {.from = first + i * each, .stride = ptrdiff_t(stride),
                                             .out_stride = m.cols, .rows = m.rows, .width = size_t(m.cols)});
    return next;
}

// What started first is awaited first: weights of complete buckets, directions of the next round, results.
void Muon::orthogonalize(size_t round) {
    const Round& r = rounds[round];
    const int count = own(round);
    const floatX* slices = buffers[0];
    if (count) {
        beat();
        iterate(own_of(r.front()), count);
        slices = slices_here(r, count);
    }
    zero.finish_gather();
    finish_travel();
    const size_t here = count ? own_of(r.front()).here() : 0;
    std::vector<Pending> back;
    const floatX* from = slices;
    for (const Deal& d : r) {
        back.push_back(shard.start_all_to_all(returned + d.at, from, d.taken.data(), d.given.data()));
        from += here;
    }
    for (Pending& p : back) shard.wait(p);
    results = shard.size == 1 ? slices : returned;
}

void Muon::update(const MatrixRun& run, floatX* param, real* master, const ops::GradientState* state,
                  double lr, int64_t step) const {
    const Matrix& m = *run.matrix;
    const Tensor& t = *m.tensor;
    const double stretch = std::sqrt(std::max(1., double(m.all_rows) / m.all_cols));
    const Interval elements = run.elements.from(shards.layout.in_bucket(t).begin);
    const size_t stride = size_t(m.all_cols);
    for (const Piece& piece : pieces_of(t, elements)) {
        const size_t at = piece.at - elements.begin;
        ops::muon_update({.param = param ? param + at : nullptr, .master = master ? master + at : nullptr,
                          .x = results + run.at + at, .x_stride = piece.cols, .state = state,
                          .rows = int(piece.rows), .cols = int(piece.cols), .lr = real(lr),
                          .stretch = real(stretch), .decay = real(cfg.matrix_decay), .step = step + 1,
                          .stochastic = cfg.stochastic_rounding, .cautious = cfg.cautious, .seed = seed,
                          .global = t.global + piece.row * stride + piece.col, .stride = stride});
    }
}

}  // namespace PRECISION::step
