// Muon: the update of a block's matrices. A fused matrix is several; ops/decl/muon.h has the formula.
//
// A rank updates matrices that it owns whole (layout.h), or where optimizer state is not sharded all of them.
// Over tp it gathers the momentum of its slices, computes the whole matrix's update, and applies its rows or
// columns: every rank of tp does the same products.
#pragma once
#include <vector>

#include "llmc/comm/axis.h"
#include "llmc/model/layout.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"
#include "llmc/train/step/iterations.h"

namespace PRECISION {

struct Muon {
    Axis tp;
    OptimizerConfig cfg;
    uint64_t seed;
    std::vector<MuonCoefficients> iterations;

    Muon(const OptimizerConfig& cfg, uint64_t seed, const Axis& tp)
        : tp(tp), cfg(cfg), seed(seed), iterations(iterations_of(cfg)) {}

    // As large on every rank of a stage.
    void add_to(Arena& arena, const Layout& layout);

    // A tensor of muon_tensors(), whole but for tp. param: null where master is the weight itself.
    struct Update {
        const Tensor* tensor;
        floatX* param;
        real *master, *momentum;
        const real* grad;
        const ops::GradientState* state;
    };
    // lr: of this step. step: finished steps. Collective over tp.
    void update(const Update& u, double lr, int64_t step) const;

private:
    // A matrix of a tensor, by rows: where it starts here, and its place in the whole tensor.
    struct Matrix {
        size_t start;
        int rows, cols;                 // here
        int all_rows, all_cols;         // over tp
        int first_row, first_col;       // of all_rows, all_cols
        uint64_t global;                // of the first element here
    };
    static std::vector<Matrix> matrices_of(const Tensor& t);
    void update(const Update& u, const Matrix& m, double lr, int64_t step) const;
    void orthogonalize(int rows, int cols) const;       // of x, in x

    // of the largest matrix: (rows, cols), or square of the smaller side. square: workspace of gram()
    real *u = nullptr, *gathered = nullptr, *sums = nullptr, *square = nullptr;
    double* squares = nullptr;
    floatX *a = nullptr, *b = nullptr;
    mutable floatX *x = nullptr, *next = nullptr;       // swapped by each iteration
};

}  // namespace PRECISION
