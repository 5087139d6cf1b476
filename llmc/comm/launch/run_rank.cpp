#include "llmc/comm/launch/run_rank.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/comm/agents/member.h"

inline namespace launching {

Placements placements_over(const Mesh& mesh) {
    const Placement own = own_placement(false);
    Placements placements(size_t(mesh.world.size), own);
    mesh.world.all_gather(reinterpret_cast<std::byte*>(placements.data()),
                          reinterpret_cast<const std::byte*>(&own), sizeof own);
    return placements;
}

// Makes the team of OpenMP's threads of a rank, and returns its size. libgomp ends the program where a thread
// cannot be made: the size is found out first, and the threads stay.
static int make_team(int wanted) {
    static std::mutex one_at_a_time;            // ranks of this process
    static std::atomic<bool> said = false;
    constexpr int kBeside = 2;                  // threads that read tokens and save
    std::lock_guard lock(one_at_a_time);
    const int possible = wanted > 1 ? possible_threads(wanted + kBeside) : wanted + kBeside;
    const int threads = std::max(1, possible - kBeside);
    if (threads < wanted && !said.exchange(true))
        warning("{} instead of run.threads = {}: {}", counted(threads, "thread"), wanted,
                no_thread());
    int made = 0;
    #pragma omp parallel num_threads(threads)
    #pragma omp atomic
    made++;
    return made;
}

static void print_placements(const Config& cfg, const Placements& placements, const Hosts& hosts) {
    if (placements.size() > 1) print_table(cfg, placements, hosts);
    for (const std::string& line : placement_warnings(cfg, placements, hosts)) warning("{}", line);
}

int run_rank(Config cfg, const Mesh& mesh, const Placements& placements, const RankBody& body) {
    context.rank = mesh.rank;
    const Hosts hosts = hosts_of(placements);
    const bool prints = !context.throw_on_fatal && (!member() || !member()->regroups());
    if (mesh.rank == 0 && prints) print_placements(cfg, placements, hosts);
    // a GPU's memory is its rank's
    context.host_ranks = placements[size_t(mesh.rank)].gpus ? 1 : hosts.host(mesh.rank).ranks;
    if (!cfg.run.threads) cfg.run.threads = threads_of_rank(placements, hosts, mesh.rank);
    context.threads = cfg.run.threads = make_team(cfg.run.threads);
    omp_set_num_threads(context.threads);
    return body(cfg, mesh);
}

}  // namespace launching
