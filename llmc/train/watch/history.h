// What metrics.jsonl says of a run, in bounded memory: curves thinned, texts and marks up to a limit.
#pragma once
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "llmc/train/report/prometheus.h"
#include "llmc/train/watch/columns.h"
#include "llmc/train/watch/metrics_row.h"

inline namespace watch {

// JSON values, the newest of them up to a limit.
struct Newest {
    size_t most = 1000, most_bytes = 4 << 20;
    std::deque<std::string> json = {};
    uint64_t seen = 0;                          // values so far
    size_t bytes = 0;

    void add(std::string value);
    std::string text(uint64_t from) const;      // a JSON list of the values from number `from` on
};

struct History {
    // Of the train rows before an offset of the file: the last step, seconds in their steps.
    struct Place { double step; uint64_t offset; double seconds; };

    Columns train, comm, val{16384};            // each task has as much room as train
    Columns memory{4096};                       // plan_bytes, and peak_bytes so far
    static constexpr size_t kMostTasks = 200;
    std::map<std::string, Columns> tasks;       // by name; of the first kMostTasks
    Newest samples{.most = 20000}, health{.most = 100};     // health: rows health and grad_norms
    Newest marks{.most = 2000};                 // {"step":120,"kind":"skipped","text":".."}
    std::string start;                          // the latest start or resume row; JSON
    bool ended = false;                         // by the row done
    double seconds = 0;                         // in training steps
    double ms = 0;                              // time of the last step
    uint64_t damaged = 0;                       // lines read that are no rows
    RunMetrics metrics{""};                     // by the last rows
    std::vector<Place> places;                  // about a megabyte apart
    double first_step = -INFINITY, last_step = INFINITY;        // train rows of other steps are not kept

    // A history without limits, but for the number of tasks and of rows of health. For a report.
    static History whole();

    // Adds whole lines, which begin at `offset` of the file. Of the train rows only each `every`-th is kept
    // (index % every == 0), the last one of `lines`, and skipped steps. Rows of other kinds are all kept.
    void feed(std::string_view lines, uint64_t offset, uint64_t every = 1);
    // Of rows of checkpoints.jsonl; of evals.jsonl, where scores of training stand a second time.
    void checkpoint(const MetricsRow& row) { mark(row, "checkpoint", std::string(row.text("dir"))); }
    void score(const MetricsRow& row);
    uint64_t generation() const;                // grows with each thinning

private:
    size_t ms_at_ = 0;                          // where the last train row had "ms":

    void note_place(uint64_t offset);
    void count_train(double took);              // milliseconds
    void train_line(std::string_view line, bool keep);
    void keep_train(const MetricsRow& row);
    void other(const MetricsRow& row);
    void begun(const MetricsRow& row);
    void mark(const MetricsRow& row, const char* kind, const std::string& text);
    void note_memory(const MetricsRow& row);
};

// The tables of a run, by their names on the page.
inline constexpr std::pair<const char*, Columns History::*> kTables[] = {
    {"train", &History::train}, {"val", &History::val}, {"comm", &History::comm},
    {"memory", &History::memory}};

}  // namespace watch
