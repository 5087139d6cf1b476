// Room comm/launch: from one process, the processes of a launcher, or an agent's ranks, to ranks with a mesh.
// main() calls run_ranks(). The room knows processes, hosts and settings of the mesh. It knows no model.
//
// Which transport connects the ranks follows from parallel.transport, the launcher and the build.
#pragma once
#include "llmc/comm/launch/run_rank.h"

inline namespace launching {

// Runs body on every rank of this process, on the mesh of cfg.parallel, and returns the largest exit code.
// Settings that differ between ranks, or do not fit the mesh, end in exit code 78 before any rank runs. task:
// "--generate=TEXT" and the like, equal on all ranks; empty: training.
int run_ranks(const Config& cfg, const RankBody& body, const std::string& task = "");

// parallel.ranks ranks as threads of this process. With Context::throw_on_fatal, a rank that throws ends all
// other ranks by Fatal, and run_threads() rethrows its exception.
int run_threads(const Config& cfg, const RankBody& body);

// A rank's mesh without connections, for plans. Collectives on the mesh can be walked (ops/walk.h), not run.
// With parallel.ranks the ranks are threads, unless this process is one of several or parallel.transport is
// mpi.
std::unique_ptr<RankMesh> described_mesh(const ParallelConfig& p, int ranks, int rank);
std::unique_ptr<RankMesh> described_stage(const ParallelConfig& p, int ranks, int stage);  // its first rank
bool is_described(const Mesh& mesh);        // a mesh of several ranks from described_mesh()

// Ranks of a single process: parallel.ranks, at least 1.
int planned_ranks(const ParallelConfig& p);

}  // namespace launching
