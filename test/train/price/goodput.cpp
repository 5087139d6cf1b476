// Goodput: the formula against a run simulated failure by failure, and the best interval against all others.
#include <random>

#include "llmc/train/price/goodput.h"
#include "test/test.h"

// 8 GPUs of a node write 40 GB in 8 s, after a copy of 0.1 s; a failure each 3 hours.
static const Machine kMachine = [] {
    Machine m;
    m.host_gbs = 50, m.disk_gbs = 5, m.gpus_per_node = 8;
    m.failure_hours = 24, m.restart_seconds = 300;
    return m;
}();
static const LongRun kRun = {
    .ranks = 8, .steps = 1'000'000, .step_seconds = 2, .saved_bytes = 5'000'000'000};

// The share of useful time in a run whose failures come at random. A checkpoint counts when its write has
// ended.
static double simulated(const LongRun& run, const Machine& m, int64_t every) {
    std::mt19937_64 random(1);
    const double between = 3600 * m.failure_hours / run.ranks, bytes = double(run.saved_bytes);
    const double copy = bytes / (1e9 * m.host_gbs), write = copy + bytes * run.ranks / (1e9 * m.disk_gbs);
    std::exponential_distribution<double> until_failure(1 / between);
    double clock = 0, kept = 0;                 // useful seconds that a restart finds
    for (int failures = 0; failures < 20000; failures++) {
        const double life = until_failure(random), interval = double(every) * run.step_seconds;
        const double on_disk = life - (run.async ? write - copy : 0);       // what began later is lost
        const double round = interval + (run.async ? copy : write);
        kept += interval * std::max(0.0, std::floor(on_disk / round));
        clock += life + m.restart_seconds;
    }
    return kept / clock;
}

// Offloaded state is written while a step is computed, and copied nowhere.
TEST(offloaded_state_halts_training_for_what_a_step_does_not_hide) {
    LongRun run = kRun;
    run.offloaded_bytes = run.saved_bytes - 1'000'000'000;
    const double copy = 1.0 / kMachine.host_gbs, write = 5.0 * run.ranks / kMachine.disk_gbs;
    const auto halt = [&] { return goodput(run, kMachine, 100).checkpoints * 100 * run.step_seconds; };
    EXPECT_NEAR(halt(), copy + write - run.step_seconds, 1e-9);
    run.step_seconds = 2 * write;
    EXPECT_NEAR(halt(), copy, 1e-9);
}

TEST(the_formula_is_that_of_a_simulated_run) {
    for (const bool async : {true, false})
        for (const int64_t every : {20, 100, 300}) {
            LongRun run = kRun;
            run.async = async;
            const double formula = goodput(run, kMachine, every).share();
            EXPECT_NEAR(formula, simulated(run, kMachine, every), 0.01);
        }
}

TEST(the_best_interval_loses_least) {
    for (const bool async : {true, false})
        for (const int ranks : {8, 64}) {
            LongRun run = kRun;
            run.async = async, run.ranks = ranks;
            const int64_t best = best_checkpoint_every(run, kMachine);
            const Goodput at_best = goodput(run, kMachine, best);
            EXPECT(double(best) * run.step_seconds >= at_best.write - run.step_seconds, "writes overlap");
            for (int64_t every = 1; every < 3000; every++) {
                if (double(every) * run.step_seconds < at_best.write) continue;
                const double share = goodput(run, kMachine, every).share();
                EXPECT(share <= at_best.share() + 1e-4, "every %lld is better than %lld",
                       static_cast<long long>(every), static_cast<long long>(best));
            }
        }
}

TEST(more_gpus_fail_more_often) {
    LongRun few = kRun, many = kRun;
    many.ranks = 16384;
    const int64_t every = best_checkpoint_every(few, kMachine);
    EXPECT(goodput(few, kMachine, every).share() > goodput(many, kMachine, every).share(), "no difference");
    EXPECT(best_checkpoint_every(many, kMachine) < every, "checkpoints are not nearer together");
}

TEST(without_checkpoints_a_failure_loses_the_run) {
    LongRun run = kRun;
    run.steps = 1000;
    EXPECT_NEAR(goodput(run, kMachine, 0).share(), goodput(run, kMachine, 1000).share(), 0);
    EXPECT(best_checkpoint_every(run, kMachine) <= 1000, "beyond the run");
}

// Against steps of ranks whose times are drawn.
TEST(the_slowest_rank_decides) {
    Machine m = kMachine;
    m.spread = 0.05;
    std::mt19937_64 random(1);
    std::normal_distribution<double> seconds(1, m.spread);
    for (const int ranks : {1, 2, 8, 1000}) {
        LongRun run = kRun;
        run.ranks = ranks;
        double sum = 0;
        constexpr int kSteps = 2000;
        for (int step = 0; step < kSteps; step++) {
            double slowest = 0;
            for (int rank = 0; rank < ranks; rank++) slowest = std::max(slowest, seconds(random));
            sum += slowest;
        }
        EXPECT_NEAR(goodput(run, m, 100).stragglers, sum / kSteps - 1, 0.004);
        EXPECT_NEAR(goodput(run, kMachine, 100).stragglers, 0, 0);
    }
}
