// Ranks as processes, over MPI. A build without MPI has no ranks here.
#pragma once
#include <string>

#include "llmc/comm/group.h"

std::string mpi_library();      // "Open MPI 4.1.4"; empty: this build has none

// Whether MPI itself can sum: known without MPI, for plans. It has no bf16.
inline bool mpi_sums(const Group& g, Wire t) {
    return t != Wire::BF16 && t != Wire::Byte && !(g.bf16_wire && t == Wire::F32);
}

struct MpiJob { int rank, size; };
MpiJob mpi_begin();             // every process of the job; once more: the same
void mpi_end();

// Ranks of the same colour become a group, in the order of index. Every rank calls this for every axis, in
// the same order, also where it is alone.
void join_mpi(Group& g, int color, int index);
