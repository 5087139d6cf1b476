// Rows of one kind as columns, in bounded memory: the newest rows in full, older ones evenly thinned.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/train/report/figures.h"

inline namespace watch {

struct Columns {
    size_t most;                                    // rows kept after a thinning
    std::vector<std::string> names;                 // at most 64
    std::vector<std::vector<double>> values;        // of each name, a number per row; NaN: the row has none
    std::vector<uint64_t> index;                    // of each row in the file, among rows of its kind
    uint64_t seen = 0;                              // rows in the file
    uint64_t generation = 0;                        // number of thinnings

    explicit Columns(size_t most = 2048) : most(most) {}

    size_t rows() const { return index.size(); }
    bool sampled() const { return seen > rows(); }
    const std::vector<double>* find(std::string_view name) const;
    // Appends a row. REQUIRES: the caller has counted the row in `seen`; its index is seen - 1.
    void add(MeasuredRow row);
    void take(MeasuredRow row) {                    // counts and appends
        seen++;
        add(row);
    }
    // For a report: reduces the rows to about `most`. The last row stays, and of each of most / 5 intervals
    // the first row and the rows with the least and the largest value of two figures (`extremes`).
    void leave_extremes(size_t most, std::string_view event);

private:
    uint64_t stride_ = 1;                           // of older rows: index % stride_ == 0

    std::vector<double>& column(const std::string& name);
    void thin();
    void leave(const std::vector<size_t>& left);
};

// {"step":[1,2],"loss":[4.5,null]}: rows from `first` on; of more than `most` rows an even choice, with the
// last row.
std::string columns_json(const Columns& columns, size_t first = 0, size_t most = SIZE_MAX);

}  // namespace watch
