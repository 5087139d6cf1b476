// Blocks in the host's memory; the memory of Zero, and the staging of its reductions.
#include <algorithm>

#include "llmc/train/step/whole_tensors.h"
#include "llmc/train/step/zero.h"

namespace PRECISION::inline step {

size_t HostedBlocks::largest_shard() const {
    size_t most = 0;
    for (size_t l = 0; l < shards->layout.block_at.size(); l++)
        most = std::max(most, shards->shard(shards->layout.block(int(l))));
    return most;
}

void HostedBlocks::add_weights_to(Arena& arena) {
    if (!of_shards()) return;
    for (floatX*& s : shard_of)
        arena.of(Purpose::Weights).add("shards of two blocks", &s, largest_shard());
}

void HostedBlocks::add_gradients_to(Arena& arena) {
    if (!shards || !shards->sharding.grads) return;
    for (real*& s : sums) arena.of(Purpose::Gradients).add("shards of two blocks", &s, largest_shard());
}

void HostedBlocks::bring(int l, floatX* whole, int buffer) {
    const int b = shards->layout.block(l);
    ops::start_copy_to_device(whole, shards->weight(b, 0), shards->layout.size(b) * sizeof(floatX));
    ops::mark_copies(came[buffer], CopyLane::ToDevice);
}

void HostedBlocks::request(int l) {
    if (std::find(requested, requested + 2, l) != requested + 2) return;
    const int b = shards->layout.block(l);
    requested[next] = l;
    ops::start_copy_to_device(shard_of[next], shards->weight_shard(b), shards->shard(b) * sizeof(floatX));
    ops::mark_copies(came[next], CopyLane::ToDevice);
    next = 1 - next;
}

const floatX* HostedBlocks::shard(int l) {
    request(l);
    const int here = requested[0] == l ? 0 : 1;
    await(here);
    return shard_of[here];
}

void HostedBlocks::leave(int l, const real* from) {
    const int b = shards->layout.block(l);
    const Home home = shards->home_of(b, Kept::Gradients);
    ops::start_copy_to_host(shards->gradient(b, home.elements.begin), from,
                            home.elements.count * sizeof(real));
    ops::mark_copies(left[l % 2], CopyLane::ToHost);
}

void HostedBlocks::await_all_left() const {
    for (const ops::CopyTicket& ticket : left) ops::await_copies(ticket);
}

// ---------------------------------------------------------------------------------------------------------
// the memory of Zero

size_t Zero::packed_count() const {
    return shards.mesh.tp.size == 1 ? 0 : shards.most_of_shards(partial_over_tp, elements_of);
}

void Zero::add_weights_to(Arena& arena, Arena& host) {
    const ArenaOf weights = arena.of(Purpose::Weights);
    shards.add_weights_to(arena, host);
    if (!fetches()) return;
    hosted.add_weights_to(arena);
    codes.add_to(weights);
    for (Gathered& g : gather_buffers) weights.add("gathered blocks", &g.memory, largest_block());
    if (sharding.weights) weights.add("gathered ends", &ends, ends_start(layout.count()));
}

void Zero::add_training_to(Arena& arena, Arena& host) {
    const ArenaOf gradients = arena.of(Purpose::Gradients);
    shards.add_gradients_to(arena, host);
    hosted.add_gradients_to(arena);
    for (real*& s : grad_buffers)
        gradients.add("gradients of two blocks", &s, buffers_grads() ? largest_block() : 0);
    if (vectors.shards) vectors.add_to(gradients);
    gradients.add("gradients to sum over tp", &packed, packed_count());
    shards.add_state_to(arena, host);
}

// An all-reduce works on equal slices.
static size_t staging_of(const Axis& axis, size_t count) {
    const size_t ranks = size_t(axis.size);
    return axis.reduce_staging((count + ranks - 1) / ranks * ranks * sizeof(real));
}

// Beside the staging of the other axes: a reduction over replicas and another one are in flight together.
size_t Zero::replica_staging() const {
    size_t most = 0;
    for (int b = 0; shards.trains && b < layout.count(); b++)
        most = std::max(most, staging_of(shards.group_of(b).replica, shards.shard(b)));
    return most;
}

size_t Zero::staging_bytes() const {
    size_t most = staging_of(shards.mesh.world, kExport);
    if (!shards.trains) return most;
    for (int b = 0; b < layout.count(); b++)
        most = std::max(most, staging_of(shards.group_of(b).shard, layout.size(b)));
    if (layout.wte >= 0 && shards.d.kind.tied)
        most = std::max(most, staging_of(shards.mesh.tied, shards.shard(layout.wte)));
    return most + replica_staging();
}

size_t Zero::tp_staging_bytes() const { return staging_of(shards.mesh.tp, packed_count()); }

void Zero::lend_staging(void* memory, size_t bytes) const {
    const size_t replicas = replica_staging(), shared = bytes - replicas;
    for (int b = 0; b < layout.count(); b++) {
        shards.group_of(b).shard.lend_staging(memory, shared);
        shards.group_of(b).replica.lend_staging(static_cast<std::byte*>(memory) + shared, replicas);
    }
    for (const Axis* axis : {&shards.mesh.tied, &shards.mesh.world}) axis->lend_staging(memory, shared);
}

}  // namespace PRECISION::step
