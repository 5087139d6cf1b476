// Muon: the update of a block's matrices. A fused matrix is several; ops/decl/muon.h has the formula.
//
// Weights and momentum are cut over the shards like the state of any other tensor, and Muon's products need
// whole matrices. So matrices are dealt to the ranks of the shard axis. A deal gives each rank at most one
// matrix, where possible a matrix of which the rank has most elements. A round is one deal, or several deals
// of matrices of one shape, whose products run as a batch (muon_batch()):
//
//     momentum()       each rank: the direction u of its elements of the round's matrices
//     start()          each direction travels to the rank to which its matrix is dealt
//     normalize()      there: x of the whole matrix; over tp the rank gathers the other slices
//     orthogonalize()  the products; each element of the result travels back
//     update()         each rank: the weights of the same elements
//
// Directions of the next round travel during the products. Every rank of tp does the same products, and keeps
// its rows or columns. Where each rank has the whole state (ZeRO 0), a deal is one matrix, and nothing
// travels.
#pragma once
#include <vector>

#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"
#include "llmc/train/step/iterations.h"
#include "llmc/train/step/zero.h"

namespace PRECISION::inline step {

struct Muon {
    // A matrix of a tensor, by rows: where it starts here, and its place in the whole matrix.
    struct Matrix {
        const Tensor* tensor;
        size_t start;                   // in the tensor
        int rows, cols;                 // here
        int all_rows, all_cols;         // over tp
        int first_row, first_col;       // of all_rows, all_cols
        size_t here() const { return size_t(rows) * size_t(cols); }
        size_t all() const { return size_t(all_rows) * size_t(all_cols); }
    };
    struct Deal {
        std::vector<Matrix> matrices;               // number k is dealt to rank k of `shard`
        // given[k]: elements of rank k's matrix in this rank's shard; taken[k]: elements of this rank's
        // matrix in rank k's shard
        std::vector<size_t> given, taken;
        size_t at = 0;                              // first element of the deal among a rank's directions of
                                                    // the round
    };
    using Round = std::vector<Deal>;
    // Elements of a matrix in this rank's shard.
    struct MatrixRun {
        const Matrix* matrix;
        Interval elements;              // of the bucket
        size_t at;                      // first element among the rank's directions of the round
    };

    Zero& zero;
    const Shards& shards;
    Axis shard;                         // of one rank where each rank has the whole state
    OptimizerConfig cfg;
    uint64_t seed;
    std::vector<MuonCoefficients> iterations;
    std::vector<Round> rounds;
    std::vector<size_t> rounds_until;   // [b]: leading rounds that cover all matrices of buckets 0 to b

    static int last_bucket(const Round& round);     // of a matrix of the round
    static std::vector<Round> rounds_of(const Layout& layout, int ranks);

    Muon(const OptimizerConfig& cfg, uint64_t seed, Zero& zero);
    Muon(const Muon&) = delete;
    void add_to(ArenaOf arena);         // equally large on every rank of a pipeline stage

    // This rank's runs of the matrices of a round, in order.
    std::vector<MatrixRun> runs_of(size_t round) const;
    // Elements of a matrix in the shard of rank k, counted from the start of the bucket.
    static Interval in_shard_of(const Layout& layout, const Matrix& m, int k, int shards);
    Interval in_shard_of(const Matrix& m, int k) const {
        return in_shard_of(shards.layout, m, k, shard.size);
    }

    // Called in this order; start(r + 1) is called before orthogonalize(r). Pointers: to the run's first
    // element. step: finished steps.
    struct Momentum { std::byte* memory; DType dtype; };       // real, or BF16
    void momentum(const MatrixRun& run, const Momentum& momentum, const real* grad,
                  const ops::GradientState* state, int64_t step) const;
    void start(size_t round);
    void normalize(size_t round);
    void orthogonalize(size_t round);
    // param: null where master is the weight itself; master: null where there is none. lr: of this step.
    void update(const MatrixRun& run, floatX* param, real* master, const ops::GradientState* state,
                double lr, int64_t step) const;

private:
    int own(size_t round) const;                                // matrices dealt to this rank: one in each of
                                                                // the first deals
    const Matrix& own_of(const Deal& deal) const { return deal.matrices[size_t(shard.index)]; }
    void iterate(const Matrix& m, int count);                   // of x, in x, for `count` of m's shape
    const floatX* slices_here(const Round& round, int count) const;     // of x, dense
    void finish_travel();

    real* directions = nullptr;                                 // of the round's elements in this shard
    real* received = nullptr;                                   // of this rank's matrices
    const floatX* results = nullptr;                            // x of the elements: in `returned`, or in x
    floatX* returned = nullptr;
    std::vector<Pending> travelling;                            // directions, by deal
    // of the largest round, with the sides of muon_side(): (rows, cols), or square of the smaller side.
    // square: workspace of gram(); gathered, sums: of a matrix
    real *gathered = nullptr, *sums = nullptr, *square = nullptr;
    double* squares = nullptr;
    floatX *buffers[2] = {}, *a = nullptr, *b = nullptr;
    floatX *x = nullptr, *next = nullptr;                       // the buffers, swapped by each iteration
};

}  // namespace PRECISION::step
