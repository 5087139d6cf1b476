#include "llmc/base/guard/launcher.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "llmc/base/guard/generation.h"

inline namespace guard {

static std::string text_of(const char* name) {
    const char* text = getenv(name);
    return text ? text : "";
}

static int number_of(const char* name, int otherwise = 0) {
    const char* text = getenv(name);
    char* end = nullptr;
    const long number = text ? strtol(text, &end, 10) : 0;
    return end && end != text && !*end && number >= 0 && number < 1 << 30 ? int(number) : otherwise;
}

// The variables of a launcher; null: it has none.
struct Variables {
    const char *launcher, *rank, *world, *on_host, *job_a, *job_b;
};
static constexpr Variables kMpirun = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", "OMPI_COMMAND"};
static constexpr Variables kHydra = {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", nullptr, nullptr};
// SLURM_STEP_NUM_TASKS is there below srun only, not in the batch script and the allocation
static constexpr Variables kSlurm = {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, "SLURM_JOB_ID",
                                     "SLURM_STEP_ID"};
static constexpr Variables kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                                        "MASTER_PORT"};

static bool is_set(const Variables& n) { return !text_of(n.rank).empty() && !text_of(n.world).empty(); }

static bool srun_speaks_pmix() { return text_of("PMIX_NAMESPACE").starts_with("slurm."); }

static Launcher launcher_of(const Variables& n) {
    Launcher l;
    l.name = n.launcher;
    l.rank = number_of(n.rank, -1);
    l.world = number_of(n.world);
    if (l.world < 1 || l.rank < 0 || l.rank >= l.world) {
        l.contradiction = fmt::format("{} = {} of {} = {} is no rank of {}: start all ranks by {}, or unset "
                                      "both variables", n.rank, text_of(n.rank), n.world, text_of(n.world),
                                      n.launcher, n.launcher);
        l.rank = 0;
        l.world = 1;
        return l;
    }
    if (n.on_host) l.on_host = number_of(n.on_host);
    else if (number_of("SLURM_STEP_NUM_NODES") == 1) l.on_host = l.world;
    l.owns_us = &n != &kTorchrun;
    l.speaks_mpi = &n == &kMpirun || &n == &kHydra ||
                   (l.owns_us && (getenv("PMI_RANK") || getenv("PMIX_RANK")));
    if (l.world > 1)        // Hydra names no job, but the ranks of a host share a parent
        l.job = n.job_a ? text_of(n.job_a) + "." + text_of(n.job_b) : std::to_string(getppid());
    return l;
}

// Of mpirun and srun: the inner one.
static Launcher owner() {
    if (is_set(kMpirun) && !(srun_speaks_pmix() && is_set(kSlurm))) return launcher_of(kMpirun);
    if (is_set(kSlurm) && srun_speaks_pmix()) return launcher_of(kSlurm);
    if (is_set(kHydra)) {       // Slurm's PMI-2 has these variables too
        Launcher l = launcher_of(kHydra);
        if (is_set(kSlurm) && number_of(kSlurm.world) == l.world) l = launcher_of(kSlurm);
        return l;
    }
    return is_set(kSlurm) ? launcher_of(kSlurm) : Launcher();
}

// Whether `inner`, of torchrun, may have been started inside the processes of `outer`: by one of them, or by
// each of them for its share of the ranks.
static bool nests(const Launcher& outer, const Launcher& inner) {
    if (outer.world == 1 || getenv("SLURM_PTY_PORT")) return true;      // an interactive shell
    if (inner.world == outer.world && !getenv("TORCHELASTIC_RUN_ID")) return false;
    return inner.on_host > 0 && inner.world == outer.world * inner.on_host;
}

// Set by what starts several processes and says too little to this program; none: all is known. Each process
// would train alone.
static std::string unknown_launcher() {
    struct Sign { const char *launcher, *variable, *alone; };
    static constexpr Sign kSigns[] = {
        {"flux", "FLUX_JOB_SIZE", "1"}, {"jsrun", "JSM_NAMESPACE_SIZE", "1"},
        {"mpirun of MVAPICH", "MV2_COMM_WORLD_SIZE", "1"}, {"prun", "PMIX_RANK", ""},
        {"torchrun", "PET_NNODES", "1"}, {"torchrun", "WORLD_SIZE", "1"}, {"torchrun", "RANK", "0"}};
    for (const Sign& s : kSigns) {
        const std::string value = text_of(s.variable);
        if (value.empty() || value == s.alone) continue;
        return fmt::format("{} = {} is set, as by {}, but not rank and number of ranks as torchrun, mpirun "
                           "or srun set them: start the ranks by one of these; for one process unset {}",
                           s.variable, value, s.launcher, s.variable);
    }
    return "";
}

Launcher find_launcher() {
    if (getenv(kAgentVariable)) return {};       // a rank of an agent, whoever started that
    Launcher outer = owner();
    if (outer.name.empty() && !is_set(kTorchrun)) outer.contradiction = unknown_launcher();
    if (!is_set(kTorchrun)) return outer;
    Launcher inner = launcher_of(kTorchrun);
    if (outer.name.empty()) return inner;
    if (!outer.contradiction.empty()) return outer;
    const bool same = inner.contradiction.empty() && inner.rank == outer.rank && inner.world == outer.world;
    if (same && (outer.world == 1 || !getenv("TORCHELASTIC_RUN_ID"))) return outer;
    if (inner.contradiction.empty() && nests(outer, inner)) return inner;
    outer.contradiction = fmt::format(
        "{} says that this is rank {} of {}, and RANK = {}, WORLD_SIZE = {}, as torchrun sets them, "
        "contradict: start the ranks by one launcher; for {} alone unset RANK WORLD_SIZE",
        outer.name, outer.rank, outer.world, text_of("RANK"), text_of("WORLD_SIZE"), outer.name);
    return outer;
}

bool is_mpirun(int process) {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", process)), name);
    for (const char* known : {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"})
        if (name == known) return true;
    return false;
}

const Launcher& launcher() {
    static const Launcher l = find_launcher();
    return l;
}

}  // namespace guard
