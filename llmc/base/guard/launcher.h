// Who started this process, by the environment: mpirun, srun, torchrun, or a person.
//
// Launchers nest: mpirun and torchrun inside an allocation of Slurm, torchrun on each host of an mpirun. The
// innermost launcher has started the ranks. Numbers of two launchers that fit no such nest contradict each
// other; then the process ends with exit code 78 before ranks meet.
#pragma once
#include <string>

inline namespace guard {

struct Launcher {
    std::string name;               // "mpirun", "srun", "torchrun"; "": a person
    int rank = 0, world = 1;        // of processes
    int on_host = 0;                // processes of this host; 0: unknown
    bool owns_us = false;           // mpirun or srun: a failed rank ends the job, signals reach each rank
    bool speaks_mpi = false;        // mpirun, or srun with PMI or PMIx: MPI finds its ranks
    std::string job;                // unique to the job, the same on each of its ranks; "": a single rank
    std::string contradiction;      // an error message; "": none
};

const Launcher& launcher();
Launcher find_launcher();           // by the environment of now
bool is_mpirun(int process);        // mpirun itself, or its daemon on another host; by the process's name

}  // namespace guard
