#include "llmc/train/watch/ranks.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "llmc/base/config/axes.h"
#include "llmc/base/json/json.h"
#include "llmc/train/watch/tail.h"

inline namespace watch {

static constexpr size_t kMostFile = 1 << 20, kMostRanks = 65536;
// Seconds. A process writes every two; in a large job all together write 16 files a second.
static constexpr double kStalePerFile = 3 / 16.;

std::vector<std::string> files_of_ranks(const std::string& folder) {
    std::vector<std::string> names;
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR* const list = fd < 0 ? nullptr : fdopendir(fd);
    while (const dirent* entry = list ? readdir(list) : nullptr)
        if (const std::string name = entry->d_name; name.ends_with(".json")) names.push_back(name);
    if (list) closedir(list);
    return names;
}

void each_rank(const std::string& folder, const std::string& path,
               const std::function<void(const MetricsRow&)>& take) {
    each_metrics_row(text_below(folder, path, kMostFile), take);
}

static std::string rank_json(const MetricsRow& row, double age) {
    const auto tenths = [](double seconds) { return std::round(10 * seconds) / 10; };
    JsonObject place;
    for (const auto& [name, value] : row.numbers)
        if (std::ranges::count(axis_rows, name, &AxisRow::name)) place.add(name, value);
    return JsonObject().add("rank", row.number("rank")).add("host", row.text("host")).add("place", place)
        .add("doing", row.text("doing")).add("step", row.number("step"))
        .add("collective", row.text("collective")).add("wait", row.text("wait"))
        .add("seconds", tenths(row.number("seconds") + age))
        .add("age", tenths(age)).str();
}

std::string read_ranks(const std::string& folder, const std::string& path, double current) {
    std::map<double, std::string> ranks;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::vector<std::string> names = files_of_ranks(folder + "/" + path + "ranks");
    const double stale = std::max(current, kStalePerFile * double(names.size()));
    for (const std::string& name : names) {
        const FileState file = file_state(folder + "/" + path + "ranks/" + name);
        const double age = std::chrono::duration<double>(now).count() - 1e-9 * double(file.changed);
        if (!file.there || age > stale) continue;          // of a process that was killed
        each_rank(folder, path + "ranks/" + name, [&](const MetricsRow& row) {
            const double rank = row.number("rank");
            if (row.event != "rank" || std::isnan(rank) || ranks.size() >= kMostRanks) return;
            ranks[rank] = rank_json(row, std::max(0., age));
        });
    }
    if (ranks.empty()) return "null";
    return json_list(ranks, [](const auto& rank) { return rank.second; });
}

}  // namespace watch
