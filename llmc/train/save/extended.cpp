#include "llmc/train/save/extended.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/console.h"
#include "llmc/base/config/options.h"
#include "llmc/base/files.h"
#include "llmc/train/save/save.h"
#include "llmc/train/step/learning_rate.h"

// Steps of wsd before its decay.
static int64_t before_decay(const OptimizerConfig& o, int64_t steps) {
    const int64_t decay = o.decay ? o.decay : std::max<int64_t>(1, steps / 5);
    return std::max(o.warmup, steps - decay);
}

static std::string better_origin(const std::string& folder, int64_t step, const Config& was,
                                 const Config& now) {
    const int64_t constant = before_decay(was.optimizer, was.train.steps);
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
