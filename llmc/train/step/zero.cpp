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
    size_t at = 0;
    for (int b = 0; b < layout.count(); b++) {
        grads_at.push_back(at);
        at += buffers_grads(b) ? shard(b) : layout.size(b);
    }
    grads_at.push_back(at);
    if (mesh.tp.size > 1) tp_runs = shard_runs(partial_over_tp);
    for (StateSlot& slot : state) place_slot(slot);

    const bool first_copy = mesh.replica.index == 0;
    for (const Tensor& t : layout.tensors) {
        Held h{&t, pieces_of(t, 0, t.param.count()), {}};
        const size_t base = layout.start(t.bucket) + own_offset(t.bucket);
        const size_t from = std::max(t.start, base),
                     to = std::min(t.start + t.param.count(), base + shard(t.bucket));
        const bool another_gives = !first_copy || (t.param.split == Split::None && mesh.tp.index > 0) ||
                                   (t.bucket == layout.wte && mesh.tied.index > 0);
        if (from < to && !another_gives) h.given = pieces_of(t, from - t.start, to - from);
        held.emplace(t.name, std::move(h));
    }
}

// Padding ends a tensor, and a shard ends between tensors or cuts one: the pieces follow each other.
std::optional<Zero::Run> Zero::counted_run(const std::string& name) const {
    const auto found = held.find(name);
    if (found == held.end() || found->second.given.empty()) return std::nullopt;
    const Tensor& t = *found->second.tensor;
    const std::vector<Piece>& pieces = found->second.given;
    Run run{t.bucket, t.start - layout.start(t.bucket) + pieces.front().at - own_offset(t.bucket), 0};
    for (const Piece& p : pieces) {
        CHECK(p.at == pieces.front().at + run.count, "{}: padding inside a shard", name);
        run.count += p.count();
    }
    return run;
}

int Zero::largest(bool of_blocks) const {
    int best = of_blocks ? layout.blocks : 0;
    for (int b = 0; b < layout.count(); b++)
        if ((!of_blocks || is_block(b)) && layout.size(b) > layout.size(best)) best = b;
    return best;
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
        for (const Run& run : runs) count += run.count;
        return count;
    });
}

void Zero::add_weights_to(Arena& arena) {
    const ArenaOf weights = arena.of(Purpose::Weights);
    weights.add("weights", &params, stored_size(sharding.weights));
    if (!sharding.weights) return;
    for (Gathered& g : gather_buffers) weights.add("gathered blocks", &g.memory, layout.size(largest(true)));
    weights.add("gathered ends", &ends, ends_start(layout.count()));
}

void Zero::add_training_to(Arena& arena, Arena& host) {
    const ArenaOf gradients = arena.of(Purpose::Gradients);
    gradients.add("gradients", &grads, grads_at.back());
    for (real*& s : grad_buffers)
        gradients.add("gradients of two blocks", &s, sharding.grads ? layout.size(largest(true)) : 0);
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
        const size_t most = sharding.state ? shard(b) : layout.size(b);
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
    const int b = largest(false);
    most = std::max(most, staging_of(mesh.shard, layout.size(b)));
    most = std::max(most, staging_of(mesh.replica, shard(b)));
    if (layout.wte >= 0 && d.kind.tied) most = std::max(most, staging_of(mesh.tied, shard(layout.wte)));
    return most;
}

size_t Zero::tp_staging_bytes() const { return staging_of(mesh.tp, packed_count()); }

void Zero::lend_staging(void* memory, size_t bytes) const {
    for (const Axis* axis : {&mesh.shard, &mesh.replica, &mesh.tied, &mesh.world})
        axis->lend_staging(memory, bytes);
}

static void put_rounded(floatX* to, const real* values, size_t count) {
    static constexpr size_t kGrain = 8192;
    floatX rounded[kGrain];
    for (size_t at = 0; at < count; at += kGrain) {
        const size_t n = std::min(kGrain, count - at);
        for (size_t i = 0; i < n; i++) rounded[i] = floatX(values[at + i]);
        ops::copy_to_device(to + at, rounded, n * sizeof(floatX));
    }
}
static void take_widened(real* out, const floatX* from, size_t count) {
    std::vector<floatX> values(count);
    ops::copy_to_host(values.data(), from, count * sizeof(floatX));
    std::copy(values.begin(), values.end(), out);
}

