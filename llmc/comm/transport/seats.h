// Where the ranks of a job are: hosts, cores, GPUs.
#pragma once
#include <sched.h>

#include <vector>

#include "llmc/base/config/config.h"

// What a rank tells all others of where it is; bytes that are sent as they are.
struct Seat {
    static constexpr int kMostGpus = 16;
    char host[64];
    cpu_set_t cores;
    int gpus;                       // that the rank sees; 0: they are none of its business
    int processors;                 // of the smallest of them
    char address[kMostGpus][16];    // of each, on the bus
};
Seat own_seat(bool with_gpus);

int ranks_of_host(const std::vector<Seat>& seats, const Seat& own);
// The cores that the ranks of this host have, divided by these ranks.
int threads_of_rank(const std::vector<Seat>& seats, const Seat& own);

// The rank's number on its host is its GPU's, among those that it sees; 0 where it sees but one.
int device_of(const std::vector<Seat>& seats, int rank);
// Ends in exit code 78 where a rank has no GPU, or not one of its own.
void check_devices(const std::vector<Seat>& seats);

// rank -> host -> device -> coordinates
void print_table(const Config& cfg, const std::vector<Seat>& seats);
