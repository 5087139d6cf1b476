// From a process, or several that mpirun started, to ranks with a mesh.
#pragma once
#include <functional>

#include "llmc/base/config/config.h"
#include "llmc/comm/mesh.h"

using RankBody = std::function<int(Config, const Mesh&)>;

// Runs body on every rank that this process has, on a mesh as cfg.parallel says, and returns the largest of
// their exit codes. Settings that differ between ranks, or do not fit the mesh, end in exit code 78 before
// any rank runs. task: what the ranks do, where they do not train; the same on all.
int run_ranks(Config& cfg, const RankBody& body, const std::string& task = "");

// Ranks as threads of this process: parallel.ranks of them. Where Context::throw_on_fatal is set, a rank that
// throws ends all others by Fatal, and its exception leaves here.
int run_threads(const Config& cfg, const RankBody& body);

// One rank of a mesh that nobody runs: for the plan. Its collectives must not be called. Ranks are threads
// where parallel.ranks says how many, unless this process is one of several or parallel.transport is mpi.
std::unique_ptr<RankMesh> described_mesh(const ParallelConfig& p, int ranks, int rank);
bool is_described(const Mesh& mesh);

// Ranks of this process, where it is not one of many: parallel.ranks, at least 1.
int planned_ranks(const ParallelConfig& p);
