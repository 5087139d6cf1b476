// Room comm/transport: moves the messages of ranks: threads of a process, MPI, NCCL, TCP. comm/launch calls
// it to connect ranks, collectives through the table of functions in comm/group.h.
// The room knows bytes, hosts and GPUs. It knows no model, and not who started the ranks.
//
// Where the ranks of a job are: hosts, cores, GPUs.
#pragma once
#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"

inline namespace transport {

// Location of a rank, exchanged between ranks as raw bytes.
struct Placement {
    static constexpr int kMostGpus = 16;
    char host[64];                  // or NCCL_HOSTID: processes on one GPU can be hosts of their own
    char boot[40];                  // id of the host's boot: tells hosts of the same name apart
    cpu_set_t cores;
    int host_cores;                 // cores that the launcher can give to the host's ranks; 0: unknown
    int gpus;                       // visible to the rank; 0 in a CPU run
    int held;                       // 1 + number of the GPU that this process uses already; 0: none
    int processors;                 // streaming multiprocessors (SMs) of the smallest visible GPU
    uint64_t shared_memory;         // bytes of /dev/shm; 0: unknown
    char address[kMostGpus][16];    // of the GPUs, on the bus
};
using Placements = std::vector<Placement>;       // by rank
Placement own_placement(bool with_gpus);

// The ranks by host: found once for all ranks, as jobs have thousands.
struct Hosts {
    struct Host {
        int ranks = 0;
        cpu_set_t cores = {};       // of all of them
        bool own_lists = false;     // its ranks see different GPUs
    };
    std::vector<Host> hosts;
    std::vector<int> of_rank;       // place in `hosts`
    std::vector<int> device;        // of each rank: number of its GPU among those that the rank sees
    std::vector<int> sharing;       // ranks of the host that see the same GPUs as this rank

    const Host& host(int rank) const { return hosts[size_t(of_rank[size_t(rank)])]; }
};
Hosts hosts_of(const Placements& placements);
inline thread_local int64_t placements_compared = 0;     // by hosts_of(); tests count

// Cores of this host's ranks, divided by the number of the ranks.
int threads_of_rank(const Placements& placements, const Hosts& hosts, int rank);

// Exit code 78 if a rank has no GPU of its own.
void check_devices(const Placements& placements, const Hosts& hosts);

// Binds the calling thread to the cores beside its rank's GPU, and notes the cores of all ranks of this host.
// root: a folder in place of the root, for tests.
void bind_to_gpu(Placements& placements, const Hosts& hosts, int rank, const std::string& root = "");

// Placements that cost speed, or end NCCL: a line each.
std::vector<std::string> placement_warnings(const Config& cfg, const Placements& placements,
                                            const Hosts& hosts);

// rank -> host -> device -> coordinates
void print_table(const Config& cfg, const Placements& placements, const Hosts& hosts);

}  // namespace transport
