#include "llmc/train/step/pieces.h"

// Adds a rectangle, or extends the last rectangle downwards.
static void add(std::vector<Piece>& pieces, const Piece& p) {
    if (!pieces.empty()) {
        Piece& last = pieces.back();
        if (last.col == p.col && last.cols == p.cols && last.row + last.rows == p.row &&
            last.at + last.count() == p.at) {
            last.rows += p.rows;
            return;
        }
    }
    pieces.push_back(p);
}

std::vector<Piece> pieces_of(const Tensor& t, size_t first, size_t count) {
    std::vector<Piece> pieces;
    const size_t width = size_t(t.param.whole_cols);
    for_each_run(t, first, count, [&](size_t local, size_t global, size_t n) {
        while (n > 0) {
            const size_t row = global / width, col = global % width;
            const bool whole = col == 0 && n >= width;
            const size_t rows = whole ? n / width : 1, cols = whole ? width : std::min(n, width - col);
            add(pieces, {.row = row, .col = col, .rows = rows, .cols = cols, .at = local});
            local += rows * cols, global += rows * cols, n -= rows * cols;
        }
    });
    return pieces;
}
