#include "llmc/comm/mesh.h"

#include "llmc/base/check.h"
#include "llmc/base/console.h"

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
    // gradients are what is reduced over these two
    for (Axis* a : {&mesh.shard, &mesh.replica}) {
        if (!a->group) continue;
        a->group->native = p.reduce == "native" || (p.reduce == "auto" && over_nccl);
        a->group->bf16_wire = p.reduce_dtype == "bf16";
    }
}

static int largest_divisor(int n, int most) {
    int d = std::min(n, most);
    while (n % d) d--;
    return d;
}

static void check_axes(const ParallelConfig& p, const ModelConfig& m, int ranks) {
    CHECK_INPUT(p.cp == 1, "parallel.cp = %d: context parallelism is not in this version yet; set it to 1",
                p.cp);
    const int unit = p.tp * p.pp;
    CHECK_INPUT(ranks % unit == 0,
                "parallel.tp x parallel.pp = %d x %d = %d does not divide the %s of this job: start a "
                "multiple of %d ranks, or make parallel.tp or parallel.pp smaller",
                p.tp, p.pp, unit, counted(ranks, "rank").c_str(), unit);
    CHECK_INPUT(
        m.heads % p.tp == 0,
        "parallel.tp = %d does not divide model.heads = %d: each rank computes whole heads; the largest "
        "that does is %d",
        p.tp, m.heads, largest_divisor(m.heads, p.tp));
    CHECK_INPUT(p.schedule == "interleaved" || p.virtual_stages == 1,
                "parallel.virtual_stages = %d: only parallel.schedule = interleaved has virtual stages",
                p.virtual_stages);
    const int stages = p.pp * p.virtual_stages;
    CHECK_INPUT(
        m.layers >= stages,
        "parallel.pp x parallel.virtual_stages = %d x %d = %d stages are more than model.layers = %d: "
        "each needs a layer",
        p.pp, p.virtual_stages, stages, m.layers);
    const int dp = ranks / unit;
    CHECK_INPUT(
        p.zero_group == 0 || dp % p.zero_group == 0,
        "parallel.zero_group = %d does not divide the %d data-parallel ranks (%d ranks over tp x pp = %d); "
        "the largest that does is %d",
        p.zero_group, dp, ranks, unit, largest_divisor(dp, p.zero_group));
}

// Every rank has the same number of micro-batches in each step.
static void check_batch(const Config& c, int dp) {
    const long long batch = c.train.batch_tokens, T = c.model.context,
                    rows = std::max(c.train.micro_batch, 1);
    const long long unit = rows * T * dp, below = batch / unit * unit;
    const std::string nearest = below == 0 ? strf("the least is %lld", unit) :
        strf("the nearest are %lld and %lld", below, below + unit);
    CHECK_INPUT(
        batch % unit == 0,
        "train.batch_tokens = %lld is no multiple of %d data-parallel ranks x train.micro_batch = %lld x "
        "model.context = %lld, which is %lld: %s",
        batch, dp, rows, T, unit, nearest.c_str());
    const ParallelConfig& p = c.parallel;
    if (p.virtual_stages == 1 || p.pp == 1 || c.train.micro_batch == 0) return;
    CHECK_INPUT(
        batch / unit % p.pp == 0,
        "parallel.schedule = interleaved: the %lld micro-batches of a step (train.batch_tokens = %lld over "
        "%lld tokens) are no multiple of parallel.pp = %d",
        batch / unit, batch, unit, p.pp);
}

void check_mesh(const Config& c, int ranks) {
    check_axes(c.parallel, c.model, ranks);
    check_batch(c, ranks / (c.parallel.tp * c.parallel.pp));
    CHECK_INPUT(
        c.parallel.reduce_dtype == "fp32" || c.run.precision != "fp64",
        "parallel.reduce_dtype = %s: with run.precision = fp64 gradients travel in fp64; leave it at fp32",
        c.parallel.reduce_dtype.c_str());
}
