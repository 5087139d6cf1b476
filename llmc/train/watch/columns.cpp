#include "llmc/train/watch/columns.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/json/json.h"

inline namespace watch {

static constexpr size_t kMostColumns = 64;

const std::vector<double>* Columns::find(std::string_view name) const {
    const auto at = std::ranges::find(names, name);
    return at == names.end() ? nullptr : &values[size_t(at - names.begin())];
}

std::vector<double>& Columns::column(const std::string& name) {
    const size_t at = size_t(std::ranges::find(names, name) - names.begin());
    if (at < names.size()) return values[at];
    names.push_back(name);
    return values.emplace_back(rows(), NAN);
}

void Columns::add(MeasuredRow row) {
    if (rows() >= most + most / 2) thin();
    for (const auto& [name, value] : row) {
        if (names.size() >= kMostColumns && !find(name)) continue;
        std::vector<double>& column = this->column(name);
        if (column.size() == rows()) column.push_back(value);       // the first of two equal keys counts
    }
    index.push_back(seen - 1);
    for (auto& column : values) column.resize(rows(), NAN);
}

void Columns::leave(const std::vector<size_t>& left) {
    const auto pick = [&](auto& list) {
        for (size_t i = 0; i < left.size(); i++) list[i] = list[left[i]];
        list.resize(left.size());
        list.shrink_to_fit();
    };
    for (auto& column : values) pick(column);
    pick(index);
    generation++;
}

// Doubles the stride until `most` rows are left. The newest quarter stays in full.
void Columns::thin() {
    const size_t newest = rows() - most / 4;
    std::vector<size_t> left;
    for (;; stride_ *= 2) {
        left.clear();
        for (size_t i = 0; i < rows(); i++)
            if (i >= newest || index[i] % stride_ == 0) left.push_back(i);
        if (left.size() <= most || stride_ > seen) break;
    }
    leave(left);
}

// Marks the rows in [begin, end) with the first least and the first largest value of a column.
static void keep_extremes(const std::vector<double>& column, size_t begin, size_t end,
                          std::vector<bool>& kept) {
    size_t least = end, largest = end;
    for (size_t i = begin; i < end; i++) {
        if (std::isnan(column[i])) continue;
        if (least == end || column[i] < column[least]) least = i;
        if (largest == end || column[i] > column[largest]) largest = i;
    }
    if (least == end) return;
    kept[least] = true;
    kept[largest] = true;
}

void Columns::leave_extremes(size_t most, std::string_view event) {
    seen = rows();                                  // damaged rows are no rows that a reader could miss
    if (rows() <= most) return;
    std::vector<bool> kept(rows());
    kept.back() = true;
    const size_t intervals = most / 5;
    for (size_t i = 0; i < intervals; i++) {
        const size_t begin = rows() * i / intervals, end = rows() * (i + 1) / intervals;
        kept[begin] = true;
        for (const Figure& f : figures_of(event)) {
            const std::vector<double>* column = f.extremes ? find(f.key) : nullptr;
            if (column) keep_extremes(*column, begin, end, kept);
        }
    }
    std::vector<size_t> left;
    for (size_t i = 0; i < rows(); i++)
        if (kept[i]) left.push_back(i);
    leave(left);
}

std::string columns_json(const Columns& columns, size_t first, size_t most) {
    if (first == columns.rows()) return "{}";
    const size_t last = columns.rows() - 1, every = (last - first) / most + 1;
    std::vector<size_t> rows;
    for (size_t i = first; i < last; i += every) rows.push_back(i);
    rows.push_back(last);
    JsonObject object;
    for (size_t c = 0; c < columns.names.size(); c++)
        object.raw(columns.names[c],
                   json_list(rows, [&](size_t i) { return json_number(columns.values[c][i]); }));
    return object.str();
}

}  // namespace watch
