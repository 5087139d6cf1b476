// Room comm/rendezvous: processes find each other over TCP, and exchange a text each.
// Called by comm/transport before ranks are connected. The sockets also serve the pages (train/serve).
// The room knows hosts, ports and secrets. It does not know the meaning of a text, or the mesh.
//
// Rank 0 listens at the addresses of its host's name only. Each side proves its knowledge of the job's secret
// by an HMAC over random numbers of both sides, without sending the secret. Nothing is encrypted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/comm/rendezvous/socket.h"

inline namespace rendezvous {

struct Rendezvous {
    int rank = 0, world = 1;
    std::string host;                   // of rank 0
    std::vector<uint16_t> ports;        // rank 0 listens at the first free port; other ranks try all
    std::string job;                    // ranks of other jobs are turned away
    std::string secret;                 // callers without the secret are turned away; empty: no secret
    double timeout = 120;               // seconds; start_patience()
    double patience = 5;                // seconds for an answer, before the next attempt
};

// By the environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them, or Slurm's, or
// mpirun's on a single host; TRAIN_GPT_SECRET. Ports other than MASTER_PORT follow from the job's
// name, which keeps jobs on one host apart.
Rendezvous rendezvous_of_environment();

// Rank 0 listens at the first of these ports that is free, at its addresses that other ranks can reach. Exit
// code 78 if there is none.
Listeners listen_as_rank_0(const Rendezvous& r, const std::vector<uint16_t>& ports);

// "gpu[003-006,9],login1" -> "gpu003"
std::string first_host(const std::string& slurm_nodes);

// Returns the texts of all ranks, in their order. Exit code 75, with the missing ranks, if ranks do not
// arrive in time; 78 if this rank's secret differs from rank 0's.
std::vector<std::string> exchange(const Rendezvous& r, const std::string& own);

}  // namespace rendezvous
