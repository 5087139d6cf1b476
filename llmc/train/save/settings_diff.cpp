#include "llmc/train/save/settings_diff.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "llmc/base/config/fields.h"
#include "llmc/base/config/options.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/train/save/save.h"
#include "llmc/train/step/learning_rate.h"

inline namespace saves {

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
    return path == "run.seed" || path == "run.precision" || path == "run.products" ||
           path == "train.batch_tokens";
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

// What becomes of the checkpoint's state where its types change; empty: nothing.
static std::string change_of_state(const Config& saved, const Config& now) {
    const OptimizerConfig &was = saved.optimizer, &is = now.optimizer;
    std::string text;
    if (saved.train.steps == 0 || now.train.steps == 0) return text;
    if (was.state != is.state)
        text += fmt::format("  the checkpoint's moments {}\n", is.state == StateDtype::Bf16
                            ? "are rounded to the nearest bf16" : "begin as they are, in bf16");
    if (was.master != is.master)
        text += is.master ? "  the checkpoint has no masters: they begin as its bf16 weights\n"
                          : "  the checkpoint's masters are not read: its bf16 weights go on\n";
    return text;
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
    if (rows.size() > 1) diff.table = table(rows, "llll") + change_of_state(saved, now);
    return diff;
}

// ---------------------------------------------------------------------------------------------------------
// another number of steps

static std::string better_origin(const std::string& folder, int64_t step, const Config& was,
                                 const Config& now) {
    const int64_t constant = steps_before_decay(was.optimizer, was.train.steps);
    if (step <= constant) return "";
    const std::string run = parent_directory(folder);
    std::vector<int64_t> steps = saved_steps(posix_disk(), run);
    std::erase_if(steps, [&](int64_t s) { return s > constant; });
    const std::string decayed = fmt::format("      The decay of wsd began after step {}", grouped(constant));
    if (steps.empty())
        return decayed + ", and no checkpoint from before it is left (checkpoint.keep_every keeps some)\n";
    return decayed + fmt::format(": better go on from before it, in another folder:\n      "
                                 "--checkpoint.resume={} --run.dir={}\n",
                                 for_shell(fmt::format("{}/step_{}", run, steps.back())),
                                 for_shell(now.run.dir + "_2"));
}

std::string jump_of_learning_rate(const std::string& folder, int64_t step, const Config& was,
                                  const Config& now) {
    if (!step || !now.train.steps || !was.train.steps || now.train.steps == was.train.steps) return "";
    const int64_t last = was.train.steps - 1;
    const double before = learning_rate(was.optimizer, was.train.steps, step - 1);
    const double expected = learning_rate(was.optimizer, was.train.steps, std::min(step, last));
    const double after = learning_rate(now.optimizer, now.train.steps, step);
    if (step >= now.train.steps || std::abs(after - expected) <= 0.01 * was.optimizer.lr) return "";
    const bool wsd = was.optimizer.schedule == LrSchedule::Wsd;
    return fmt::format("note: train.steps = {} instead of {}: the learning rate goes from {:.3g} (step {}) "
                       "to {:.3g} (step {})\n{}", now.train.steps, was.train.steps, before, step, after,
                       step + 1, wsd ? better_origin(folder, step, was, now) : "");
}

}  // namespace saves
