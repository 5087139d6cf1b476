#include "llmc/train/log/other_ranks.h"

#include <dirent.h>

#include <algorithm>
#include <memory>

#include "llmc/base/check.h"
#include "llmc/base/json.h"
#include "llmc/train/watch/tail.h"

static constexpr size_t kMostFile = 1 << 20;

// Of the ranks in a file, and of what the file tells of other processes.
static std::vector<MetricsRow> rows_of(const std::string& folder, const std::string& name) {
    const std::string text = text_below(folder, name, kMostFile);
    std::vector<MetricsRow> rows;
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
        MetricsRow row;
        const bool read = read_metrics_row(std::string_view(text).substr(begin, end - begin), row);
        if (read && row.number("beats") >= 0) rows.push_back(row);
    }
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

std::vector<std::string> OtherRanks::other_names() const {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> list(opendir(folder.c_str()), closedir);
    while (const dirent* entry = list ? readdir(list.get()) : nullptr)
        if (const std::string name = entry->d_name; name.ends_with(".json") && name != own)
            names.push_back(name);
    return names;
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
    if (!busy) names = other_names();
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
