// The section `train` of config.h: batches and steps, and what a run does about steps that go wrong.
#pragma once
#include <cstdint>

#include "llmc/base/config/visit.h"

inline namespace config {

// When a run in trouble goes back to an image of its state, and how far the data go on.
struct RollbackRule {
    int64_t every = 0;              // steps between images; 0: off
    double z = 6;                   // standard deviations; a loss or gradient norm above is trouble
    int64_t steps = 5;              // steps in trouble, one after the other, until the run goes back
    int64_t skip = 50;              // steps of data left out, beside those of the steps taken back
    int64_t most = 3;               // rollbacks of a run
    bool operator==(const RollbackRule&) const = default;

    template <class F> void visit(F&& f) {
        f("every", every);
        f("z", z);
        f("steps", steps);
        f("skip", skip);
        f("most", most);
    }
};

struct TrainConfig {
    int64_t steps = 1000, batch_tokens = 8192;
    int micro_batch = 0;
    int64_t max_skips = 10;
    RollbackRule rollback = {};

    template <class F> void visit(F&& f) {
        f("steps", steps, "optimizer steps; 0: evaluate and sample, and save random weights as step_0",
          range(0, kMany));
        f("batch_tokens", batch_tokens, "tokens of a step, over all ranks", range(1, kMany));
        f("micro_batch", micro_batch, "sequences that a rank computes at once; 0: as many as fit",
          range(0, 1 << 20));
        f("max_skips", max_skips,
          "steps skipped because loss or gradient is not finite; one more ends the run with exit code 77",
          at_least(0));
        f("rollback", rollback, "every: steps between images of the state in memory; 0: off. All ranks go "
          "back to one after so many steps in a row with a loss or gradient norm above z, or where max_skips "
          "are not enough; skip: steps of data left out then; most: rollbacks before exit code 77");
    }
};

}  // namespace config
