#include "llmc/comm/launch/meeting.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "llmc/base/check.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/base/host/version.h"
#include "llmc/comm/axis.h"
#include "llmc/comm/rendezvous/rendezvous.h"
#include "llmc/comm/same_settings.h"
#include "llmc/comm/transport/nccl.h"

inline namespace launching {

bool has_mpi() { return !mpi_library().empty(); }
bool has_nccl() { return !nccl_library().empty(); }
bool on_gpus() { return std::string_view(built_device) == "cuda"; }

// Whether this Open MPI finds its ranks by Slurm's PMI-2: before version 5, with a component for it. True
// where no components lie beside the library.
static bool mpi_speaks_pmi2() {
    namespace fs = std::filesystem;
    if (mpi_library() >= "Open MPI 5") return false;
    Dl_info library;
    const void* const init = dlsym(RTLD_DEFAULT, "MPI_Init");
    if (!init || !dladdr(init, &library)) return true;
    bool any = false;
    std::error_code none;
    const fs::path beside = fs::canonical(library.dli_fname, none).parent_path();
    for (const auto& folder : fs::directory_iterator(beside, none)) {
        if (!folder.path().filename().string().starts_with("openmpi")) continue;
        for (const auto& file : fs::recursive_directory_iterator(folder.path(), none)) {
            const std::string name = file.path().stem().string();
            if (name == "mca_pmix_s1" || name == "mca_pmix_s2" || name == "mca_pmix_cray") return true;
            any |= name.starts_with("mca_pmix_");
        }
    }
    return !any;
}

static bool mpi_finds_ranks() {
    if (launcher().name != "srun" || getenv("PMIX_RANK")) return launcher().speaks_mpi;
    return launcher().speaks_mpi && mpi_speaks_pmi2();
}

Meeting meeting() {
    const bool emulated = !on_gpus() && std::string_view(built_device) != "cpu";
    if (launcher().world == 1 || emulated || (on_gpus() && !has_nccl())) return Meeting::Nowhere;
    const bool mpi = has_mpi() && (on_gpus() ? launcher().speaks_mpi : mpi_finds_ranks());
    return mpi ? Meeting::Mpi : Meeting::Tcp;
}

// MPI ends a process whose helper threads cannot be made, with pages of its own words.
MpiJob begin_mpi() {
    static constexpr int kHelpers = 3;
    static std::once_flag looked;
    std::call_once(looked, [] {
        CHECK_INPUT(possible_threads(1 + kHelpers) == 1 + kHelpers,
                    "MPI needs {} threads beside each rank: {}", kHelpers, no_thread());
    });
    const MpiJob job = [] {
        const Waiting named("MPI_Init", Awaits::Ranks, start_patience());
        return mpi_begin();
    }();
    CHECK_INPUT(
        job.size == launcher().world,
        "{} processes were started, but MPI finds {}: its launcher does not speak to this MPI ({}). Start "
        "them by mpirun, or by srun --mpi=pmix",
        launcher().world, job.size, mpi_library());
    return job;
}

std::vector<std::string> exchange_texts(const std::string& own) {
    if (meeting() == Meeting::Tcp) return exchange(rendezvous_of_environment(), own);
    begin_mpi();
    Group g;
    g.name = "start";
    join_mpi(g, 0, launcher().rank);
    const Axis ranks = {.index = g.index, .size = g.size, .group = &g};
    const size_t world = size_t(ranks.size), size = own.size();
    std::vector<size_t> sizes(world);
    ranks.all_gather(sizes.data(), &size, 1);
    const size_t longest = *std::max_element(sizes.begin(), sizes.end());
    std::vector<char> all(world * longest), padded(own.begin(), own.end());
    padded.resize(longest);
    ranks.all_gather(all.data(), padded.data(), longest);
    std::vector<std::string> texts;
    for (size_t r = 0; r < world; r++) texts.emplace_back(all.data() + r * longest, sizes[r]);
    return texts;
}

void check_processes(const Config& cfg, const std::string& task) {
    if (meeting() != Meeting::Nowhere) check_same_settings(cfg, task, exchange_texts);
}

void leave_processes() { if (meeting() == Meeting::Mpi) mpi_end(); }

bool goes_over_nccl(const ParallelConfig& p) {
    return p.transport == TransportKind::Nccl ||
           (p.transport == TransportKind::Auto && on_gpus() && has_nccl());
}

// Of the ranks of one process.
static Carrier carrier_of_threads(const ParallelConfig& p) {
    CHECK_INPUT(p.transport != TransportKind::Mpi || p.ranks <= 1,
                "parallel.transport = mpi with parallel.ranks = {}: this is one process; start the ranks by "
                "mpirun -np {}", p.ranks, p.ranks);
    CHECK_INPUT(p.transport != TransportKind::Tcp || p.ranks <= 1,
                "parallel.transport = tcp with parallel.ranks = {}: this is one process; start the ranks by "
                "mpirun, srun, torchrun or scripts/run_nodes.sh, or leave it at auto: ranks as threads",
                p.ranks);
    CHECK_INPUT(p.transport != TransportKind::Nccl || has_nccl(),
                "parallel.transport = nccl: this build has no NCCL (make says why); leave it at auto");
    if (p.ranks <= 1) return Carrier::None;
    return goes_over_nccl(p) ? Carrier::Nccl : Carrier::Threads;
}

static Carrier carrier_of_gpus(const ParallelConfig& p, int processes) {
    CHECK_INPUT(on_gpus(), "{} processes were started; emulated GPUs are threads of one process: start one, "
                "with --parallel.ranks={}", processes, processes);
    CHECK_INPUT(p.transport != TransportKind::Mpi && p.transport != TransportKind::Tcp,
                "parallel.transport = {}: between GPUs messages go over NCCL; leave it at auto",
                p.transport.text());
    CHECK_INPUT(has_nccl(),
                "{} processes were started, and this build has no NCCL (make says why): install it and build "
                "again", processes);
    return Carrier::Nccl;
}

static Carrier carrier_of_cpus(const ParallelConfig& p, int processes) {
    CHECK_INPUT(p.transport != TransportKind::Nccl,
                "parallel.transport = nccl: this program is built for CPUs; leave it at auto");
    if (p.transport != TransportKind::Mpi)
        return p.transport == TransportKind::Auto && meeting() == Meeting::Mpi ? Carrier::Mpi : Carrier::Tcp;
    CHECK_INPUT(has_mpi(),
                "parallel.transport = mpi: this build has no MPI (make says why); leave it at auto");
    CHECK_INPUT(meeting() == Meeting::Mpi,
                "parallel.transport = mpi: {} started {} processes in a way by which MPI does not find its "
                "ranks; use mpirun or srun --mpi=pmix (srun --mpi=list has its name), or leave it at auto: "
                "messages over TCP", launcher().name, processes);
    return Carrier::Mpi;
}

Carrier carrier_of(const Config& cfg) {
    const ParallelConfig& p = cfg.parallel;
    const int processes = launcher().world;
    CHECK_INPUT(launcher().contradiction.empty(), "{}", launcher().contradiction);
    if (processes == 1) return carrier_of_threads(p);
    CHECK_INPUT(
        p.transport != TransportKind::Threads,
        "parallel.transport = threads: {} processes were started; start one, with --parallel.ranks={}",
        processes, processes);
    CHECK_INPUT(p.ranks == 0 || p.ranks == processes,
                "parallel.ranks = {}, but {} processes were started: leave it at 0", p.ranks, processes);
    return std::string_view(built_device) == "cpu" ? carrier_of_cpus(p, processes)
                                                   : carrier_of_gpus(p, processes);
}

}  // namespace launching
