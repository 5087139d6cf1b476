#include "llmc/train/step/pieces.h"

inline namespace step {

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
static std::vector<Piece> pieces_of_columns(const Param& p, Interval elements) {
    std::vector<Piece> pieces;
    const size_t cols = size_t(p.cols);
    for (Interval rest = common(elements, {0, p.used()}); !rest.empty();) {
        const size_t col = rest.begin % cols, rows = col ? 0 : rest.count / cols;
        const Interval n = rest.take(rows ? rows * cols : cols - col);
        pieces.push_back({.row = n.begin / cols, .col = size_t(p.first_col) + col,
                          .rows = std::max<size_t>(rows, 1), .cols = rows ? cols : n.count, .at = n.begin});
    }
    return pieces;
}

std::vector<Piece> pieces_of(const Tensor& t, Interval elements) {
    const bool columns = t.param.cols != t.param.whole_cols && !t.param.is_fused();
    if (columns && t.param.first_row == 0) return pieces_of_columns(t.param, elements);
    std::vector<Piece> pieces;
    const size_t width = size_t(t.param.whole_cols);
    for_each_run(t, elements, [&](size_t local, size_t global, size_t n) {
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

}  // namespace step
