#include "llmc/train/log/other_ranks.h"

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"
#include "llmc/train/watch/ranks.h"
#include "llmc/train/watch/tail.h"

inline namespace logs {

static std::vector<MetricsRow> rows_of(const std::string& folder, const std::string& name) {
    std::vector<MetricsRow> rows;
    each_rank(folder, name, [&](const MetricsRow& row) {
        if (row.number("beats") >= 0) rows.push_back(row);
    });
    return rows;
}

static const MetricsRow* find(const std::vector<MetricsRow>& rows, std::string_view event) {
    const auto row = std::ranges::find(rows, event, &MetricsRow::event);
    return row == rows.end() ? nullptr : &*row;
}

std::string OtherRanks::told(const ProgressPage& page) const {
    return JsonLine("others").add("beats", uint64_t(page.others)).add("silent", silent_).str();
}

bool OtherRanks::progressed(const std::string& name, const std::vector<MetricsRow>& rows) {
    double beats = 0;
    for (const MetricsRow& row : rows) beats += row.number("beats");
    const auto [was, is_new] = beats_.try_emplace(name, beats);
    const bool more = beats > was->second;
    was->second = beats;
    return more && !is_new;
}

// Reads every file, so that each rank's earlier progress counts once.
bool OtherRanks::progressed(const std::vector<std::string>& names) {
    busy_ = "";
    for (const std::string& name : names)
        if (progressed(name, rows_of(folder, name))) busy_ = name;
    return !busy_.empty();
}

static std::string name_of_first(const std::string& folder, const std::string& name) {
    const std::vector<MetricsRow> rows = rows_of(folder, name);
    const MetricsRow* const rank = find(rows, "rank");
    return rank ? fmt::format("rank {} on {}", rank->number("rank"), rank->text("host")) : "";
}

// True: progress.
bool OtherRanks::find_progress() {
    const int64_t newest = file_state(folder + "/" + own).changed;
    if (first_ == 0) first_ = newest;
    int64_t oldest = newest - int64_t(3e9 * period);
    const std::string teller(kTeller);
    if (!tells() && file_state(folder + "/" + teller).changed >= oldest) {
        const std::vector<MetricsRow> rows = rows_of(folder, teller);
        if (const MetricsRow* const others = find(rows, "others")) silent_ = others->text("silent");
        return progressed(teller, rows);
    }
    std::vector<std::string> names;
    const bool busy = !busy_.empty() && progressed(busy_, rows_of(folder, busy_));
    if (!busy) names = files_of_ranks(folder);
    std::erase(names, own);
    if (busy || progressed(names)) return true;
    std::string silent;
    for (const std::string& name : names) {
        const int64_t changed = file_state(folder + "/" + name).changed;
        if (changed < first_ || changed >= oldest) continue;    // of an earlier run; written lately
        silent = name;
        oldest = changed;
    }
    if (!silent.empty()) silent_ = name_of_first(folder, silent);
    return false;
}

void OtherRanks::look(ProgressPage& page) {
    silent_ = "";
    if (find_progress()) page.others++;
    page.silent_other = silent_.c_str();
}

}  // namespace logs
