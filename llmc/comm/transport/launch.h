// Room comm/transport: starts ranks and moves their messages: threads of a process, MPI, NCCL, TCP.
// main() calls run_ranks(); collectives arrive through the table of functions in comm/group.h.
// The room knows bytes, hosts and GPUs. It knows no model.
//
// From one process, or the processes of mpirun, to ranks with a mesh.
#pragma once
#include <functional>

#include "llmc/base/config/config.h"
#include "llmc/comm/mesh.h"

inline namespace transport {

using RankBody = std::function<int(Config, const Mesh&)>;

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

}  // namespace transport
