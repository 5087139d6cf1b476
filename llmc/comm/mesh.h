// The communicators of a rank, a row each: slices of the grid of ranks (base/config/axes.h).
#pragma once
#include <array>
#include <span>

#include "llmc/base/config/axes.h"
#include "llmc/comm/axis.h"

inline namespace comm {

// The ranks of a grid that differ from a rank on some of the axes alone, ascending.
struct GridSlice {
    struct Digit {
        int size, stride;
    };
    int size = 1, index = 0;            // number of members; the rank's own index among them
    int lowest = 0;                     // rank with index 0 on every varying axis
    int first = 0, step = 1;            // members: every step-th rank of the whole slice, from `first` on
    std::array<Digit, 8> digits = {};   // varying axes of several ranks, the innermost first
    size_t axes = 0;

    int rank(int i) const {
        int at = first + i * step, rank = lowest;
        for (size_t d = 0; d < axes; d++) {
            rank += at % digits[d].size * digits[d].stride;
            at /= digits[d].size;
        }
        return rank;
    }
};
struct GridAxis {
    int size;
    bool varies;
};
GridSlice grid_slice(std::span<const GridAxis> grid, int rank);       // the innermost axis first
GridSlice grid_slice(const MeshShape& s, unsigned axes, int rank);    // axes: those that vary, as bits

// Which ranks of a slice form a group.
enum class SlicePart : uint8_t {
    All,
    Shard,              // consecutive ones: MeshShape::shard of them
    Replica,            // those with the same index of Shard
    Ends,               // the first and the last; others are alone
};
struct GroupRow {
    const char* name;
    Axis Mesh::*axis;
    unsigned over;      // axes on which members differ
    SlicePart part;
    int nccl_blocks;    // share of NCCL's thread blocks; the group that steps wait for most has the largest
    bool messages = false;      // between neighbours; each has a route of NCCL's
};
inline constexpr int kGroups = 7;
inline constexpr GroupRow group_rows[kGroups] = {
    {"pp", &Mesh::pp, axis_bit(kPp), SlicePart::All, 1, true},
    {"cp", &Mesh::cp, axis_bit(kCp), SlicePart::All, 4},
    {"tp", &Mesh::tp, axis_bit(kTp), SlicePart::All, 8},
    {"shard", &Mesh::shard, kGradientAxes, SlicePart::Shard, 8},
    {"replica", &Mesh::replica, kGradientAxes, SlicePart::Replica, 4},
    {"tied", &Mesh::tied, axis_bit(kPp), SlicePart::Ends, 2},
    {"world", &Mesh::world, kAllAxes, SlicePart::All, 1},
};
size_t index_of_group(std::string_view name);
GridSlice group_slice(const MeshShape& s, size_t group, int rank);

// A rank's place in its communicator of a group: index, number of members, and colour as in MPI_Comm_split.
// The colour is the lowest rank of the members.
struct Place { int index, size, color; };
Place place_of(const MeshShape& s, size_t group, int rank);

struct Together;        // ranks of this process that have a GPU each: nccl.h

// A rank's mesh with its communicators; groups of one rank have no transport.
struct RankMesh {
    Mesh mesh;
    std::array<Place, kGroups> places;
    Group groups[kGroups];
    bool ring = false;                  // the last stage of a pipeline sends to the first, and back
    std::shared_ptr<Together> together; // null: the only rank of this process

    // over_nccl: parallel.reduce = auto means NCCL's own reductions.
    RankMesh(const ParallelConfig& p, int ranks, int rank, bool over_nccl = false);
    RankMesh(const RankMesh&) = delete;
};

}  // namespace comm
