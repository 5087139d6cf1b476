// The mesh: the axes of ranks.
//
//     rank = ((dp.index * pp.size + pp.index) * cp.size + cp.index) * tp.size + tp.index
#pragma once
#include <array>

#include "llmc/base/config/config.h"
#include "llmc/comm/axis.h"

struct MeshShape {
    int dp = 1, pp = 1, cp = 1, tp = 1;
    int shard = 1;                      // ranks of dp x cp per copy of the sharded state
};

// Sizes of the axes of a job. REQUIRES: tp pp cp divides `ranks`.
MeshShape mesh_shape(const ParallelConfig& p, int ranks);

// A rank's place in its communicator of an axis: index, number of members, and colour as in MPI_Comm_split.
// The colour is the lowest rank of the members.
struct Place { int index, size, color; };

inline constexpr int kAxes = 7;             // axes with communicators
extern const char* const axis_names[kAxes];
extern Axis Mesh::*const mesh_axes[kAxes];
std::array<Place, kAxes> places_of(const MeshShape& s, int rank);       // in the order of axis_names
Position data_parallel_of(const MeshShape& s, int rank);

struct Together;        // ranks of this process that have a GPU each: nccl.h

// A rank's mesh with its communicators; groups of one rank have no transport.
struct RankMesh {
    Mesh mesh;
    std::array<Place, kAxes> places;
    Group groups[kAxes];
    bool ring = false;                  // the last stage of a pipeline sends to the first, and back
    std::shared_ptr<Together> together; // null: the only rank of this process

    // over_nccl: parallel.reduce = auto means NCCL's own reductions.
    RankMesh(const ParallelConfig& p, int ranks, int rank, bool over_nccl = false);
    RankMesh(const RankMesh&) = delete;
};
