// Thread blocks (CTAs) of NCCL per communicator, so that all kernels fit on half of the GPU's SMs.
//
// A kernel of NCCL occupies its SMs while waiting for other ranks. A middle stage may run kernels for
// tensor parallelism, for ZeRO and for four directions of messages at once. Kernels without room wait, while
// another rank waits for the kernel: a deadlock. So the communicators share half of the SMs; the other half
// computes.
//
// A share is a power of two: NCCL rounds the channels of messages up to one (initP2pChannels in its
// src/graph/paths.cc, 2.18 to 2.29), above the bound that a communicator was given.
#pragma once
#include "llmc/comm/mesh.h"

inline namespace transport {

struct NcclBlocks {
    int of_axis[kGroups];     // as group_rows; powers of two
    int of_route;             // messages from a stage of a pipeline to a neighbour
};

// Equal on all ranks: for the rank with the most communicators. processors: SMs of the smallest GPU.
NcclBlocks nccl_blocks(const MeshShape& s, int processors);

// An estimate of the device memory that NCCL takes for the rank with the most communicators:
//
//     communicators x blocks x neighbours x (10 + 2) MiB
//
// A block is a channel at most; NCCL opens fewer where links are slow. A channel has a buffer for each
// neighbour: two in a ring, one on a route. The receiver's has the three protocols (NCCL_BUFFSIZE of 4 MiB,
// 4.7 and 0.5 MiB) in whole pages of 2 MiB, 10 MiB, the sender's 2 MiB: as logged on eight H100 in
// github.com/NVIDIA/nccl/issues/1685. Not measured here, for want of several GPUs.
size_t nccl_bytes(const MeshShape& s, const NcclBlocks& blocks);

}  // namespace transport
