#include "llmc/comm/clocks.h"

#include <algorithm>
#include <limits>
#include <vector>

inline namespace comm {

static constexpr size_t kRounds = 16;

// Rank 0 enters a round at a and leaves at b by its clock, this rank at c and d by its own. With the offset o
// between the clocks, a <= d - o and c - o <= b: c - b <= o <= d - a.
ClockOffset clock_offset(const Axis& world, const std::function<double()>& clock) {
    if (world.size == 1) return {};
    const size_t ranks = size_t(world.size);
    std::vector<double> own(2 * kRounds), all(ranks * own.size());
    world.barrier();
    for (size_t k = 0; k < kRounds; k++) {
        const double entered = clock();
        world.all_gather(all.data(), &entered, 1);
        own[2 * k] = entered;
        own[2 * k + 1] = clock();
    }
    world.all_gather(all.data(), own.data(), own.size());
    double low = -std::numeric_limits<double>::infinity(), high = -low;
    for (size_t k = 0; k < kRounds; k++) {
        low = std::max(low, own[2 * k] - all[2 * k + 1]);
        high = std::min(high, own[2 * k + 1] - all[2 * k]);
    }
    if (low <= 0 && 0 <= high) return {};
    return {.offset = (low + high) / 2, .error = (high - low) / 2};
}

}  // namespace comm
