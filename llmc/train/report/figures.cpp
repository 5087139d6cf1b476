#include "llmc/train/report/figures.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "llmc/base/check.h"
#include "llmc/base/json/json_value.h"
#include "llmc/train/report/embedded.h"

inline namespace report {

static std::string text_of(const Json& v) { return v.is_null() ? "" : v.string(); }

static Figure figure_of(const Json& row) {
    const std::string json = text_of(row.get("json")), unknown = text_of(row.get("unknown"));
    Figure f{.of = row.at("of").string(), .key = row.at("key").string(), .tag = text_of(row.get("tag")),
             .extremes = row.find("extremes") != nullptr};
    if (!json.empty()) f.json = json == "whole" ? Figure::Whole : Figure::Real;
    if (!unknown.empty()) f.unknown = unknown == "null" ? Figure::Null : Figure::Absent;
    if (const Json* p = row.find("prometheus")) {
        const Json* scale = p->find("scale");
        f.prometheus = {p->at("name").string(), p->at("help").string(), scale ? scale->number() : 1};
    }
    if (const Json* c = row.find("column"))
        f.column = {c->at("title").string(), c->at("format").string(), int(c->at("width").integer()),
                    int(c->at("keep").integer())};
    return f;
}

std::span<const Figure> all_figures() {
    static const std::vector<Figure> all = [] {
        std::vector<Figure> rows;
        const Json table = parse_json(figures_json());
        for (const Json& row : table.list()) rows.push_back(figure_of(row));
        return rows;
    }();
    return all;
}

std::span<const Figure> figures_of(std::string_view event) {
    const auto all = all_figures();
    const auto first = std::ranges::find(all, event, &Figure::of);
    return {first, std::find_if(first, all.end(), [&](const Figure& f) { return f.of != event; })};
}

double value_of(std::string_view key, MeasuredRow values) {
    const auto at = std::ranges::find(values, key, &Measured::first);
    return at == values.end() ? std::numeric_limits<double>::quiet_NaN() : at->second;
}

JsonLine figures_row(std::string_view event, int64_t step, MeasuredRow values) {
    const auto figures = figures_of(event);
    for (const auto& [key, value] : values) {
        const bool has_row = std::ranges::find(figures, key, &Figure::key) != figures.end();
        CHECK(has_row, "figures.json has no row for {} of {}", key, event);
    }
    JsonLine line(event);
    line.add("step", step);
    for (const Figure& f : figures) {
        const double v = value_of(f.key, values);
        if (f.json == Figure::None || (f.unknown == Figure::Absent && !std::isfinite(v))) continue;
        if (f.json == Figure::Whole) line.add(f.key, int64_t(v));
        else line.add(f.key, v);
    }
    return line;
}

}  // namespace report
