// How many blocks NCCL may have on a GPU, for each communicator of a rank.
//
// A kernel of NCCL holds its processors while it waits for other ranks. A middle stage may run such kernels
// for tensor parallelism, for ZeRO and for four directions of messages at once. Where they do not all fit, a
// kernel that another rank waits for may never start. So all communicators together have half of the GPU; the
// other half computes.
#pragma once
#include "llmc/comm/mesh.h"

struct NcclBlocks {
    int of_axis[kAxes];     // as axis_names; at least 1
    int of_way;             // messages from one stage of a pipeline to one beside it
};

// The same on all ranks: of the rank with the most communicators, on the smallest of the GPUs.
NcclBlocks nccl_blocks(const MeshShape& s, int processors);
