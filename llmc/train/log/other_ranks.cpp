#include "llmc/train/log/other_ranks.h"

#include <dirent.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/train/watch/metrics_row.h"
#include "llmc/train/watch/tail.h"

static constexpr size_t kMostFile = 1 << 20;

static std::vector<MetricsRow> rows_of(const std::string& folder, const std::string& name) {
    const std::string text = text_below(folder, name, kMostFile);
    std::vector<MetricsRow> rows;
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
        MetricsRow row;
        const bool read = read_metrics_row(std::string_view(text).substr(begin, end - begin), row);
        if (read && row.event == "rank" && row.number("beats") >= 0) rows.push_back(row);
    }
    return rows;
}

bool OtherRanks::progressed(const std::string& name) {
    double beats = 0;
    for (const MetricsRow& row : rows_of(folder, name)) beats += row.number("beats");
    const auto [was, is_new] = beats_.try_emplace(name, beats);
    const bool more = beats > was->second;
    was->second = beats;
    return more && !is_new;
}

static std::string name_of_first(const std::string& folder, const std::string& name) {
    const std::vector<MetricsRow> rows = rows_of(folder, name);
    if (rows.empty()) return "";
    return fmt::format("rank {} on {}", rows[0].number("rank"), rows[0].text("host"));
}

void OtherRanks::look(ProgressPage& page) {
    const int64_t newest = file_state(folder + "/" + own).changed;
    if (first_ == 0) first_ = newest;
    std::vector<std::string> names;
    if (!busy_.empty()) names.push_back(busy_);
    const std::unique_ptr<DIR, int (*)(DIR*)> list(opendir(folder.c_str()), closedir);
    while (const dirent* entry = list ? readdir(list.get()) : nullptr)
        if (const std::string name = entry->d_name; name.ends_with(".json") && name != own)
            names.push_back(name);
    const auto busy = std::ranges::find_if(names, [&](const std::string& name) { return progressed(name); });
    page.silent_other = "";
    if (busy != names.end()) {
        busy_ = *busy;
        page.others++;
        return;
    }
    int64_t oldest = newest - int64_t(3e9 * period);
    for (const std::string& name : names) {
        const int64_t changed = file_state(folder + "/" + name).changed;
        if (changed < first_ || changed >= oldest) continue;    // of an earlier run; written lately
        page.silent_other = name_of_first(folder, name).c_str();
        oldest = changed;
    }
}
