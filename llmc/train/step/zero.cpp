// Memory, and weights by coordinates of the whole model; zero_comm.cpp has the collectives of a step.
#include "llmc/train/step/zero.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/context.h"
#include "llmc/base/numbers/rng.h"

namespace PRECISION {

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

// ---------------------------------------------------------------------------------------------------------
// weights by coordinates of the whole model

static void put_rounded(floatX* to, const real* values, size_t count) {
    static constexpr size_t kGrain = 8192;
    floatX rounded[kGrain];
    for (Interval rest{0, count}; !rest.empty();) {
        const Interval n = rest.take(kGrain);
        for (size_t i = 0; i < n.count; i++) rounded[i] = floatX(values[n.begin + i]);
        ops::copy_to_device(to + n.begin, rounded, n.count * sizeof(floatX));
    }
}
static void take_widened(real* out, const floatX* from, size_t count) {
    std::vector<floatX> values(count);
    ops::copy_to_host(values.data(), from, count * sizeof(floatX));
    std::copy(values.begin(), values.end(), out);
}

// The weights where they lie here, and the masters. elements: of the bucket.
void Zero::store(int b, Interval elements, const real* values) {
    const Interval rounded = common(home_of(b, Kept::Weights).elements, elements);
    if (!rounded.empty())
        put_rounded(weight(b, rounded.begin), values + (rounded.begin - elements.begin), rounded.count);
    if (!masters()) return;
    const Interval full = common(home_of(b, *masters()).elements, elements);
    if (!full.empty())
        ops::copy_to_device(state_at(*masters(), b, full.begin), values + (full.begin - elements.begin),
                            full.count * sizeof(real));
}

void Zero::import_tensor(const Tensor& whole, size_t first, size_t count, const real* in) {
    beat();
    stale = true;
    const Tensor* const t = tensor_here(whole.name);
    if (!t) return;
    const size_t start = layout.in_bucket(*t).begin;
    for (const Piece& p : pieces_of(*t, {0, t->param.used()}))
        for_each_run(p, size_t(t->param.whole_cols), {first, count},
                     [&](size_t local, size_t global, size_t n) {
            store(t->bucket, {start + local, n}, in + (global - first));
        });
}

// An element is given by its owner and zero bits elsewhere: a sum of integers brings every bit pattern over.
void Zero::export_tensor(const Tensor& whole, size_t first, size_t count, real* out) const {
    beat();
    using Bits = std::conditional_t<sizeof(real) == 8, int64_t, int32_t>;
    CHECK(count <= kExport || mesh.world.size == 1, "export of {} elements at once", count);
    std::fill(out, out + count, real(0));
    if (const Tensor* const t = tensor_here(whole.name)) {
        const size_t start = layout.in_bucket(*t).begin;
        for (const Piece& p : pieces_of(*t, owned(*t, Replicas::First)))
            for_each_run(p, size_t(t->param.whole_cols), {first, count},
                         [&](size_t local, size_t global, size_t n) {
                const size_t element = start + local;
                real* const to = out + (global - first);
                if (!masters()) take_widened(to, weight(t->bucket, element), n);
                else ops::copy_to_host(to, state_at(*masters(), t->bucket, element), n * sizeof(real));
            });
    }
    mesh.world.all_reduce(reinterpret_cast<Bits*>(out), count);
}

void Zero::init_weights(uint64_t seed) {
    static constexpr size_t kGrain = 2048;                    // elements of one thread at a time
    const size_t at_once = 8 * size_t(context.threads) * kGrain;
    std::vector<real> values(at_once);
    stale = true;
    for (const Tensor& t : layout.tensors) {
        beat();
        const double std = deviation(t.param, d);
        const real fixed = real(constant(t.param, t.layer, d));
        const uint64_t stream = stream_of(t.name.c_str());
        const Interval stored = home_of(t.bucket, Kept::Weights).elements;
        const size_t in_bucket = layout.in_bucket(t).begin;
        for (Interval rest{0, t.param.used()}; !rest.empty();) {
            const Interval now = rest.take(at_once);
            const auto here = [&](size_t local, size_t n) {
                return !common({in_bucket + local, n}, stored).empty();
            };
            #pragma omp parallel for num_threads(context.threads)
            for (size_t first = now.begin; first < now.end(); first += kGrain)
                for_each_run(t, common(now, {first, kGrain}), [&](size_t local, size_t global, size_t n) {
                    real* out = values.data() + (local - now.begin);
                    if (!here(local, n)) return;
                    for (size_t i = 0; i < n; i++)
                        out[i] = std > 0 ? real(std * normal(seed, stream, global + i))
                                        : fixed;
                });
            for_each_run(t, now, [&](size_t local, size_t, size_t n) {
                if (here(local, n))
                    store(t.bucket, {in_bucket + local, n}, values.data() + (local - now.begin));
            });
        }
    }
}

}  // namespace PRECISION
