// Ranks as processes, over MPI. In a build without MPI mpi_begin() and join_mpi() are fatal().
#pragma once
#include <string>

#include "llmc/comm/group.h"

inline namespace transport {

std::string mpi_library();      // "Open MPI 4.1.4"; empty: this build has none

// Whether MPI itself can sum the type; MPI has no bf16. Builds without MPI know the answer too, for plans.
inline bool mpi_sums(const Group& g, Wire t) {
    return t != Wire::BF16 && t != Wire::Byte && !(g.bf16_wire && t == Wire::F32);
}

struct MpiJob { int rank, size; };
MpiJob mpi_begin();             // starts MPI: all processes together. A second call only returns the job
void mpi_end();

// Ranks of the same colour become a group, in the order of index. Every rank of the job makes this call for
// every axis, in the same order of axes, even for a group of one rank.
void join_mpi(Group& g, int color, int index);

}  // namespace transport
