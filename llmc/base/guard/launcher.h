// Who started this process, by the environment: mpirun, srun, torchrun, or a person.
#pragma once
#include <string>

struct Launcher {
    int rank = 0, world = 1;        // of processes
    bool owns_us = false;           // mpirun or srun: a failed rank ends the job, signals reach each rank
    bool speaks_mpi = false;        // mpirun, or srun with PMI or PMIx: MPI finds its ranks
    std::string job;                // unique to the job, the same on each of its ranks; "": a single rank
};

const Launcher& launcher();
