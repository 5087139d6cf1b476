#include "llmc/train/step/shards.h"

#include <algorithm>
#include <numeric>

#include "llmc/base/check.h"
#include "llmc/comm/flip_here.h"

namespace PRECISION::inline step {

// Elements of the tensors, one after the other from `at` on, that lie whole in one shard.
static size_t whole_in_a_shard(std::span<Tensor* const> tensors, size_t at, size_t shard) {
    size_t whole = 0;
    for (const Tensor* t : tensors) {
        const size_t count = t->param.count();
        if (at / shard == (at + count - 1) / shard) whole += count;
        at += aligned(count);
    }
    return whole;
}

// Reorders the tensors of a block: as many elements as possible are in tensors that no shard cuts.
// Every other block has the reversed order, if that is as good: owners alternate.
static void keep_whole(std::vector<Tensor*>& tensors, size_t at, size_t shard) {
    constexpr size_t kMost = 6;         // 720 orders
    if (tensors.empty() || tensors.size() > kMost) return;
    std::vector<size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<Tensor*> best = tensors, tried = tensors;
    size_t most = whole_in_a_shard(best, at, shard);
    while (std::next_permutation(order.begin(), order.end())) {
        for (size_t i = 0; i < order.size(); i++) tried[i] = tensors[order[i]];
        const size_t whole = whole_in_a_shard(tried, at, shard);
        if (whole > most) {
            most = whole;
            best = tried;
        }
    }
    tried.assign(best.rbegin(), best.rend());
    const bool reverse = best[0]->layer % 2 != 0 && whole_in_a_shard(tried, at, shard) == most;
    tensors = reverse ? tried : best;
}

Layout sharded_layout(const Dims& d, const Part& part, size_t shards,
                      const std::vector<std::string>& trailing, size_t replicas,
                      const std::vector<std::string>& coded) {
    const size_t slices = replicas / std::gcd(replicas, kTensorAlign);      // a shard is a multiple of 64
    Packing packing = {.parts = shards * slices, .trailing = trailing, .coded = coded};
    if (shards > 1)
        packing.order = [shards](std::vector<Tensor*>& tensors, size_t at, size_t size) {
            keep_whole(tensors, at, size / shards);
        };
    return make_layout(d, part, packing);
}

Shards::Shards(const Dims& dims, const Part& part, const Mesh& on, const ShardOptions& o)
    : d(dims), layout(sharded_layout(dims, part, size_t(on.shard.size), o.trailing, size_t(on.replica.size),
                                     o.coded)),
      mesh(on), sharding(o.sharding), trains(o.trains), offload(o.offload), hosts_blocks(o.hosts_blocks),
      state(o.state) {
    for (const Kept kind : {Kept::Weights, Kept::Gradients, Kept::State})
        for (int b = 0; b < layout.count(); b++) {
            starts[size_t(kind)].push_back(0);          // home_of() reads it
            size_t& count = counts[size_t(kind)][home_of(b, kind).on_host];
            starts[size_t(kind)].back() = count;
            count += kept(b, kind).count;
        }
    for (StateSlot& slot : state) place_slot(slot);
    for (const Tensor& t : layout.tensors) by_name.emplace(t.name, &t);
}

// ---------------------------------------------------------------------------------------------------------
// places and owners

Interval Shards::shard_of(int b, int index) const {
    return part_of({0, layout.size(b)}, size_t(index), size_t(group_of(b).shard.size));
}

Interval Shards::kept(int b, Kept kind) const {
    // a gradient leaves the device as what this rank updates
    const bool grads = on_host(b) ? sharding.state : sharding.grads && is_block(b);
    const bool sharded[] = {sharding.weights, grads, sharding.state};
    return sharded[size_t(kind)] ? own(b) : Interval{0, layout.size(b)};
}

Home Shards::home_of(int b, Kept kind) const {
    return {kept(b, kind), starts[size_t(kind)][size_t(b)], kind == Kept::State ? offload : on_host(b)};
}

Home Shards::home_of(int b, const StateSlot& slot) const {
    Home home = home_of(b, Kept::State);
    if (!slot.of_trailing) home.elements = common(home.elements, {0, layout.leading[size_t(b)]});
    home.at = slot.at[size_t(b)];
    return home;
}

// The first of the ranks that have a tensor: of tp, where tensor parallelism does not cut it, and of the
// pipeline stages with a tied wte.
bool Shards::owns(const Tensor& t, int tp) const {
    return (t.param.split != Split::None || tp == 0) && (t.bucket != layout.wte || mesh.tied.index == 0);
}

Interval Shards::owned(const Tensor& t, Replicas replicas) const {
    if (!owns(t, mesh.tp.index)) return {};
    const Axis& replica = group_of(t.bucket).replica;
    if (replicas == Replicas::First && replica.index > 0) return {};
    const size_t parts = replicas == Replicas::Each ? size_t(replica.size) : 1;
    const Interval all = layout.in_bucket(t);
    return common(all, part_of(own(t.bucket), size_t(replica.index), parts)).from(all.begin);
}

std::vector<Run> Shards::owned_runs() const {
    return own_runs([this](const Tensor& t) {
        return group_of(t.bucket).replica.index == 0 && owns(t, mesh.tp.index);
    });
}

size_t Shards::most_owned(size_t (*size)(const std::vector<Run>&)) const {
    size_t most = 0;
    for (int tp = 0; tp < std::min(2, mesh.tp.size); tp++)
        most = std::max(most, most_of_shards([&](const Tensor& t) { return owns(t, tp); }, size));
    return most;
}

const Tensor* Shards::tensor_here(const std::string& name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
}

std::vector<Run> Shards::runs_in(const Keeps& keep,
                                 const std::function<Interval(int)>& elements) const {
    std::vector<Run> runs;
    for (size_t i = 0; i < layout.tensors.size(); i++) {
        const Tensor& t = layout.tensors[i];
        if (!keep(t)) continue;
        const bool ends_bucket = i + 1 == layout.tensors.size() || layout.tensors[i + 1].bucket != t.bucket;
        const size_t end = ends_bucket ? layout.start(t.bucket + 1) : layout.tensors[i + 1].start;
        const Interval padded{layout.in_bucket(t).begin, end - t.start};
        const Interval here = common(padded, elements(t.bucket));
        if (here.empty()) continue;
        const bool joins = !runs.empty() && runs.back().bucket == t.bucket &&
                           runs.back().elements.end() == here.begin;
        if (joins) runs.back().elements.count += here.count;
        else runs.push_back({t.bucket, here});
    }
    return runs;
}

std::vector<Run> Shards::own_runs(const Keeps& keep) const {
    return runs_in(keep, [this](int b) { return own(b); });
}

size_t Shards::most_of_shards(const Keeps& keep, size_t (*size)(const std::vector<Run>&)) const {
    size_t most = 0;
    for (int i = 0; i < mesh.shard.size; i++)
        most = std::max(most, size(runs_in(keep, [&](int b) { return shard_of(b, i); })));
    return most;
}

// ---------------------------------------------------------------------------------------------------------
// memory

void Shards::add_weights_to(Arena& arena, Arena& host) {
    arena.of(Purpose::Weights).add("weights", &params, count_of(Kept::Weights, false));
    if (hosts_blocks)
        host.of(Purpose::Weights).add("weights of blocks", &host_params, count_of(Kept::Weights, true));
}

void Shards::add_gradients_to(Arena& arena, Arena& host) {
    arena.of(Purpose::Gradients).add("gradients", &grads, count_of(Kept::Gradients, false));
    if (!hosts_blocks) return;
    host.of(Purpose::Gradients).add("gradients of blocks", &host_grads, count_of(Kept::Gradients, true));
}

void Shards::add_state_to(Arena& arena, Arena& host) {
    for (StateSlot& slot : state) add_slot_to(arena, host, slot);
}

void Shards::add_masters_to(Arena& arena, Arena& host) {
    for (StateSlot& slot : state) if (slot.weights) add_slot_to(arena, host, slot);
}

size_t slot_named(const std::vector<StateSlot>& slots, std::string_view name) {
    for (size_t i = 0; i < slots.size(); i++)
        if (slots[i].name == name) return i;
    fatal(kExitInternal, __FILE__, __LINE__, "no optimizer state is named {}", name);
}

// As large on every rank of a pipeline stage.
void Shards::place_slot(StateSlot& slot) const {
    slot.at = {0};
    for (int b = 0; b < layout.count(); b++) {
        const size_t most = updated(b).count;
        slot.at.push_back(slot.at.back() +
                          (slot.of_trailing ? most : std::min(most, layout.leading[size_t(b)])));
    }
}

void Shards::add_slot_to(Arena& arena, Arena& host, StateSlot& slot) {
    (offload ? host : arena).of(Purpose::Optimizer).add(slot.planned, &slot.memory,
                                                        slot.bytes(slot.at.back()));
}

// ---------------------------------------------------------------------------------------------------------
// flipped bits, for tests

void Shards::flip_state_if_asked() const {
    if (flip_asked != Flip::Weights && flip_asked != Flip::Moments) return;
    for (const Tensor& t : layout.tensors) {
        const Interval here = common(layout.in_bucket(t), home_of(t.bucket, Kept::Weights).elements);
        flip_if_asked(Flip::Weights, here.empty() ? nullptr : weight(t.bucket, here.begin),
                      here.count * sizeof(floatX));
    }
    for (const StateSlot& slot : state)
        for (const Tensor& t : layout.tensors) {
            const Interval here = common(layout.in_bucket(t), home_of(t.bucket, slot).elements);
            if (!here.empty())
                flip_if_asked(slot.weights ? Flip::Weights : Flip::Moments,
                              state_at(slot, t.bucket, here.begin), slot.bytes(here.count));
        }
}

void Shards::flip_gradients_if_asked(int bucket, const real* whole) const {
    if (flip_asked != Flip::Gradients) return;
    for (const Tensor& t : layout.tensors)
        if (t.bucket == bucket)
            flip_if_asked(Flip::Gradients, whole + layout.in_bucket(t).begin,
                          layout.in_bucket(t).count * sizeof(real));
}

// ---------------------------------------------------------------------------------------------------------
// codes

// The rest of all blocks lies on the first rank, and is a small part of them.
static bool can_be_codes(const Shards& shards) {
    constexpr size_t kShare = 16;
    if (shards.hosts_blocks) return false;      // a block comes as it lies there
    const Layout& layout = shards.layout;
    for (int b = 0; b < layout.count(); b++) {
        const size_t rest = layout.coded[size_t(b)];
        if (shards.is_block(b) && (rest * kShare > layout.size(b) || rest > shards.shard(b))) return false;
    }
    return shards.sharding.weights;
}

CodedShards::CodedShards(const Shards& of) {
    if (!can_be_codes(of)) return;
    shards = &of;
    size_t codes_at = 0, rest_at = 0;
    for (size_t l = 0; l < of.layout.block_at.size(); l++) {
        const int b = of.layout.block(int(l));
        blocks.push_back({CodedPlace(of.layout, int(l)), b, codes_at, rest_at});
        codes_at += of.shard(b);
        rest_at += of.layout.coded[size_t(b)];
    }
}

void CodedShards::add_to(ArenaOf weights) {
    if (!shards) return;
    const size_t ranks = size_t(shards->mesh.tp.size) * size_t(shards->mesh.shard.size);
    weights.add("FP8 codes of shards", &codes, blocks.back().codes_at + shards->shard(blocks.back().bucket));
    weights.add("gathered biases and gains", &rest, rest_count());
    weights.add("FP8 codes of shards", &parts, count() * size_t(ops::kFp8Parts));
    weights.add("FP8 codes of shards", &gathered, ranks * count());
    weights.add("FP8 codes of shards", &amaxes, count());
    weights.add("FP8 codes of shards", &inverses, count());
}

// Of each matrix the largest element over all ranks that have a part of it.
void CodedShards::merge() {
    const Axis &shard = shards->mesh.shard, &tp = shards->mesh.tp;
    const int sets = int(count()), parts_of = ops::kFp8Parts;
    float* const of_tp = gathered + size_t(tp.index) * size_t(shard.size) * count();
    ops::merge_amaxes(amaxes, nullptr, {parts, sets, parts_of, parts_of, 1});
    shard.all_gather(of_tp, amaxes, count());
    tp.all_gather(gathered, of_tp, size_t(shard.size) * count());
    ops::merge_amaxes(amaxes, inverses, {gathered, sets, tp.size * shard.size, 1, sets});
}

void CodedShards::refresh() {
    if (version == shards->version) return;
    version = shards->version;
    ops::set_zero(parts, count() * size_t(ops::kFp8Parts) * sizeof(float));
    for_parts([&](size_t matrix, const floatX* weights, size_t, size_t elements) {
        ops::largest(parts + matrix * size_t(ops::kFp8Parts), weights, elements);
    });
    merge();
    for_parts([&](size_t matrix, const floatX* weights, size_t at, size_t elements) {
        ops::quantize({codes + at, inverses + matrix, Fp8::E4M3}, nullptr, weights, amaxes + matrix, 1,
                      kFp8Unit, int(elements / kFp8Unit));
    });
    const Axis& shard = shards->mesh.shard;
    for (const Block& block : blocks)
        if (shard.index == 0)
            ops::copy(rest + block.rest_at, shards->weight_shard(block.bucket),
                      shards->layout.coded[size_t(block.bucket)]);
    shard.broadcast(rest, rest_count(), 0);
}

}  // namespace PRECISION::step
