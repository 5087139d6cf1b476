#include "llmc/comm/launch.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/launcher.h"
#include "llmc/base/machine.h"
#include "llmc/base/progress_page.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/mpi.h"
#include "llmc/comm/threads.h"

int planned_ranks(const ParallelConfig& p) { return std::max(p.ranks, 1); }

bool is_described(const Mesh& mesh) { return mesh.world.size > 1 && !mesh.world.group->transport->start; }

// What a rank tells all others of where it is.
struct Seat {
    char host[64];
    cpu_set_t cores;
};

static Seat own_seat() {
    Seat s = {};
    gethostname(s.host, sizeof s.host - 1);
    sched_getaffinity(0, sizeof s.cores, &s.cores);
    return s;
}

static std::vector<Seat> all_seats(const Mesh& mesh) {
    const Seat own = own_seat();
    std::vector<Seat> seats(size_t(mesh.world.size), own);
    auto bytes = reinterpret_cast<std::byte*>(seats.data());
    mesh.world.all_gather(bytes, reinterpret_cast<const std::byte*>(&own), sizeof own);
    return seats;
}

// The cores that the ranks of this host have, divided by these ranks.
static int threads_of_rank(const std::vector<Seat>& seats, const Seat& own) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    int ranks = 0;
    for (const Seat& s : seats) {
        if (std::string_view(s.host) != own.host) continue;
        CPU_OR(&cores, &cores, &s.cores);
        ranks++;
    }
    return std::max(1, std::min(CPU_COUNT(&own.cores), CPU_COUNT(&cores) / ranks));
}

static void print_table(const Config& cfg, const std::vector<Seat>& seats) {
    const int ranks = int(seats.size()), threads = cfg.run.threads;
    const MeshShape shape = mesh_shape(cfg.parallel, ranks);
    size_t width = 4;
    for (const Seat& s : seats) width = std::max(width, std::string_view(s.host).size());
    printf("%d ranks: dp %d x pp %d x tp %d, tp innermost\n", ranks, shape.dp, shape.pp, shape.tp);
    printf("%5s  %-*s  %-14s  %4s %4s %4s\n", "rank", int(width), "host", "device", "dp", "pp", "tp");
    for (int r = 0; r < ranks; r++) {
        const auto at = places_of(shape, r);
        const int own = threads ? threads : threads_of_rank(seats, seats[size_t(r)]);
        printf("%5d  %-*s  %-14s  %4d %4d %4d\n", r, int(width), seats[size_t(r)].host,
               strf("cpu, %d thread%s", own, own == 1 ? "" : "s").c_str(), at[0].index, at[1].index,
               at[3].index);
    }
    fflush(stdout);
}

// One rank, from the moment that its mesh stands.
static int run_rank(Config cfg, const Mesh& mesh, const RankBody& body) {
    context.rank = mesh.rank;
    const std::vector<Seat> seats = all_seats(mesh);
    if (mesh.world.size > 1 && mesh.rank == 0 && !context.throw_on_fatal) print_table(cfg, seats);
    context.host_ranks = int(std::count_if(seats.begin(), seats.end(), [&](const Seat& s) {
        return std::string_view(s.host) == seats[size_t(mesh.rank)].host;
    }));
    if (!cfg.run.threads) cfg.run.threads = threads_of_rank(seats, seats[size_t(mesh.rank)]);
    context.threads = cfg.run.threads;
    omp_set_num_threads(context.threads);
    return body(cfg, mesh);
}

// The ranks' meshes, with a team for each axis that has several.
static std::vector<std::unique_ptr<RankMesh>> thread_meshes(const Config& cfg, int ranks,
                                                            ThreadWorld& world) {
    std::vector<std::unique_ptr<RankMesh>> meshes;
    for (int r = 0; r < ranks; r++) meshes.push_back(std::make_unique<RankMesh>(cfg.parallel, ranks, r));
    for (int axis = 0; axis < kAxes; axis++) {
        std::vector<ThreadTeam*> teams(size_t(ranks), nullptr);         // by colour
        for (auto& m : meshes) {
            const Place& at = m->places[size_t(axis)];
            if (at.size == 1) continue;
            ThreadTeam*& team = teams[size_t(at.color)];
            if (!team) team = world.make_team(at.size);
            join_team(m->groups[axis], team, at.index);
        }
    }
    return meshes;
}

