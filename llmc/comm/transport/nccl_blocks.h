// Thread blocks (CTAs) of NCCL per communicator, so that all kernels fit on half of the GPU's SMs.
//
// A kernel of NCCL occupies its SMs while waiting for other ranks. A middle stage may run kernels for
// tensor parallelism, for ZeRO and for four directions of messages at once. Kernels without room wait, while
// another rank waits for the kernel: a deadlock. So the communicators share half of the SMs; the other half
// computes.
#pragma once
#include "llmc/comm/mesh.h"

struct NcclBlocks {
    int of_axis[kAxes];     // as axis_names; at least 1
    int of_route;             // messages from a stage of a pipeline to a neighbour
};

// Equal on all ranks: for the rank with the most communicators. processors: SMs of the smallest GPU.
NcclBlocks nccl_blocks(const MeshShape& s, int processors);
