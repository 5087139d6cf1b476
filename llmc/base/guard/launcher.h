// Who started this process, by the environment: mpirun, srun, torchrun, or a person.
#pragma once
#include <string>

struct Launcher {
    int rank = 0, world = 1;        // of processes
    bool owns_us = false;           // mpirun or srun: ends all ranks when one fails, and passes signals on
    bool speaks_mpi = false;        // mpirun, or srun with PMI or PMIx: MPI finds its ranks
    std::string job;                // the same for all ranks of a job, and for no others; "": one rank
};

const Launcher& launcher();
