// Ranks with a GPU each, over NCCL: processes, or threads of a process. In a build without NCCL nccl_begin()
// is fatal(), and the other functions return zeros and empty values.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "llmc/comm/transport/nccl_blocks.h"

inline namespace transport {

// Whether NCCL itself can sum the type. Builds without NCCL know the answer too, for plans.
inline bool nccl_sums(const Group& g, Wire t) { return !(g.bf16_wire && t == Wire::F32); }

std::string nccl_library();                 // "NCCL 2.28.9"; empty: a build without NCCL
std::vector<std::string> gpu_addresses();   // PCI bus ids of the GPUs visible to this process
int gpu_in_use();                           // by this thread, since its first nccl_begin(); -1: none yet
int fewest_processors();                    // streaming multiprocessors (SMs) of the smallest visible GPU

// The shared part of comm::idle_barrier() of ranks that are threads, made before the ranks run. A failing
// rank breaks the barrier for all ranks.
std::shared_ptr<Together> ranks_together(int ranks);

// The id by which NCCL connects the ranks of a job: made once, and copied to every rank.
struct NcclId { char bytes[128]; };
NcclId new_nccl_id();

// All ranks together: this thread becomes a rank on the visible GPU `device`, and joins the groups of its
// mesh.
void nccl_begin(const NcclId& id, RankMesh& ranks, int device, const NcclBlocks& blocks);
// This thread is no rank any more. failed: ranks that wait for this rank end with exit code 75.
void nccl_end(bool failed);

}  // namespace transport
