// Ranks with a GPU each, over NCCL: processes, or threads of one process. A build without NCCL has none here.
#pragma once
#include <string>
#include <vector>

#include "llmc/comm/group.h"

std::string nccl_library();                 // "NCCL 2.28.9"; empty: this build has none
std::vector<std::string> gpu_addresses();   // on the bus, of the GPUs that this process sees

// What makes a job's ranks find each other: made by one of them, brought to all.
struct NcclId { char bytes[128]; };
NcclId new_nccl_id();

// All ranks together: this thread becomes one of them, on one of the GPUs that it sees.
void nccl_begin(const NcclId& id, int ranks, int rank, int device);
// Ranks of the same colour become a group, in the order of index. Every rank calls this for every axis, in
// the same order, also where it is alone.
void join_nccl(Group& g, int color, int index);
// failed: whoever waits for this rank ends in exit code 75.
void nccl_end(bool failed);
