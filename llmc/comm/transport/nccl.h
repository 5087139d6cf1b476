// Ranks with a GPU each, over NCCL: processes, or threads of one process. A build without NCCL has none here.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "llmc/comm/transport/nccl_blocks.h"

std::string nccl_library();                 // "NCCL 2.28.9"; empty: this build has none
std::vector<std::string> gpu_addresses();   // on the bus, of the GPUs that this process sees
int fewest_processors();                    // of one of these GPUs

// Ranks that are threads, for comm::meet(): made before they run. A rank that fails breaks it for all.
std::shared_ptr<Together> ranks_together(int ranks);

// What makes a job's ranks find each other: made by one of them, brought to all.
struct NcclId { char bytes[128]; };
NcclId new_nccl_id();

// All ranks together: this thread becomes one of them, on one of the GPUs that it sees, and joins the groups
// of its mesh.
void nccl_begin(const NcclId& id, RankMesh& ranks, int device, const NcclBlocks& blocks);
// failed: whoever waits for this rank ends in exit code 75.
void nccl_end(bool failed);
