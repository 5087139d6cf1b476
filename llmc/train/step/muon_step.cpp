#include "llmc/train/step/muon_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "llmc/base/guard/progress_page.h"

namespace PRECISION {

std::vector<Muon::Matrix> Muon::matrices_of(const Tensor& t) {
    const Param& p = t.param;
    const int of_rows = p.split == Split::Rows ? p.tp : 1;
    std::vector<int> rows = {p.rows};
    if (p.is_fused()) rows.assign(p.fused.begin(), p.fused.end());
    std::vector<Matrix> matrices;
    int begin = 0, all_begin = 0;
    for (const int n : rows) {
        if (n == 0) continue;
        const int first_row = of_rows > 1 ? n * p.tp_index : 0;
        const uint64_t row = uint64_t(all_begin + first_row);
        matrices.push_back({.start = size_t(begin) * size_t(p.cols), .rows = n, .cols = p.cols,
                            .all_rows = n * of_rows, .all_cols = p.whole_cols, .first_row = first_row,
                            .first_col = p.first_col,
                            .global = t.global + row * uint64_t(p.whole_cols) + uint64_t(p.first_col)});
        begin += n;
        all_begin += n * of_rows;
    }
    return matrices;
}

void Muon::add_to(Arena& arena, const Layout& layout) {
    size_t here = 0, all = 0, side = 0, tall = 0;
    for (const Tensor& t : layout.tensors) {
        if (t.owner < 0) continue;
        for (const Matrix& m : matrices_of(t)) {
            const size_t smaller = size_t(std::min(m.all_rows, m.all_cols));
            here = std::max(here, size_t(m.rows) * size_t(m.cols));
            all = std::max(all, size_t(m.all_rows) * size_t(m.all_cols));
            side = std::max(side, smaller * smaller);
            tall = std::max(tall, ops::gram_sums(ops::target(), m.all_rows, m.all_cols));
        }
    }
    const char* const what = "matrices of Muon";
    arena.add(what, &u, here);
    arena.add(what, &gathered, tp.staging(all));
    arena.add(what, &sums, ops::norm_blocks(all));
    arena.add(what, &squares, 1);
    arena.add(what, &x, all);
    arena.add(what, &next, all);
    arena.add(what, &square, tall);
    arena.add(what, &a, side);
    arena.add(what, &b, side);
}

void Muon::orthogonalize(int rows, int cols) const {
    const int side = std::min(rows, cols);
    const size_t count = size_t(rows) * size_t(cols), squared = size_t(side) * size_t(side);
    for (const MuonCoefficients& k : iterations) {
        ops::gram(a, square, x, rows, cols);
        ops::gram(b, square, a, side, side);            // a is its own transpose
        ops::linear_combination(b, real(k[1]), a, real(k[2]), b, squared);
        if (rows <= cols) ops::matmul_backward_input(next, b, x, rows, cols, rows);
        else ops::matmul_forward(next, x, b, nullptr, rows, cols, cols);
        ops::linear_combination(next, real(k[0]), x, 1, next, count);
        std::swap(x, next);
    }
}

void Muon::update(const Update& t, const Matrix& m, double lr, int64_t step) const {
    beat();
    const size_t here = size_t(m.rows) * size_t(m.cols), all = size_t(m.all_rows) * size_t(m.all_cols);
    ops::muon_momentum(u, t.momentum + m.start, t.grad + m.start, t.state,
                       real(muon_momentum_of(cfg, step)), here);
    const real* const whole = here == all ? u : tp.all_gather(gathered, u, here);
    ops::sum_of_squares(sums, whole, all);
    ops::set_zero(squares, sizeof *squares);
    ops::sum_in_order(squares, sums, ops::norm_blocks(all));
    ops::muon_normalize(x, whole, squares, m.all_rows, m.all_cols, m.all_cols / m.cols);
    orthogonalize(m.all_rows, m.all_cols);
    const double stretch = std::sqrt(std::max(1., double(m.all_rows) / m.all_cols));
    ops::muon_update({.param = t.param ? t.param + m.start : nullptr, .master = t.master + m.start,
                      .x = x + size_t(m.first_row) * size_t(m.all_cols) + m.first_col,
                      .x_stride = size_t(m.all_cols), .state = t.state, .rows = m.rows, .cols = m.cols,
                      .lr = real(lr), .stretch = real(stretch), .decay = real(cfg.matrix_decay),
                      .step = step + 1, .stochastic = cfg.stochastic_rounding, .cautious = cfg.cautious,
                      .seed = seed, .global = m.global, .stride = size_t(m.all_cols)});
}

void Muon::update(const Update& t, double lr, int64_t step) const {
    for (const Matrix& m : matrices_of(*t.tensor)) update(t, m, lr, step);
}

}  // namespace PRECISION
