#include "llmc/comm/stragglers.h"

#include <algorithm>
#include <map>
#include <utility>

inline namespace comm {

std::vector<double> medians_of_work(std::span<const double> seconds, std::span<const int> work) {
    std::map<int, std::vector<double>> of;
    for (size_t r = 0; r < work.size(); r++) of[work[r]].push_back(seconds[r]);
    std::map<int, double> median;
    for (auto& [number, times] : of) {
        std::sort(times.begin(), times.end());
        const size_t n = times.size(), middle = n / 2;
        if (n == 2) median[number] = times[0];
        else if (n > 2) median[number] = n % 2 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
    }
    std::vector<double> medians;
    for (const int number : work) medians.push_back(median[number]);
    return medians;
}

Stragglers::Stragglers(std::vector<int> work) : work_(std::move(work)), ranks_(work_.size()) {}

std::vector<Straggler> Stragglers::add(std::span<const double> seconds) {
    if (seconds.size() != work_.size()) return {};
    const std::vector<double> medians = medians_of_work(seconds, work_);
    std::vector<Straggler> found;
    for (size_t r = 0; r < ranks_.size(); r++) {
        Slow& s = ranks_[r];
        if (medians[r] <= 0 || seconds[r] <= kFactor * medians[r]) {
            const int calm = s.calm + 1;
            s = {.calm = calm, .named = s.named && calm < kSteps};
            continue;
        }
        s = {.steps = s.steps + 1, .calm = 0, .own = s.own + seconds[r], .median = s.median + medians[r],
             .named = s.named};
        if (s.named || s.steps < kSteps || s.own < kSeconds) continue;
        s.named = true;
        found.push_back({int(r), s.own / s.median});
    }
    return found;
}

}  // namespace comm