int run_threads(const Config& cfg, const RankBody& body) {
    const int ranks = planned_ranks(cfg.parallel);
    ThreadWorld world;
    const auto meshes = thread_meshes(cfg, ranks, world);
    const bool catches = context.throw_on_fatal;
    std::vector<int> codes(size_t(ranks), 0);
    std::exception_ptr first;
    std::mutex failing;
    const auto rank = [&](int r) {
        context.throw_on_fatal = catches;
        context.process_ranks = ranks;
        if (progress_page) join_progress(r, ranks, r);
        if (!catches) {                                                 // what it throws ends the process
            codes[size_t(r)] = run_rank(cfg, meshes[size_t(r)]->mesh, body);
            wait_for_the_end();
            return;
        }
        try {
            codes[size_t(r)] = run_rank(cfg, meshes[size_t(r)]->mesh, body);
        } catch (...) {
            std::lock_guard lock(failing);
            if (!first) first = std::current_exception();
            world.broken();
        }
    };
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; r++) threads.emplace_back(rank, r);
    for (std::thread& t : threads) t.join();
    if (first) std::rethrow_exception(first);
    return *std::max_element(codes.begin(), codes.end());
}

static int run_processes(const Config& cfg, const RankBody& body) {
    const MpiJob job = mpi_begin();
    CHECK_INPUT(
        job.size == launcher().world,
        "%d processes were started, but MPI finds %d: its launcher does not speak to this MPI (%s). Start "
        "them by mpirun, or by srun --mpi=pmix",
        launcher().world, job.size, mpi_library().c_str());
    RankMesh ranks(cfg.parallel, job.size, job.rank);
    for (int axis = 0; axis < kAxes; axis++)
        join_mpi(ranks.groups[axis], ranks.places[size_t(axis)].color, ranks.places[size_t(axis)].index);
    join_progress(job.rank, job.size);
    const int code = run_rank(cfg, ranks.mesh, body);
    ranks.mesh.world.barrier();
    wait_for_the_end();
    mpi_end();
    return code;
}

static bool has_mpi() { return !mpi_library().empty(); }

// "mpi", "threads", or "one" rank
static const char* transport_of(const Config& cfg) {
    const ParallelConfig& p = cfg.parallel;
    const int processes = launcher().world;
    if (processes == 1) {
        CHECK_INPUT(
            p.transport != "mpi" || p.ranks <= 1,
            "parallel.transport = mpi with parallel.ranks = %d: this is one process; start the ranks by "
            "mpirun -np %d",
            p.ranks, p.ranks);
        return p.ranks > 1 ? "threads" : "one";
    }
    CHECK_INPUT(
        p.transport != "threads",
        "parallel.transport = threads: %d processes were started; start one, with --parallel.ranks=%d",
        processes, processes);
    CHECK_INPUT(p.ranks == 0 || p.ranks == processes,
                "parallel.ranks = %d, but %d processes were started: leave it at 0", p.ranks, processes);
    CHECK_INPUT(has_mpi(),
                "%d processes were started, and this build has no MPI (make says why): start one, with "
                "--parallel.ranks=%d",
                processes, processes);
    CHECK_INPUT(launcher().owns_us,
                "RANK and WORLD_SIZE = %d are set, as torchrun does: on CPUs start the ranks by "
                "mpirun -np %d, or one process with --parallel.ranks=%d",
                processes, processes, processes);
    return "mpi";
}

int run_ranks(Config& cfg, const RankBody& body) {
    context.rank = launcher().rank;
    const std::string transport = transport_of(cfg);
    check_mesh(cfg, std::max(planned_ranks(cfg.parallel), launcher().world));
    if (transport == "mpi") return run_processes(cfg, body);
    if (transport == "threads") return run_threads(cfg, body);
    join_progress(0, 1);
    return run_rank(cfg, Mesh(), body);
}

// What a plan needs to know of a transport: nothing can be sent.
static const Transport& described(const ParallelConfig& p) {
    static constexpr Transport kinds[] = {
        {"threads", nullptr, nullptr, nullptr, nullptr, nullptr, false},
        {"mpi", nullptr, nullptr, nullptr, nullptr, nullptr, true},
    };
    const bool processes = launcher().world > 1 || p.ranks == 0;
    const bool mpi = p.transport == "mpi" || (p.transport == "auto" && has_mpi() && processes);
    return kinds[mpi];
}

std::unique_ptr<RankMesh> described_mesh(const ParallelConfig& p, int ranks, int rank) {
    auto m = std::make_unique<RankMesh>(p, ranks, rank);
    for (Group& g : m->groups) g.transport = &described(p);
    return m;
}
