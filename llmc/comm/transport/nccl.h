// Ranks with a GPU each, over NCCL: processes, or threads of one process. A build without NCCL has none here.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "llmc/comm/transport/nccl_blocks.h"

// Whether NCCL itself can sum: known without NCCL, for plans.
inline bool nccl_sums(const Group& g, Wire t) { return !(g.bf16_wire && t == Wire::F32); }

std::string nccl_library();                 // "NCCL 2.28.9"; empty: this build has none
std::vector<std::string> gpu_addresses();   // on the bus, of the GPUs that this process sees
int fewest_processors();                    // streaming multiprocessors (SMs) of the smallest of these GPUs

// Ranks that are threads, for comm::idle_barrier(): created before the ranks run. A failing rank breaks the
// barrier for all ranks.
std::shared_ptr<Together> ranks_together(int ranks);

// The id by which NCCL connects the ranks of a job: one rank makes the id, all ranks receive a copy.
struct NcclId { char bytes[128]; };
NcclId new_nccl_id();

// All ranks together: this thread becomes a rank on one of its visible GPUs, and joins the groups of its
// mesh.
void nccl_begin(const NcclId& id, RankMesh& ranks, int device, const NcclBlocks& blocks);
// failed: ranks that wait for this rank end in exit code 75.
void nccl_end(bool failed);
