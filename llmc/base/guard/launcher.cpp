#include "llmc/base/guard/launcher.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

static std::string text_of(const char* name) {
    const char* text = getenv(name);
    return text ? text : "";
}

static bool all_there(std::initializer_list<const char*> names) {
    for (const char* name : names) if (!getenv(name)) return false;
    return true;
}

static Launcher find_launcher() {
    struct Names { const char *rank, *world, *first, *second; bool owns; };
    static constexpr Names kinds[] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "OMPI_COMMAND", true},
        {"PMI_RANK", "PMI_SIZE", nullptr, nullptr, true},
        // SLURM_STEP_NUM_TASKS is there below srun only, not in the script itself
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", true},
        {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", false},
    };
    for (const Names& k : kinds) {
        if (!all_there({k.rank, k.world})) continue;
        Launcher l;
        l.rank = atoi(getenv(k.rank));
        l.world = atoi(getenv(k.world));
        l.owns_us = k.owns;
        if (l.world < 1 || l.rank < 0 || l.rank >= l.world) continue;
        l.speaks_mpi = !strcmp(k.rank, "OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK") || getenv("PMIX_RANK");
        if (l.world > 1)        // Hydra names no job, but the ranks of a host share a parent
            l.job = k.first ? text_of(k.first) + "." + text_of(k.second) : std::to_string(getppid());
        return l;
    }
    return {};
}

const Launcher& launcher() {
    static const Launcher l = find_launcher();
    return l;
}
