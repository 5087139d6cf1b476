// A row of metrics.jsonl and its kin: one JSON object a line.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/json/json_value.h"
#include "llmc/train/report/figures.h"

inline namespace watch {

struct MetricsRow {
    Json json;
    std::string event;                  // "train"; empty: none
    std::vector<Measured> numbers;      // booleans as 1 and 0; keys "a.b"

    double number(std::string_view key) const { return value_of(key, numbers); }   // NaN: none
    std::string_view text(std::string_view key) const;              // empty: no such text
};

// Reads one line without its newline. False: the line is no JSON object, or is nested deeper than 8 levels.
// Among numbers lists, nulls, and keys beyond the first 64 are left out.
bool read_metrics_row(std::string_view line, MetricsRow& row);
// Calls take(row) for each of the whole lines that is a row.
void each_metrics_row(std::string_view lines, const std::function<void(const MetricsRow&)>& take);

}  // namespace watch
