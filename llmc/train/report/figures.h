// Room train/report: the table of figures, and the formats of other programs: TensorBoard, Prometheus,
// Chrome's traces. Called by train/log, which writes, and train/watch, which reads.
// The room knows names and numbers. It does not know how a figure is measured.
//
// The figures of a run: a row each in figures.json. Derived from the rows: metrics.jsonl, the event file, the
// metrics for Prometheus, the columns on the screen, the charts of the page, the panels of scripts/plot.py. A
// new figure is a row there, and a value where it is measured.
//
//     of, key      the event of the row of metrics.jsonl, and the figure's name in that row
//     json         how that row writes the figure: "real" or "whole"; absent: not in that row
//     unknown      where a value that is not finite is left out. "null": in all but metrics.jsonl; "absent":
//                  everywhere; no word: nowhere (null in JSON, NaN in other files)
//     tag          in the event file, and the name of the chart
//     prometheus   name, help, and a factor (scale) to base units; *_total is a counter
//     column       on the screen: title, format and width of a cell; a narrow screen drops the largest `keep`
//     chart        on the page, by `place` (llmc/train/watch/page/curves.js)
//     extremes     thinned rows keep extremes of this figure
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/json/json.h"

inline namespace report {

struct Figure {
    enum InRow { None, Real, Whole };
    enum Unknown { Shown, Null, Absent };
    struct Metric { std::string name, help; double scale = 1; };
    struct Column { std::string title, format; int width = 0, keep = 0; };

    std::string of, key;
    InRow json = None;
    Unknown unknown = Shown;
    std::string tag = {};
    Metric prometheus = {};         // without a name: none
    Column column = {};             // without a width: none
    bool extremes = false;
};

// A figure's key and what was measured; NaN: unknown.
using Measured = std::pair<std::string, double>;
using MeasuredRow = std::span<const Measured>;

std::span<const Figure> all_figures();
std::span<const Figure> figures_of(std::string_view event);     // in the order of the row

double value_of(std::string_view key, MeasuredRow values);           // NaN: no such value

// {"event":..,"step":.., and the figures: a row of metrics.jsonl, to which others may be added.
JsonLine figures_row(std::string_view event, int64_t step, MeasuredRow values);

}  // namespace report
