#include "llmc/train/explore/drawing.h"

#include <algorithm>
#include <set>

inline namespace explorer {

// Rows that a reader can tell apart, and what a browser draws at once.
static constexpr size_t kMostStages = 16, kFewestStages = 3, kMostSpans = 8000;

static std::set<int> chosen_stages(const DrawnStep& step) {
    const int stages = int(step.stages.size());
    std::set<int> chosen = {step.busiest};
    const size_t spans = step.stages[size_t(step.busiest)].size();
    const int rows = std::min(stages, int(std::clamp(kMostSpans / spans, kFewestStages, kMostStages)));
    for (int i = 0; i < rows; i++) chosen.insert(rows == 1 ? 0 : int(int64_t(i) * (stages - 1) / (rows - 1)));
    return chosen;
}

static Json json_of(const DrawnSpan& s) {
    return Json::List{std::string(1, char(s.kind)), s.chunk, s.micro, s.begin, s.end};
}

Json json_of(const DrawnStep& step) {
    Json::List rows;
    for (const int s : chosen_stages(step)) {
        Json::List spans;
        for (const DrawnSpan& span : step.stages[size_t(s)]) spans.push_back(json_of(span));
        rows.push_back(Json::Members{{"stage", s}, {"waits", step.waits[size_t(s)]}, {"spans", spans}});
    }
    return Json::Members{{"stages", rows},
                         {"of_stages", int(step.stages.size())},
                         {"busiest", step.busiest},
                         {"seconds", step.seconds},
                         {"micros_left_out", step.micros_left_out},
                         {"cut", step.cut},
                         {"seconds_left_out", step.seconds_left_out}};
}

Json json_of(const Machine& machine) {
    Machine m = machine;
    Json::Members members;
    m.visit([&]<class T>(const char* key, const T& value) {
        constexpr bool for_prices = std::is_same_v<T, ReachedBy> || std::is_same_v<T, AttentionShares>;
        if constexpr (!for_prices) members.emplace_back(key, value);
    });
    return members;
}

}  // namespace explorer
