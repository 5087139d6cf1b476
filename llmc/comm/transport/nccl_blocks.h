// The number of blocks that NCCL may use on a GPU, for each communicator of a rank.
//
// A kernel of NCCL holds its processors while it waits for other ranks. A middle stage may run such kernels
// for tensor parallelism, for ZeRO and for four directions of messages at once. If these kernels do not fit
// together, a kernel that another rank waits for may never start. So all communicators together have half of
// the GPU; the other half computes.
#pragma once
#include "llmc/comm/mesh.h"

struct NcclBlocks {
    int of_axis[kAxes];     // as axis_names; at least 1
    int of_route;             // messages from a stage of a pipeline to a neighbour
};

// Equal on all ranks: for the rank with the most communicators, on the smallest GPU.
NcclBlocks nccl_blocks(const MeshShape& s, int processors);
