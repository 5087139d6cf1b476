// The axes of the mesh of ranks, a row each. Ranks lie in a grid: a rank has an index on every axis, and
//
//     rank = sum of index x stride        stride: product of the sizes of the axes further in
//
// with the axes in parallel.order, the innermost first: its neighbours have consecutive ranks, as ranks of a
// host have. The communicators of comm/mesh.h are slices of the grid.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"

inline namespace config {

enum MeshAxis : uint8_t { kDp, kTp, kPp, kCp, kMeshAxes };
using AxisOrder = std::array<MeshAxis, kMeshAxes>;      // the innermost first

// Sizes of the axes of a job.
struct MeshShape {
    int dp = 1, pp = 1, cp = 1, tp = 1;
    int shard = 1;                      // ranks that hold one copy of the sharded state (kGradientAxes)
    AxisOrder order = {kTp, kCp, kPp, kDp};
};

// A size of the model that an axis cuts into equal parts; for messages its setting, a note, a rank's part.
struct CutSize {
    const char* setting;
    int size;
    const char *note, *part;
    bool fits;                          // messages suggest sizes that fit the axis; else an axis that fits
    int parts = 1;                      // of a rank
};
inline CutSize cut_heads(const ModelConfig& m) {
    if (m.kv_heads) return {"model.kv_heads", m.kv_heads, "", "whole heads", false};
    return {"model.heads", m.heads, "", "whole heads", false};
}
inline CutSize cut_rows(const ModelConfig& m) {
    return {"model.context", m.context, " into two chunks a rank", "two equal chunks of each row", true, 2};
}
inline CutSize cut_features(const ModelConfig& m) {
    return {"model.ffn_channels", with_sizes(m).ffn_channels, m.ffn_channels ? "" : " (4 x model.channels)",
            "an equal share", true};
}

struct AxisRow {
    const char* name;
    int MeshShape::*size;
    int ParallelConfig::*setting;       // null: the ranks that the other axes leave
    bool sums_gradients;                // its ranks have other tokens: gradients are summed over them
    int nodes = 0;                      // a search tries sizes up to so many nodes of GPUs; 0: all sizes
    CutSize (*cuts[2])(const ModelConfig&) = {};
    bool rare = false;                  // tables and messages show the axis where it has several ranks
};
inline constexpr AxisRow axis_rows[kMeshAxes] = {
    {"dp", &MeshShape::dp, nullptr, true},                                                  // samples
    {"tp", &MeshShape::tp, &ParallelConfig::tp, false, 2, {cut_heads, cut_features}},       // matrices
    {"pp", &MeshShape::pp, &ParallelConfig::pp, false},                                     // layers
    {"cp", &MeshShape::cp, &ParallelConfig::cp, true, 0, {cut_rows}, true},                 // a sequence
};

inline std::string setting_of(const AxisRow& a) { return std::string("parallel.") + a.name; }

// Sets of axes: a bit each.
constexpr unsigned axis_bit(MeshAxis a) { return 1u << a; }
inline constexpr unsigned kAllAxes = (1u << kMeshAxes) - 1;
inline constexpr unsigned kGradientAxes = [] {
    unsigned axes = 0;
    for (int a = 0; a < kMeshAxes; a++) axes |= axis_rows[a].sums_gradients ? axis_bit(MeshAxis(a)) : 0;
    return axes;
}();

int model_ranks(const ParallelConfig& p);           // ranks of one copy of the model: all axes except dp
MeshShape mesh_shape(const ParallelConfig& p, int ranks);       // REQUIRES: model_ranks() divides ranks
// The mistake in parallel.order; empty: the setting is valid.
std::string order_mistake(const ParallelConfig& p, int dp);

int ranks_of(const MeshShape& s, unsigned axes = kAllAxes);     // product of the sizes of these axes
int stride_of(const MeshShape& s, MeshAxis axis);
int index_on(const MeshShape& s, MeshAxis axis, int rank);
std::vector<MeshAxis> shown_axes(const MeshShape& s);           // in tables, the outermost first

}  // namespace config
