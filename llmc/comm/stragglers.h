// Which ranks are slow, judged by the own times of all ranks: the seconds of each step that a rank did not
// wait for other ranks. Who waits for a slow rank has a short own time, and is not blamed.
#pragma once
#include <span>
#include <vector>

inline namespace comm {

struct Straggler { int rank; double factor; };      // factor: own time over the median's, in the slow steps

// A step of a rank is slow where the rank's own time is over kFactor times the median of the ranks that do
// the same work. A rank is slow after kSteps slow steps in a row that took kSeconds or more together. kSteps:
// another process or a slow disk makes a few steps slow. kSeconds: a busy machine slows many short steps.
struct Stragglers {
    static constexpr double kFactor = 1.5, kSeconds = 2;
    static constexpr int kSteps = 20;

    // work: a number for each rank, equal for ranks that do the same work in a step: its pipeline stage.
    explicit Stragglers(std::vector<int> work);

    // Takes the own times of all ranks in a step, and returns the ranks that have become slow with it: each
    // once, until it has kept up for kSteps steps. No times: nothing is judged.
    std::vector<Straggler> add(std::span<const double> seconds);

private:
    struct Slow { int steps = 0, calm = 0; double own = 0, median = 0; bool named = false; };
    std::vector<int> work_;
    std::vector<Slow> ranks_;
};

// For each rank the median own time of the ranks that do its work: of an even number the mean of the middle
// two, of two ranks the faster. 0: the rank is alone.
std::vector<double> medians_of_work(std::span<const double> seconds, std::span<const int> work);

}  // namespace comm
