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

// What a run reads through a setting, in a checkpoint and now.
namespace {
struct Read { bool known = false, same = false; std::string before = {}, after = {}; };
}  // namespace

// Of tasks, those of both runs alone: a further task changes no other.
static void keep_common(std::vector<FileContent>& files, const std::vector<FileContent>& other) {
    std::erase_if(files, [&](const FileContent& f) {
        return std::none_of(other.begin(), other.end(), [&](const auto& o) { return o.name == f.name; });
    });
}

static Read read_by(const std::string& path, const Contents& before, const Contents& after) {
    const auto was = before.find(path), is = after.find(path);
    if (was == before.end() || is == after.end()) return {};
    std::vector<FileContent> a = was->second, b = is->second;
    if (path == "eval.tasks") {
        keep_common(a, b);
        keep_common(b, a);
    }
    return {true, same_contents(a, b), described(a, b), described(b, a)};
}

// A mixture without the names of its files.
static std::vector<Corpus> weights_of(std::vector<Corpus> corpora) {
    for (Corpus& c : corpora) c.path.clear();
    return corpora;
}

static bool same_weights(const std::string& path, const Config& a, const Config& b) {
    if (path == "data.train") return weights_of(a.data.train) == weights_of(b.data.train);
    return path != "data.val" || weights_of(a.data.val) == weights_of(b.data.val);
}

SettingsDiff settings_diff(const Config& saved, const Config& now, const Contents& contents_before,
                           const Contents& contents_after) {
    Config a = saved, b = now;
    const std::vector<Field> before = fields(a), after = fields(b);
    std::vector<std::vector<std::string>> rows = {{"", "checkpoint", "now", "effective"}};
    SettingsDiff diff;
    for (size_t i = 0; i < after.size(); i++) {
        const Field& f = after[i];
        std::string old = value_json(before[i].value), value = value_json(f.value);
        const Read read = read_by(f.path(), contents_before, contents_after);
        const bool other_files = read.known && !read.same;
        if (!is_shown(f) || (old == value && !other_files)) continue;
        if (other_files) {
            old += ": " + read.before;
            value += ": " + read.after;
        }
        const auto& allowed = now.checkpoint.override_;
        const bool same_data = read.same && same_weights(f.path(), saved, now);
        const bool free = same_data || (!other_files && !changes_math(f, saved, now)) ||
                          std::find(allowed.begin(), allowed.end(), f.path()) != allowed.end();
        rows.push_back({"  " + f.path(), old, value, free ? value : "refused"});
        if (free) continue;
        constexpr size_t kLong = 40;
        diff.refused += (diff.refused.empty() ? "" : ", ") + ("\"" + f.path() + "\"");
        diff.changes += (diff.changes.empty() ? "" : ", ") + f.path();
        if (other_files) diff.changes += ": other contents";
        else if (old.size() + value.size() <= kLong) diff.changes += " " + old + " -> " + value;
    }
    if (rows.size() > 1) diff.table = table(rows, "llll");
    return diff;
}
