#include "llmc/comm/launch/gpu_rank.h"

#include <algorithm>

#include "llmc/base/context.h"
#include "llmc/base/guard/generation.h"

inline namespace launching {

GpuGreeting own_greeting(int rank) {
    GpuGreeting own = {.placement = own_placement(true), .id = {}, .generation = own_generation};
    if (rank == 0 && own.placement.gpus) own.id = new_nccl_id();
    return own;
}

Placements placements_of(const std::vector<GpuGreeting>& all) {
    Placements placements;
    for (const GpuGreeting& g : all) placements.push_back(g.placement);
    return placements;
}

void check_generation(const std::vector<GpuGreeting>& all) {
    for (const GpuGreeting& g : all)
        if (g.generation != own_generation)
            lose_rank(__FILE__, __LINE__,
                      fmt::format("a rank of generation {} in generation {}", g.generation, own_generation));
}

int run_gpu_rank(const Config& cfg, RankMesh& ranks, Placements placements, const NcclId& id,
                 const RankBody& body) {
    const int rank = context.rank = ranks.mesh.rank;
    const Hosts hosts = hosts_of(placements);
    check_devices(placements, hosts);
    bind_to_gpu(placements, hosts, rank);
    int processors = placements[0].processors;
    for (const Placement& s : placements) processors = std::min(processors, s.processors);
    ranks.groups[index_of_group("shard")].all_to_all = cfg.optimizer.kind == OptimizerKind::Muon;
    ranks.groups[index_of_group("cp")].all_to_all = cfg.parallel.cp_kind == CpKind::Heads;
    nccl_begin(id, ranks, hosts.device[size_t(rank)],
               nccl_blocks(mesh_shape(cfg.parallel, int(placements.size())), processors));
    const int code = run_rank(cfg, ranks.mesh, placements, body);
    comm::idle_barrier();               // every rank has freed its memory
    ranks.mesh.world.barrier();
    comm::idle_barrier();
    nccl_end(false);
    return code;
}

}  // namespace launching
