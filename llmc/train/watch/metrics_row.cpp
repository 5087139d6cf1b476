#include "llmc/train/watch/metrics_row.h"

#include <cmath>

inline namespace watch {

static constexpr size_t kMostKeys = 64, kDeepest = 8;

std::string_view MetricsRow::text(std::string_view key) const {
    const Json& v = json.get(key);
    return v.is_string() ? std::string_view(v.string()) : std::string_view();
}

static void add_members(MetricsRow& row, const Json& object, const std::string& prefix) {
    for (const auto& [key, v] : object.members()) {
        const std::string name = prefix + key;
        const auto number = [&](double x) {
            if (std::isfinite(x) && row.numbers.size() < kMostKeys) row.numbers.emplace_back(name, x);
        };
        if (v.is_object()) add_members(row, v, name + ".");
        else if (v.is_boolean()) number(v.boolean());
        else if (v.is_number()) number(v.number());
    }
}

bool read_metrics_row(std::string_view line, MetricsRow& row) {
    row = {};
    try {
        row.json = parse_json(line, kDeepest);
    } catch (const JsonError&) {
        return false;
    }
    row.event = row.text("event");
    if (row.json.is_object()) add_members(row, row.json, "");
    return row.json.is_object();
}

void each_metrics_row(std::string_view lines, const std::function<void(const MetricsRow&)>& take) {
    for (size_t begin = 0, end; (end = lines.find('\n', begin)) != lines.npos; begin = end + 1)
        if (MetricsRow row; read_metrics_row(lines.substr(begin, end - begin), row)) take(row);
}

}  // namespace watch
