// How the processes of a job exchange texts before a mesh exists: over MPI, or over TCP (rendezvous.h).
#pragma once
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/comm/transport/mpi.h"

inline namespace launching {

bool has_mpi();
bool has_nccl();
bool on_gpus();         // emulated ones excluded

// Depends on launcher and build alone: every rank decides alike. Mpi: where the launcher lets MPI find its
// ranks. Nowhere: one process, or processes without a way to connect in this build.
enum class Meeting { Nowhere, Mpi, Tcp };
Meeting meeting();

// The texts of all processes, in the order of the ranks. REQUIRES: meeting() is somewhere; all call together.
std::vector<std::string> exchange_texts(const std::string& own);

// Ends in exit code 78 where MPI does not find the processes that the launcher started.
MpiJob begin_mpi();

// All processes of the job have the same settings and task ("" trains), or the job ends in exit code 78.
void check_processes(const Config& cfg, const std::string& task);
// After check_processes(), where no ranks run.
void leave_processes();

// Whether ranks on GPUs send by NCCL: if the settings say so, or leave the choice and this build has NCCL.
bool goes_over_nccl(const ParallelConfig& p);

// Carrier of the messages of a run; None: there is one rank. Exit code 78 where settings, build and launcher
// allow none.
enum class Carrier { None, Threads, Nccl, Mpi, Tcp };
Carrier carrier_of(const Config& cfg);

}  // namespace launching
