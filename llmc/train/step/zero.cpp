// Places, owners and memory. zero_comm.cpp has the collectives of a step, zero_whole.cpp weights by
// coordinates of the whole model.
#include "llmc/train/step/zero.h"

#include <algorithm>

namespace PRECISION::inline step {

static bool partial_over_tp(const Tensor& t) { return t.param.split == Split::None; }

Zero::Zero(const Dims& dims, const Part& part, const Mesh& on, const ZeroOptions& o)
    : d(dims), layout(make_layout(dims, part, size_t(on.shard.size), o.trailing)), mesh(on),
      sharding(o.sharding), overlap(o.overlap), trains(o.trains), offload(o.offload), state(o.state),
      blocks(int(part.layers.size())), begun(size_t(layout.count())) {
    for (const Kept kind : {Kept::Weights, Kept::Gradients, Kept::State}) {
        std::vector<size_t>& at = starts[size_t(kind)] = {0};
        for (int b = 0; b < layout.count(); b++) at.push_back(at.back() + kept(b, kind).count);
    }
    if (mesh.tp.size > 1) tp_runs = shard_runs(group_of(0).shard.index, partial_over_tp);
    for (StateSlot& slot : state) place_slot(slot);
    for (const Tensor& t : layout.tensors) by_name.emplace(t.name, &t);
}

// ---------------------------------------------------------------------------------------------------------
// places and owners

Interval Zero::shard_of(int b, int index) const {
    return part_of({0, layout.size(b)}, size_t(index), size_t(group_of(b).shard.size));
}

Interval Zero::kept(int b, Kept kind) const {
    const bool sharded[] = {sharding.weights, sharding.grads && is_block(b), sharding.state};
    return sharded[size_t(kind)] ? own(b) : Interval{0, layout.size(b)};
}

Home Zero::home_of(int b, Kept kind) const {
    return {kept(b, kind), starts[size_t(kind)][size_t(b)], offload && kind == Kept::State};
}

Home Zero::home_of(int b, const StateSlot& slot) const {
    Home home = home_of(b, Kept::State);
    if (!slot.of_trailing) home.elements = common(home.elements, {0, layout.leading[size_t(b)]});
    home.at = slot.at[size_t(b)];
    return home;
}

// The first of the ranks that have a tensor: of tp, where tensor parallelism does not cut it, and of the
// pipeline stages with a tied wte.
bool Zero::owns(const Tensor& t, int tp) const {
    return (t.param.split != Split::None || tp == 0) && (t.bucket != layout.wte || mesh.tied.index == 0);
}

Interval Zero::owned(const Tensor& t, Replicas replicas) const {
    if (!owns(t, mesh.tp.index)) return {};
    const Axis& replica = group_of(t.bucket).replica;
    if (replicas == Replicas::First && replica.index > 0) return {};
    const size_t parts = replicas == Replicas::Each ? size_t(replica.size) : 1;
    const Interval all = layout.in_bucket(t);
    return common(all, part_of(own(t.bucket), size_t(replica.index), parts)).from(all.begin);
}

std::vector<Run> Zero::owned_runs() const {
    return shard_runs(group_of(0).shard.index, [this](const Tensor& t) {
        return group_of(t.bucket).replica.index == 0 && owns(t, mesh.tp.index);
    });
}

size_t Zero::most_owned(size_t (*size)(const std::vector<Run>&)) const {
    size_t most = 0;
    for (int tp = 0; tp < std::min(2, mesh.tp.size); tp++)
        most = std::max(most, most_of_shards([&](const Tensor& t) { return owns(t, tp); }, size));
    return most;
}

const Tensor* Zero::tensor_here(const std::string& name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
}

std::vector<Run> Zero::shard_runs(int index, const Keeps& keep) const {
    std::vector<Run> runs;
    for (size_t i = 0; i < layout.tensors.size(); i++) {
        const Tensor& t = layout.tensors[i];
        if (!keep(t)) continue;
        const bool ends_bucket = i + 1 == layout.tensors.size() || layout.tensors[i + 1].bucket != t.bucket;
        const size_t end = ends_bucket ? layout.start(t.bucket + 1) : layout.tensors[i + 1].start;
        const Interval padded{layout.in_bucket(t).begin, end - t.start};
        const Interval here = common(padded, shard_of(t.bucket, index));
        if (here.empty()) continue;
        const bool joins = !runs.empty() && runs.back().bucket == t.bucket &&
                           runs.back().elements.end() == here.begin;
        if (joins) runs.back().elements.count += here.count;
        else runs.push_back({t.bucket, here});
    }
    return runs;
}

size_t Zero::most_of_shards(const Keeps& keep, size_t (*size)(const std::vector<Run>&)) const {
    size_t most = 0;
    for (int i = 0; i < group_of(0).shard.size; i++) most = std::max(most, size(shard_runs(i, keep)));
    return most;
}

// ---------------------------------------------------------------------------------------------------------
// memory

size_t Zero::largest_block() const {
    size_t most = 0;
    for (int l = 0; l < blocks; l++) most = std::max(most, layout.size(layout.block(l)));
    return most;
}

size_t Zero::ends_start(int end) const {
    size_t at = 0;
    for (int b = 0; b < end; b++)
        if (!is_block(b)) at += layout.size(b);
    return at;
}

size_t Zero::packed_count() const {
    if (mesh.tp.size == 1) return 0;
    return most_of_shards(partial_over_tp, [](const std::vector<Run>& runs) {
        size_t count = 0;
        for (const Run& run : runs) count += run.elements.count;
        return count;
    });
}

void Zero::add_weights_to(Arena& arena) {
    const ArenaOf weights = arena.of(Purpose::Weights);
    weights.add("weights", &params, starts[size_t(Kept::Weights)].back());
    if (!sharding.weights) return;
    for (Gathered& g : gather_buffers) weights.add("gathered blocks", &g.memory, largest_block());
    weights.add("gathered ends", &ends, ends_start(layout.count()));
}

void Zero::add_training_to(Arena& arena, Arena& host) {
    const ArenaOf gradients = arena.of(Purpose::Gradients);
    gradients.add("gradients", &grads, starts[size_t(Kept::Gradients)].back());
    for (real*& s : grad_buffers)
        gradients.add("gradients of two blocks", &s, sharding.grads ? largest_block() : 0);
    gradients.add("gradients to sum over tp", &packed, packed_count());
    for (StateSlot& slot : state) add_slot_to(arena, host, slot);
}

void Zero::add_masters_to(Arena& arena, Arena& host) {
    for (StateSlot& slot : state)
        if (slot.weights) add_slot_to(arena, host, slot);
}

size_t slot_named(const std::vector<StateSlot>& slots, std::string_view name) {
    for (size_t i = 0; i < slots.size(); i++)
        if (slots[i].name == name) return i;
    fatal(kExitInternal, __FILE__, __LINE__, "no optimizer state is named {}", name);
}

// As large on every rank of a pipeline stage.
void Zero::place_slot(StateSlot& slot) const {
    slot.at = {0};
    for (int b = 0; b < layout.count(); b++) {
        const size_t most = updated(b).count;
        slot.at.push_back(slot.at.back() +
                          (slot.of_trailing ? most : std::min(most, layout.leading[size_t(b)])));
    }
}

void Zero::add_slot_to(Arena& arena, Arena& host, StateSlot& slot) {
    (offload ? host : arena).of(Purpose::Optimizer).add(slot.planned, &slot.memory, slot.at.back());
}

// An all-reduce works on equal slices.
static size_t staging_of(const Axis& axis, size_t count) {
    const size_t ranks = size_t(axis.size);
    return axis.reduce_staging((count + ranks - 1) / ranks * ranks * sizeof(real));
}

size_t Zero::staging_bytes() const {
    size_t most = staging_of(mesh.world, kExport);
    if (!trains) return most;
    for (int b = 0; b < layout.count(); b++)
        most = std::max({most, staging_of(group_of(b).shard, layout.size(b)),
                         staging_of(group_of(b).replica, shard(b))});
    if (layout.wte >= 0 && d.kind.tied) most = std::max(most, staging_of(mesh.tied, shard(layout.wte)));
    return most;
}

size_t Zero::tp_staging_bytes() const { return staging_of(mesh.tp, packed_count()); }

void Zero::lend_staging(void* memory, size_t bytes) const {
    for (int b = 0; b < layout.count(); b++)
        for (const Axis* axis : {&group_of(b).shard, &group_of(b).replica}) axis->lend_staging(memory, bytes);
    for (const Axis* axis : {&mesh.tied, &mesh.world}) axis->lend_staging(memory, bytes);
}

}  // namespace PRECISION::step
