// Own times of ranks at random: who is slow is named once, and nobody else ever is.
#include "llmc/comm/stragglers.h"

#include <numeric>

#include "llmc/base/numbers/rng.h"
#include "test/test.h"

using std::vector;

namespace {

struct World {
    uint64_t seed;
    int ranks, stages;
    uint64_t drawn = 0;

    explicit World(uint64_t s)
        : seed(s), ranks(2 + int(uniform() * 7)), stages(ranks % 2 ? 1 : 1 + int(uniform() * 2)) {}
    double uniform() { return (philox(seed, 1, drawn++).x[0] + 0.5) / 4294967296.0; }
    int stage(int rank) const { return rank % stages; }
    vector<int> work() const {
        vector<int> of;
        for (int r = 0; r < ranks; r++) of.push_back(stage(r));
        return of;
    }
    // Stages differ by design, ranks of a stage by a tenth either way.
    vector<double> step() {
        vector<double> seconds;
        for (int r = 0; r < ranks; r++) seconds.push_back((0.2 + 0.5 * stage(r)) * (0.9 + 0.2 * uniform()));
        return seconds;
    }
    bool alone() const { return ranks == stages; }
};

}  // namespace

// Single slow steps of any rank, up to 19 in a row, and steps in which all are slow, are no alarm.
TEST(a_few_slow_steps_are_no_alarm) {
    for (uint64_t seed = 0; seed < 300; seed++) {
        World world(seed);
        Stragglers judge(world.work());
        int victim = 0, left = 0;
        for (int step = 0; step < 400; step++) {
            vector<double> seconds = world.step();
            if (left == 0 && world.uniform() < 0.1) {
                victim = int(world.uniform() * world.ranks);
                left = 1 + int(world.uniform() * (Stragglers::kSteps - 1));
            } else if (left > 0) {
                seconds[size_t(victim)] *= 10;
                left--;
            }
            if (left == 0 && world.uniform() < 0.05) for (double& s : seconds) s *= 20;
            for (const Straggler& s : judge.add(seconds))
                EXPECT(false, "seed %lu: rank %d in step %d", long(seed), s.rank, step);
        }
    }
}

TEST(a_slow_rank_is_named_once_with_its_factor) {
    int named = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        World world(seed);
        Stragglers judge(world.work());
        const int slow = int(world.uniform() * world.ranks), from = int(world.uniform() * 50);
        const double factor = 2 + 4 * world.uniform();
        vector<int> steps;
        for (int step = 0; step < 200; step++) {
            vector<double> seconds = world.step();
            if (step >= from) seconds[size_t(slow)] *= factor;
            for (const Straggler& s : judge.add(seconds)) {
                steps.push_back(step);
                EXPECT(s.rank == slow && std::abs(s.factor / factor - 1) < 0.15, "seed %lu: rank %d by %g",
                       long(seed), s.rank, s.factor);
            }
        }
        const size_t expected = world.ranks == 2 && world.stages == 2 ? 0 : 1;
        EXPECT(steps.size() == expected && (steps.empty() || steps[0] == from + Stragglers::kSteps - 1),
               "seed %lu, %d ranks, %d stages: %zu times", long(seed), world.ranks, world.stages,
               steps.size());
        named += int(steps.size());
    }
    EXPECT(named > 200, "%d of 300", named);
}

// Another stage may do more work than the median of all ranks.
TEST(ranks_are_compared_with_those_of_their_stage) {
    Stragglers judge({0, 0, 0, 1});
    for (int step = 0; step < 100; step++)
        EXPECT(judge.add(vector<double>{0.5, 0.5, 0.5, 5.0}).empty(), "step %d", step);
    const vector<double> medians = medians_of_work(vector<double>{3, 1, 9, 2}, vector<int>{0, 0, 1, 0});
    EXPECT(medians == (vector<double>{2, 2, 0, 2}), "medians of three ranks, and of one");
    EXPECT(medians_of_work(vector<double>{3, 1}, vector<int>{0, 0})[0] == 1, "of two ranks the faster");
}

// The scheduler of a machine with more ranks than cores makes steps of milliseconds slow in any number.
TEST(short_steps_need_more_of_them) {
    Stragglers judge({0, 0, 0});
    int step = 1;
    while (judge.add(vector<double>{0.001, 0.01, 0.001}).empty() && step < 10000) step++;
    EXPECT(step == 200, "named after %d steps of 10 ms", step);
    EXPECT(judge.add({}).empty(), "no times");
}

// Who has kept up for a while and falls back is named again.
TEST(a_rank_that_is_slow_again_is_named_again) {
    Stragglers judge({0, 0, 0});
    int named = 0;
    const auto steps = [&](int count, double seconds) {
        for (int i = 0; i < count; i++) named += int(judge.add(vector<double>{1, seconds, 1}).size());
    };
    steps(30, 2);
    steps(Stragglers::kSteps - 1, 1);
    steps(30, 2);
    EXPECT(named == 1, "%d times, with a pause that is too short", named);
    steps(Stragglers::kSteps, 1);
    steps(30, 2);
    EXPECT(named == 2, "%d times", named);
}
