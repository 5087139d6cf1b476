#include "llmc/comm/launch/launch.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <mutex>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/base/host/version.h"
#include "llmc/comm/agents/member.h"
#include "llmc/comm/launch/elastic.h"
#include "llmc/comm/launch/gpu_rank.h"
#include "llmc/comm/launch/meeting.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/transport/mpi.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/staging.h"
#include "llmc/comm/transport/placement.h"
#include "llmc/comm/launch/run_rank.h"
#include "llmc/comm/transport/tcp.h"
#include "llmc/comm/transport/threads.h"

inline namespace launching {

int planned_ranks(const ParallelConfig& p) { return std::max(p.ranks, 1); }

bool is_described(const Mesh& mesh) { return mesh.world.size > 1 && !mesh.world.group->transport->start; }

// The ranks' meshes, with a team for each axis of several ranks.
static std::vector<std::unique_ptr<RankMesh>> thread_meshes(const Config& cfg, int ranks, bool over_nccl,
                                                            ThreadWorld& world) {
    std::vector<std::unique_ptr<RankMesh>> meshes;
    for (int r = 0; r < ranks; r++)
        meshes.push_back(std::make_unique<RankMesh>(cfg.parallel, ranks, r, over_nccl));
    for (int axis = 0; axis < kGroups && !over_nccl; axis++) {
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

// Runs rank(0) to rank(n - 1), each on a thread. The ranks begin when every thread exists.
static void start_ranks(int n, const std::function<void(int)>& rank) {
    std::promise<bool> all_made;
    const std::shared_future<bool> begin = all_made.get_future();
    std::vector<std::thread> threads;
    threads.resize(size_t(n));
    std::string why;
    int made = 0;
    for (; made < n && why.empty(); made += why.empty())
        why = start_thread(threads[size_t(made)], [&rank, begin, made] { if (begin.get()) rank(made); });
    all_made.set_value(why.empty());
    for (std::thread& t : threads) if (t.joinable()) t.join();
    CHECK_INPUT(why.empty(), "parallel.ranks = {}: there are threads for {}; {}", n, made,
                no_thread(why));
}

static int run_threads(const Config& cfg, bool over_nccl, const RankBody& body) {
    const int ranks = planned_ranks(cfg.parallel);
    ThreadWorld world;
    const auto meshes = thread_meshes(cfg, ranks, over_nccl, world);
    const auto together = over_nccl ? ranks_together(ranks) : nullptr;
    for (const auto& m : meshes) m->together = together;
    const Placements placements(size_t(ranks), own_placement(over_nccl));
    if (over_nccl) check_devices(placements, hosts_of(placements));
    const NcclId id = over_nccl ? new_nccl_id() : NcclId{};
    const bool catches = context.throw_on_fatal;
    std::vector<int> codes(size_t(ranks), 0);
    std::exception_ptr first;
    std::mutex failing;
    const auto run = [&](int r) {
        RankMesh& m = *meshes[size_t(r)];
        return over_nccl ? run_gpu_rank(cfg, m, placements, id, body)
                         : run_rank(cfg, m.mesh, placements_over(m.mesh), body);
    };
    const auto rank = [&](int r) {
        context.throw_on_fatal = catches;
        context.memory_ranks = over_nccl ? 1 : ranks;
        if (progress_page) join_progress(r, ranks, r);
        in_wait = &world.look;
        if (!catches) {                                                 // an exception ends the process
            codes[size_t(r)] = run(r);
            wait_for_the_end();
            return;
        }
        try {
            codes[size_t(r)] = run(r);
        } catch (...) {
            std::lock_guard lock(failing);
            if (!first) first = std::current_exception();
            world.broken();
            nccl_end(true);
        }
    };
    start_ranks(ranks, rank);
    if (first) std::rethrow_exception(first);
    return *std::max_element(codes.begin(), codes.end());
}

int run_threads(const Config& cfg, const RankBody& body) {
    return run_threads(cfg, cfg.parallel.transport == TransportKind::Nccl, body);
}

static int run_over_mpi(const Config& cfg, const RankBody& body) {
    const MpiJob job = begin_mpi();
    RankMesh ranks(cfg.parallel, job.size, job.rank);
    for (int axis = 0; axis < kGroups; axis++) {
        const std::string what = fmt::format("connecting {}", group_rows[axis].name);
        const Waiting named(what.c_str(), Awaits::Ranks, start_patience());
        join_mpi(ranks.groups[axis], ranks.places[size_t(axis)].color, ranks.places[size_t(axis)].index);
    }
    join_progress(job.rank, job.size);
    const int code = run_rank(cfg, ranks.mesh, placements_over(ranks.mesh), body);
    ranks.mesh.world.barrier();
    wait_for_the_end();
    mpi_end();
    return code;
}

// The greetings of all processes, before they are connected.
template <class T> static std::vector<T> greet(const T& own) {
    const int world = launcher().world;
    std::vector<T> all(size_t(world), own);
    const std::string text(reinterpret_cast<const char*>(&own), sizeof own);
    const std::vector<std::string> texts = exchange_texts(text);
    for (int r = 0; r < world; r++) {
        CHECK_INPUT(texts[size_t(r)].size() == sizeof own, "rank {} is of another build", r);
        memcpy(&all[size_t(r)], texts[size_t(r)].data(), sizeof own);
    }
    return all;
}

static int run_over_tcp(const Config& cfg, const RankBody& body) {
    const int world = launcher().world, rank = launcher().rank;
    join_progress(rank, world);
    const TcpDoor door = tcp_listen(rendezvous_of_environment());
    RankMesh ranks(cfg.parallel, world, rank);
    tcp_begin(door, ranks, mesh_shape(cfg.parallel, world), greet(door.endpoint));
    const int code = run_rank(cfg, ranks.mesh, placements_over(ranks.mesh), body);
    ranks.mesh.world.barrier();
    wait_for_the_end();
    tcp_end();
    leave_processes();
    return code;
}

static int run_gpus(const Config& cfg, const RankBody& body) {
    const int world = launcher().world, rank = launcher().rank;
    join_progress(rank, world);
    const std::vector<GpuGreeting> all = greet(own_greeting(rank));
    RankMesh ranks(cfg.parallel, world, rank, true);
    const int code = run_gpu_rank(cfg, ranks, placements_of(all), all[0].id, body);
    wait_for_the_end();
    leave_processes();
    return code;
}

int run_ranks(const Config& cfg, const RankBody& body, const std::string& task) {
    if (member()) return run_elastic(cfg, body);
    context.rank = launcher().rank;
    const Carrier carrier = carrier_of(cfg);
    check_processes(cfg, task);
    check_mesh(cfg, std::max(planned_ranks(cfg.parallel), launcher().world));
    if (carrier == Carrier::Mpi) return run_over_mpi(cfg, body);
    if (carrier == Carrier::Tcp) return run_over_tcp(cfg, body);
    if (launcher().world > 1) return run_gpus(cfg, body);
    if (carrier != Carrier::None) return run_threads(cfg, carrier == Carrier::Nccl, body);
    join_progress(0, 1);
    Placements alone = {own_placement(on_gpus())};
    bind_to_gpu(alone, hosts_of(alone), 0);
    return run_rank(cfg, Mesh(), alone, body);
}

// The properties of a transport, for a plan; cannot send.
static const Transport& described(const ParallelConfig& p) {
    static constexpr Transport kinds[] = {
        {.name = "threads", .start = {}, .finish = {}, .start_send = {}, .finish_send = {}, .recv = {},
         .sums_natively = sums_in_order, .native_all_reduce = {}, .needs_staging = false},
        {.name = "tcp", .start = {}, .finish = {}, .start_send = {}, .finish_send = {}, .recv = {},
         .sums_natively = sums_in_order, .native_all_reduce = {}, .needs_staging = true},
        {.name = "mpi", .start = {}, .finish = {}, .start_send = {}, .finish_send = {}, .recv = {},
         .sums_natively = mpi_sums, .native_all_reduce = {}, .needs_staging = true},
        {.name = "nccl", .start = {}, .finish = {}, .start_send = {}, .finish_send = {}, .recv = {},
         .sums_natively = nccl_sums, .native_all_reduce = {}, .needs_staging = true, .on_device = true},
    };
    const bool processes = launcher().world > 1 || p.ranks == 0;
    if (goes_over_nccl(p)) return kinds[3];
    const bool mpi = p.transport == TransportKind::Mpi ||
                     (p.transport == TransportKind::Auto && processes && has_mpi() &&
                      meeting() != Meeting::Tcp);
    if (mpi) return kinds[2];
    return kinds[p.transport == TransportKind::Tcp || (p.transport == TransportKind::Auto && processes)];
}

std::unique_ptr<RankMesh> described_mesh(const ParallelConfig& p, int ranks, int rank) {
    const Transport& kind = described(p);
    auto m = std::make_unique<RankMesh>(p, ranks, rank, kind.on_device);
    for (Group& g : m->groups) g.transport = &kind;
    return m;
}

std::unique_ptr<RankMesh> described_stage(const ParallelConfig& p, int ranks, int stage) {
    return described_mesh(p, ranks, stage * stride_of(mesh_shape(p, ranks), kPp));
}

}  // namespace launching
