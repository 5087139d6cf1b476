#include "llmc/train/save/settings_diff.h"

#include <algorithm>
#include <vector>

#include "llmc/base/console.h"
#include "llmc/base/config/fields.h"

// Folders, names and frequencies say nothing about the run; they are not worth a row.
static bool is_shown(const Field& f) {
    if (f.section.empty() || f.section == "log") return false;
    const std::string path = f.path();
    return path != "run.dir" && path != "checkpoint.resume" && path != "checkpoint.override" &&
           path != "model.init";
}

static bool changes_math(const Field& f, const Config& saved, const Config& now) {
    if (f.section == "model" || f.section == "data" || f.section == "optimizer") return true;
    const std::string path = f.path();
    const bool trains = saved.train.steps > 0 && now.train.steps > 0;
    if (path == "train.steps") return trains && now.optimizer.schedule != LrSchedule::Constant;
    return path == "run.seed" || path == "run.precision" || path == "train.batch_tokens";
}

SettingsDiff settings_diff(const Config& saved, const Config& now) {
    Config a = saved, b = now;
    const std::vector<Field> before = fields(a), after = fields(b);
    std::vector<std::vector<std::string>> rows = {{"", "checkpoint", "now", "effective"}};
    SettingsDiff diff;
    for (size_t i = 0; i < after.size(); i++) {
        const Field& f = after[i];
        const std::string old = value_json(before[i].value), value = value_json(f.value);
        if (!is_shown(f) || old == value) continue;
        const auto& allowed = now.checkpoint.override_;
        const bool free = !changes_math(f, saved, now) ||
                          std::find(allowed.begin(), allowed.end(), f.path()) != allowed.end();
        rows.push_back({"  " + f.path(), old, value, free ? value : "refused"});
        if (free) continue;
        constexpr size_t kLong = 40;
        diff.refused += (diff.refused.empty() ? "" : ", ") + ("\"" + f.path() + "\"");
        diff.changes += (diff.changes.empty() ? "" : ", ") + f.path();
        if (old.size() + value.size() <= kLong) diff.changes += " " + old + " -> " + value;
    }
    if (rows.size() > 1) diff.table = table(rows, "llll");
    return diff;
}
