#include "llmc/comm/mesh.h"

const char* const axis_names[kAxes] = {"pp", "cp", "tp", "shard", "replica", "tied", "world"};
Axis Mesh::*const mesh_axes[kAxes] = {&Mesh::pp,      &Mesh::cp,   &Mesh::tp,   &Mesh::shard,
                                      &Mesh::replica, &Mesh::tied, &Mesh::world};

MeshShape mesh_shape(const ParallelConfig& p, int ranks) {
    MeshShape s = {.dp = ranks / (p.tp * p.pp * p.cp), .pp = p.pp, .cp = p.cp, .tp = p.tp};
    s.shard = p.zero_group ? p.zero_group : s.dp * s.cp;
    return s;
}

Position data_parallel_of(const MeshShape& s, int rank) { return {rank / (s.tp * s.cp * s.pp), s.dp}; }

std::array<Place, kAxes> places_of(const MeshShape& s, int rank) {
    const int per_cp = s.tp, per_pp = per_cp * s.cp, per_dp = per_pp * s.pp;
    const int tp = rank % s.tp, cp = rank / per_cp % s.cp, pp = rank / per_pp % s.pp, dp = rank / per_dp;
    // gradients are partial over dp x cp: its ranks, from 0 on, are cut into shards and replicas
    const int copies = s.dp * s.cp, copy = dp * s.cp + cp, shard = copy % s.shard, replica = copy / s.shard;
    const auto rank_of_copy = [&](int i) {
        return rank + (i / s.cp - dp) * per_dp + (i % s.cp - cp) * per_cp;
    };
    const bool ties = s.pp > 1 && (pp == 0 || pp == s.pp - 1);
    return {{
        {pp, s.pp, rank - pp * per_pp},
        {cp, s.cp, rank - cp * per_cp},
        {tp, s.tp, rank - tp},
        {shard, s.shard, rank_of_copy(copy - shard)},
        {replica, copies / s.shard, rank_of_copy(shard)},
        {ties && pp > 0, ties ? 2 : 1, ties ? rank - pp * per_pp : rank},
        {rank, s.dp * per_dp, 0},
    }};
}

RankMesh::RankMesh(const ParallelConfig& p, int ranks, int rank, bool over_nccl)
    : places(places_of(mesh_shape(p, ranks), rank)) {
    ring = p.virtual_stages > 1;
    mesh.rank = rank;
    mesh.dp = data_parallel_of(mesh_shape(p, ranks), rank);
    for (int i = 0; i < kAxes; i++) {
        const Place& at = places[size_t(i)];
        Group& g = groups[i];
        g.name = axis_names[i];
        g.index = at.index;
        g.size = at.size;
        mesh.*mesh_axes[i] = {.index = at.index, .size = at.size, .group = at.size > 1 ? &g : nullptr};
    }
    // gradients are reduced over these two axes
    for (Axis* a : {&mesh.shard, &mesh.replica}) {
        if (!a->group) continue;
        a->group->native = p.reduce == ReduceOrder::Native || (p.reduce == ReduceOrder::Auto && over_nccl);
        a->group->bf16_wire = p.reduce_dtype == ReduceDtype::Bf16;
    }
}
