// Processes that know little more of each other than a host's name exchange a few bytes, over TCP through
// rank 0: what a library without a launcher of its own needs before its first message.
//
// Rank 0 listens at the addresses of its own host's name only. Each side shows the other that it knows the
// job's secret without sending it: by HMACs of random numbers that both have drawn. Nothing is encrypted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

struct Rendezvous {
    int rank = 0, world = 1;
    std::string host;                   // of rank 0
    std::vector<uint16_t> ports;        // rank 0 listens at the first that is free; others try all
    std::string job;                    // ranks of other jobs are turned away
    std::string secret;                 // so are all who do not know it; empty: none is needed
    double timeout = 120;               // seconds
    double patience = 5;                // seconds for an answer, before the next port is tried
};

// By the environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them, or Slurm's, or
// mpirun's where all are on one host; TRAIN_GPT_SECRET. Ports other than MASTER_PORT follow from the job's
// name, so that jobs on one host do not meet.
Rendezvous rendezvous_of_environment();

// "gpu[003-006,9],login1" -> "gpu003"
std::string first_host(const std::string& slurm_nodes);

// The texts of all ranks, in their order. Ends in exit code 75, with the ranks that are missing, where they
// do not come in time; in 78 where this rank's secret is not rank 0's.
std::vector<std::string> exchange(const Rendezvous& r, const std::string& own);
