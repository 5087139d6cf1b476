// Where the ranks of a job are: hosts, cores, GPUs.
#pragma once
#include <sched.h>

#include <vector>

#include "llmc/base/config/config.h"

// Location of a rank, exchanged between ranks as raw bytes.
struct Placement {
    static constexpr int kMostGpus = 16;
    char host[64];
    cpu_set_t cores;
    int gpus;                       // visible to the rank; 0 in a CPU run
    int processors;                 // streaming multiprocessors (SMs) of the smallest visible GPU
    char address[kMostGpus][16];    // of each, on the bus
};
using Placements = std::vector<Placement>;       // by rank
Placement own_placement(bool with_gpus);

int ranks_of_host(const Placements& placements, const Placement& own);
// Cores of this host's ranks, divided by the number of the ranks.
int threads_of_rank(const Placements& placements, const Placement& own);

// The rank's number on its host is the number of its GPU among the visible GPUs; 0 if only one is visible.
int device_of(const Placements& placements, int rank);
// Exit code 78 if a rank has no GPU of its own.
void check_devices(const Placements& placements);

// rank -> host -> device -> coordinates
void print_table(const Config& cfg, const Placements& placements);
