// The place of a run of local elements in the whole tensor: coordinates equal on every mesh.
//
// A rank holds a tensor's rows or columns (tp), and within these a flat range (ZeRO). A flat range of a
// matrix is at most three rectangles: the end of a row, whole rows, the start of a row; of a fused matrix,
// per part.
#pragma once
#include <vector>

#include "llmc/model/layout.h"

inline namespace step {

struct Piece {
    size_t row, col, rows, cols;    // of the whole tensor, without padding
    size_t at;                      // first element in the tensor as stored here; the rest follows
    size_t count() const { return rows * cols; }
};

// The pieces of some elements of a tensor as stored, without padding.
std::vector<Piece> pieces_of(const Tensor& t, Interval elements);

// Calls f(local, global, n) for each run of elements of a piece that is contiguous here and in the whole
// tensor and lies in some elements of the whole.
template <class F> void for_each_run(const Piece& p, size_t whole_cols, Interval of_whole, F&& f) {
    const bool joined = p.cols == whole_cols;                       // whole rows are one run
    const size_t rows = joined ? 1 : p.rows, cols = joined ? p.count() : p.cols;
    const size_t top = p.row * whole_cols + p.col, first = of_whole.begin;
    size_t r = first > top + cols ? (first - top - cols) / whole_cols : 0;
    for (; r < rows && top + r * whole_cols < of_whole.end(); r++) {
        const size_t start = top + r * whole_cols;
        const Interval run = common({start, cols}, of_whole);
        if (!run.empty()) f(p.at + r * cols + (run.begin - start), run.begin, run.count);
    }
}

}  // namespace step
