// Goodput: the share of a long run's time that trains, where GPUs fail and checkpoints are written.
//
//     M     seconds between failures of the job: those of one GPU over the number of GPUs
//     halt  seconds that training waits for a checkpoint
//     write seconds until a checkpoint is on the disk
//     every seconds of training between checkpoints
//
//     lost to checkpoints    halt / every
//     lost to restarts       restart / M
//     work done again        (every / 2 + write) / M
//     lost to stragglers     spread * z
//
// The slowest of n ranks decides. Where their times of a step are independent and normal, the largest is z
// standard deviations above the mean, z = quantile of (n - 3/8) / (n + 1/4) (Blom, Statistical Estimates and
// Transformed Beta-Variables, 1958).
//
// The best interval is sqrt(2 halt M) (Young, "A first order approximation to the optimum checkpoint
// interval", CACM 17, 1974), and at least `write`: a checkpoint ends before the next one begins.
#pragma once
#include <cstdint>

#include "llmc/train/price/cluster.h"

inline namespace price {

struct LongRun {
    int ranks = 1;
    int64_t steps = 0;
    double step_seconds = 0;
    uint64_t saved_bytes = 0;  // of a checkpoint, by the rank that writes most
    uint64_t offloaded_bytes = 0;  // of them, in the host's memory
    bool async = true;         // checkpoint.async
};

struct Goodput {
    double between = 0;  // seconds between failures of the job
    double write = 0;    // seconds until a checkpoint is on the disk
    int64_t every = 0;   // steps between checkpoints; 0: one at the end
    double checkpoints = 0, restarts = 0, repeated = 0, stragglers = 0;  // of a second that trains

    double share() const { return 1 / (1 + checkpoints + restarts + repeated + stragglers); }
};

// every: checkpoint.every.
Goodput goodput(const LongRun& run, const Machine& machine, int64_t every);
int64_t best_checkpoint_every(const LongRun& run, const Machine& machine);

}  // namespace price
