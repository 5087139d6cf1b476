// Rows and lines about ranks that were lost (run.elastic).
#include <algorithm>
#include <cmath>
#include <utility>

#include "llmc/base/console.h"
#include "llmc/base/json/json.h"
#include "llmc/base/progress.h"
#include "llmc/comm/agents/member.h"
#include "llmc/train/log/log.h"

inline namespace logs {

// Ranks were lost, or have come, and training goes on behind this step.
void RunLog::regroup(int64_t step) {
    const GroupPlan& plan = member()->plan;
    regroup_ = {.from = step, .lost_at = start_ - std::max(0.0, plan.head.seconds), .pending = true};
    for (const LostRank& l : plan.losses) {
        const std::string host = word_text(l.host), what = word_text(l.cause);
        const std::string cause = l.corrupt ? "had other bits than its replicas: " + what : what;
        if (l.corrupt) corrupt(step, l.rank, host, what);
        write(JsonLine("lost").add("step", step).add("rank", l.rank).add("host", host).add("cause", cause)
                  .str());
        print_event("lost", fmt::format("rank {} on {} {}", l.rank, host, cause));
    }
    fflush(stdout);
}

// With the first step of a generation.
void RunLog::end_regroup() {
    if (!std::exchange(regroup_.pending, false)) return;
    const PlanHead& plan = member()->plan.head;
    const double seconds = std::round((seconds_now() - regroup_.lost_at) * 1e3) / 1e3;
    write(JsonLine("regroup").add("step", regroup_.from).add("generation", plan.generation)
              .add("world", plan.world).add("seconds", seconds).str());
    print_event("regroup", fmt::format("{} go on from step {}, {} after the loss",
                                       counted(plan.world, "rank"), regroup_.from, human_seconds(seconds)));
}

}  // namespace logs
