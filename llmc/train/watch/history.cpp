#include "llmc/train/watch/history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ranges>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"

inline namespace watch {

static constexpr std::string_view kTrainRow = "{\"event\":\"train\",";      // as train/log/log.cpp writes it

void Newest::add(std::string value) {
    bytes += value.size();
    json.push_back(std::move(value));
    seen++;
    while (json.size() > 1 && (json.size() > most || bytes > most_bytes)) {
        bytes -= json.front().size();
        json.pop_front();
    }
}

std::string Newest::text(uint64_t from) const {
    const uint64_t skipped = seen - json.size(), at = std::clamp(from, skipped, seen) - skipped;
    return json_list(std::ranges::subrange(json.begin() + ptrdiff_t(at), json.end()),
                     [](const std::string& value) { return std::string_view(value); });
}

History History::whole() {
    constexpr size_t kEvery = SIZE_MAX / 4;
    History history;
    for (const auto& [name, table] : kTables) (history.*table).most = kEvery;
    for (Newest* newest : {&history.samples, &history.marks}) newest->most = kEvery;
    for (Newest* newest : {&history.samples, &history.marks, &history.health}) newest->most_bytes = kEvery;
    return history;
}

uint64_t History::generation() const {
    uint64_t sum = 0;
    for (const auto& [name, table] : kTables) sum += (this->*table).generation;
    for (const auto& [name, columns] : tasks) sum += columns.generation;
    return sum;
}

void History::mark(const MetricsRow& row, const char* kind, const std::string& text) {
    marks.add(JsonObject().add("step", row.number("step")).add("kind", kind).add("text", text).str());
}

// ---------------------------------------------------------------------------------------------------------
// train rows, most of which are only counted

// The number behind "ms":, looked for where the row before had it. NaN: none.
static double ms_of(std::string_view line, size_t& hint) {
    constexpr std::string_view kKey = "\"ms\":";
    size_t at = line.find(kKey, hint > 16 ? hint - 16 : 0);
    if (at == line.npos) at = line.find(kKey);
    double value = NAN;
    if (at == line.npos) return value;
    hint = at;
    const auto read = std::from_chars(line.data() + at + kKey.size(), line.data() + line.size(), value);
    return read.ec == std::errc() ? value : NAN;
}

void History::keep_train(const MetricsRow& row) {
    const double step = row.number("step");
    if (!std::isfinite(step)) {                 // no chart has a place for the row
        damaged++;
        return;
    }
    if (step < first_step || step > last_step) return;
    std::vector<Measured> kept = row.numbers;
    kept.emplace_back("seconds", seconds);
    train.add(kept);
    if (row.number("skipped") > 0)
        mark(row, "skipped", fmt::format("step {} was skipped: its loss or gradient was not finite", step));
    metrics.set("train", row.numbers);
}

void History::count_train(double took) {
    train.seen++;
    ended = false;
    if (!(took >= 0)) return;
    ms = took;
    seconds += 1e-3 * took;
}

void History::train_line(std::string_view line, bool keep) {
    const bool skipped = line.ends_with("\"skipped\":true}");
    count_train(ms_of(line, ms_at_));
    if (skipped) metrics.at("skips", "steps") += 1;
    MetricsRow row;
    if (!keep && !skipped) return;
    if (read_metrics_row(line, row)) keep_train(row);
    else damaged++;
}

// ---------------------------------------------------------------------------------------------------------
// other rows

void History::begun(const MetricsRow& row) {
    start = to_text(row.json);
    ended = false;
    metrics.set("start", row.numbers);
    if (row.event != "resume") return note_memory(row);
    mark(row, "restart", fmt::format("resumed at {}", row.number("step")));
}

void History::score(const MetricsRow& row) {
    const std::string name(row.text("task"));
    if (name.empty() || (!tasks.contains(name) && tasks.size() >= kMostTasks)) return;
    tasks.try_emplace(name, train.most).first->second.take(row.numbers);
}

// The row start has no step, and only a plan.
void History::note_memory(const MetricsRow& row) {
    const double step = row.number("step"), peak = row.number("peak_bytes");
    const double plan = metrics.at("start", "plan_bytes");
    if (!(peak > 0 || plan > 0)) return;
    const Measured used[] = {{"step", step > 0 ? step : 0}, {"peak_bytes", peak}, {"plan_bytes", plan}};
    memory.take(used);
}

// "spike: norm 14.2, z 8.1; first moved: h.3.fcw (z 9.7 at step 1230)"
static std::string spike_text(const MetricsRow& row) {
    std::string text = fmt::format("spike: {} {:.4g}, z {:.1f}", row.text("of"), row.number("value"),
                                   row.number("z"));
    if (const auto first = row.text("first"); !first.empty())
        text += fmt::format("; first moved: {} (z {:.1f} at step {})", first, row.number("first_z"),
                            row.number("first_step"));
    return text;
}

static std::string rollback_text(const MetricsRow& row) {
    return fmt::format("rollback from step {} to step {}, {} steps of data left out", row.number("step"),
                       row.number("to"), row.number("skipped"));
}

void History::other(const MetricsRow& row) {
    const bool needs_no_step = row.event == "start" || row.event == "done";
    if (row.event.empty() || !(needs_no_step || std::isfinite(row.number("step")))) {
        damaged++;
        return;
    }
    if (row.event == "train") {                 // written by others, with blanks say
        count_train(row.number("ms"));
        keep_train(row);
    } else if (row.event == "start" || row.event == "resume") begun(row);
    else if (row.event == "task") score(row);
    else if (row.event == "val") {
        val.take(row.numbers);
        metrics.set("val", row.numbers);
    }
    else if (row.event == "memory") note_memory(row);
    else if (row.event == "spike") mark(row, "spike", spike_text(row));
    else if (row.event == "rollback") mark(row, "rollback", rollback_text(row));
    else if (row.event == "comm") comm.take(row.numbers);
    else if (row.event == "sample")
        samples.add(JsonObject().add("step", row.number("step")).add("text", row.text("text")).str());
    else if (row.event == "health" || row.event == "grad_norms") health.add(to_text(row.json));
    else if (row.event == "done") {
        ended = true;
        note_memory(row);
    }
}

void History::note_place(uint64_t offset) {
    constexpr uint64_t kApart = 1 << 20;
    if (!places.empty() && offset < places.back().offset + kApart) return;
    const std::vector<double>* const steps = train.find("step");
    places.push_back({steps && !steps->empty() ? steps->back() : -INFINITY, offset, seconds});
}

void History::feed(std::string_view lines, uint64_t offset, uint64_t every) {
    note_place(offset);
    const auto last_of_all = lines.rfind(kTrainRow);
    for (size_t begin = 0; begin < lines.size();) {
        const size_t end = std::min(lines.find('\n', begin), lines.size());
        const std::string_view line = lines.substr(begin, end - begin);
        if (line.starts_with(kTrainRow)) {
            train_line(line, train.seen % every == 0 || begin == last_of_all);
        } else if (MetricsRow row; read_metrics_row(line, row)) other(row);
        else damaged++;
        begin = end + 1;
    }
}

}  // namespace watch
