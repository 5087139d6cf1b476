#include "llmc/train/step/pieces.h"

#include <algorithm>

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

// Of a matrix cut over columns: the end of a row, whole rows of these columns, the start of a row.
static std::vector<Piece> pieces_of_columns(const Param& p, size_t first, size_t count) {
    std::vector<Piece> pieces;
    const size_t cols = size_t(p.cols);
    for (size_t at = first, end = std::min(first + count, size_t(p.whole_rows) * cols); at < end;) {
        const size_t col = at % cols, rows = col ? 0 : (end - at) / cols;
        const size_t n = rows ? rows * cols : std::min(end - at, cols - col);
        pieces.push_back({.row = at / cols, .col = size_t(p.first_col) + col,
                          .rows = std::max<size_t>(rows, 1), .cols = rows ? cols : n, .at = at});
        at += n;
    }
    return pieces;
}

std::vector<Piece> pieces_of(const Tensor& t, size_t first, size_t count) {
    const bool columns = t.param.cols != t.param.whole_cols && !t.param.is_fused();
    if (columns && t.param.first_row == 0) return pieces_of_columns(t.param, first, count);
    std::vector<Piece> pieces;
    const size_t width = size_t(t.param.whole_cols);
    for_each_run(t, first, count, [&](size_t local, size_t global, size_t n) {
        while (n > 0) {
            const size_t row = global / width, col = global % width;
            const bool whole = col == 0 && n >= width;
            const size_t rows = whole ? n / width : 1, cols = whole ? width : std::min(n, width - col);
            add(pieces, {.row = row, .col = col, .rows = rows, .cols = cols, .at = local});
            local += rows * cols;
            global += rows * cols;
            n -= rows * cols;
        }
    });
    return pieces;
}
