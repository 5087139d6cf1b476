// A rank with a GPU, over NCCL.
#pragma once
#include "llmc/comm/launch/run_rank.h"
#include "llmc/comm/transport/nccl.h"

inline namespace launching {

// What ranks tell each other before NCCL connects them; rank 0's id is the job's, or its generation's.
struct GpuGreeting {
    Placement placement;
    NcclId id;
    int64_t generation;             // run.elastic; else 0
};
GpuGreeting own_greeting(int rank);
Placements placements_of(const std::vector<GpuGreeting>& all);

// Throws Lost where one of them is of another generation than this rank.
void check_generation(const std::vector<GpuGreeting>& all);

// Connects the rank, runs body on it and ends its communicators.
int run_gpu_rank(const Config& cfg, RankMesh& ranks, Placements placements, const NcclId& id,
                 const RankBody& body);

}  // namespace launching