// Calls f(at, skip, n) for the overlap of `e` with elements first .. first + count of a bucket: n elements at
// `at` in the buffer, behind the first `skip` of the range.
template <class F> static void overlap_of(const Zero::Extent& e, size_t first, size_t count, F&& f) {
    const size_t from = std::max(first, e.from), to = std::min(first + count, e.from + e.count);
    if (from < to) f(e.at + (from - e.from), from - first, to - from);
}

// The weights where they lie here, and the masters.
void Zero::store(const Tensor& t, size_t first, size_t count, const real* values) {
    const int b = t.bucket;
    const size_t in_bucket = t.start - layout.start(b) + first;
    overlap_of(stored_weights(b), in_bucket, count, [&](size_t at, size_t skip, size_t n) {
        put_rounded(params + at, values + skip, n);
    });
    real* const masters = master();
    if (!masters) return;
    overlap_of(stored_state(b), in_bucket, count, [&](size_t at, size_t skip, size_t n) {
        ops::copy_to_device(masters + at, values + skip, n * sizeof(real));
    });
}

void Zero::import_tensor(const Tensor& t, size_t first, size_t count, const real* in) {
    beat();
    stale = true;
    const auto found = held.find(t.name);
    if (found == held.end()) return;
    const Held& h = found->second;
    const size_t cols = size_t(h.tensor->param.whole_cols);
    for (const Piece& p : h.pieces)
        for_each_run(p, cols, first, count, [&](size_t local, size_t global, size_t n) {
            store(*h.tensor, local, n, in + (global - first));
        });
}

// An element is given by one rank and zero bits elsewhere: a sum of integers brings every bit pattern over.
void Zero::export_tensor(const Tensor& t, size_t first, size_t count, real* out) const {
    beat();
    using Bits = std::conditional_t<sizeof(real) == 8, int64_t, int32_t>;
    CHECK(count <= kExport || mesh.world.size == 1, "export of {} elements at once", count);
    std::fill(out, out + count, real(0));
    const auto found = held.find(t.name);
    const real* const masters = master();
    if (found != held.end()) {
        const Held& h = found->second;
        const int b = h.tensor->bucket;
        const size_t in_bucket = h.tensor->start - layout.start(b), cols = size_t(h.tensor->param.whole_cols);
        const Extent own = stored_state(b);
        for (const Piece& p : h.given)
            for_each_run(p, cols, first, count, [&](size_t local, size_t global, size_t n) {
                const size_t at = in_bucket + local - own.from;
                real* to = out + (global - first);
                if (masters) ops::copy_to_host(to, masters + own.at + at, n * sizeof(real));
                else take_widened(to, owned_params(b) + at, n);
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
        const size_t used = t.param.used();
        const Extent here = stored_weights(t.bucket);
        const size_t base = layout.start(t.bucket) + here.from;
        const auto elsewhere = [&](size_t first, size_t count) {
            const size_t from = t.start + first;
            return from >= base + here.count || from + count <= base;
        };
        for (size_t start = 0; start < used; start += at_once) {
            const size_t end = std::min(used, start + at_once);
            #pragma omp parallel for num_threads(context.threads)
            for (size_t first = start; first < end; first += kGrain)
                for_each_run(t, first, std::min(kGrain, end - first),
                             [&](size_t local, size_t global, size_t n) {
                    real* out = values.data() + (local - start);
                    if (elsewhere(local, n)) return;
                    for (size_t i = 0; i < n; i++)
                        out[i] = std > 0 ? real(std * normal(seed, stream, global + i))
                                        : fixed;
                });
            for_each_run(t, start, end - start, [&](size_t local, size_t, size_t n) {
                if (!elsewhere(local, n)) store(t, local, n, values.data() + (local - start));
            });
        }
    }
}

}  // namespace PRECISION
