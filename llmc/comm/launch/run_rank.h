// A rank once its mesh is connected: its threads, and the body that it runs.
#pragma once
#include <functional>

#include "llmc/base/config/config.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/transport/placement.h"

inline namespace launching {

using RankBody = std::function<int(Config, const Mesh&)>;

Placements placements_over(const Mesh& mesh);       // of ranks on CPUs. All ranks together
// Runs a rank on its mesh; returns the exit code of body.
int run_rank(Config cfg, const Mesh& mesh, const Placements& placements, const RankBody& body);

}  // namespace launching
