#include "llmc/train/step/health_meter.h"

#include <cmath>

#include "llmc/base/check.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/model/act_spreads.h"

namespace PRECISION::inline step {

HealthMeter::HealthMeter(const Config& c, const Shards& s, Gpt& g)
    : cfg(c.log), shards(s), gpt(g), activations(names_of_act_spreads(g.d.L)) {
    for (const Tensor& t : whole_tensors(shards.d)) {
        names.push_back(t.name);
        const Tensor* const here = shards.tensor_here(t.name);
        const Interval own = here ? shards.owned(*here, Shards::Replicas::First) : Interval();
        if (own.empty()) continue;
        const size_t start = shards.layout.in_bucket(*here).begin;
        runs.push_back({names.size() - 1, {here->bucket, {start + own.begin, own.count}}});
        most_blocks = std::max(most_blocks, ops::norm_blocks(own.count));
    }
}

void HealthMeter::add_to(Arena& arena, size_t elements) {
    const char* const what = "statistics of tensors";
    const Axis& world = shards.mesh.world;
    if (cfg.health) {
        arena.add(what, &sums, most_blocks);
        arena.add(what, &mine, names.size());
        arena.add(what, &all, world.staging(size_t(world.size) * names.size()));
        arena.add(what, &squares, names.size());
    }
    arena.add(what, &spreads, spread_count());
    arena.add(what, &before, elements);
}

void HealthMeter::begin_as(bool measures, int64_t step) {
    measuring = measures;
    now = step;
    gpt.spreads = measuring ? spreads + kKinds * names.size() : nullptr;
    if (measuring) ops::set_zero(spreads, spread_count() * sizeof(Spread));
}

// A pass of its own: the blocks of the whole gradient norm span tensors, and another order of its sum would
// change the bits of the training.
void HealthMeter::sum_squares(int bucket, const real* shard) {
    if (!cfg.health) return;
    for (const TensorRun& r : runs)
        if (r.run.bucket == bucket) ops::set_zero(mine + r.tensor, sizeof *mine);
    for (const TensorRun& r : runs) {
        if (r.run.bucket != bucket) continue;
        const Interval own = r.run.elements;
        ops::sum_of_squares(sums, shard + (own.begin - shards.own(bucket).begin), own.count);
        ops::sum_in_order(mine + r.tensor, sums, ops::norm_blocks(own.count));
    }
}

void HealthMeter::sum_squares() {
    if (!cfg.health) return;
    for (int b = 0; b < shards.layout.count(); b++)
        if (!shards.on_host(b)) sum_squares(b, shards.grad_shard(b));
    const Axis& world = shards.mesh.world;
    ops::sum_rows(squares, world.all_gather(all, mine, names.size()), world.size, int(names.size()));
}

// Calls f(tensor, at, count) for the elements of each run among those of the update; at: from their start.
template <class F> void HealthMeter::for_each_updated(const Updated& u, F&& f) const {
    for (const TensorRun& r : runs) {
        if (r.run.bucket != u.run.bucket) continue;
        const Interval both = common(r.run.elements, u.run.elements);
        if (!both.empty()) f(r.tensor, both.begin - u.run.elements.begin, both.count);
    }
}

void HealthMeter::before_update(const Updated& u) {
    for_each_updated(u, [&](size_t, size_t at, size_t count) {
        if (u.master) ops::copy_on_device(before + at, u.master + at, count * sizeof(real));
        else ops::copy_on_device(stored_before() + at, u.param + at, count * sizeof(floatX));
    });
}

void HealthMeter::after_update(const Updated& u) {
    beat();
    for_each_updated(u, [&](size_t tensor, size_t at, size_t count) {
        ops::spread(of(kGradient, tensor), u.gradient + at, count);
        if (u.master) {
            ops::spread(of(kWeight, tensor), u.master + at, count);
            ops::spread_of_change(of(kUpdate, tensor), u.master + at, before + at, count);
        } else {
            ops::spread_of_stored(of(kWeight, tensor), u.param + at, count);
            ops::spread_of_stored_change(of(kUpdate, tensor), u.param + at, stored_before() + at, count);
        }
    });
}

Health HealthMeter::collect() {
    CHECK(measuring, "statistics of tensors: step {} has none", now);
    measuring = false;
    gpt.spreads = nullptr;
    std::vector<Spread> of_all(spread_count());
    ops::copy_to_host(of_all.data(), spreads, of_all.size() * sizeof(Spread));
    constexpr size_t kAtOnce = 64;                          // spreads of a rank in one gather
    const Axis& world = shards.mesh.world;
    for (Interval rest{0, of_all.size()}; world.size > 1 && !rest.empty();) {
        const auto [first, n] = rest.take(kAtOnce);
        std::vector<Spread> gathered(n * size_t(world.size));
        world.all_gather(&gathered[0].count, &of_all[first].count, n * kSpreadWords);
        std::fill_n(of_all.begin() + ptrdiff_t(first), n, Spread());
        for (size_t i = 0; i < gathered.size(); i++) add_spread(of_all[first + i % n], gathered[i]);
    }
    Health health{.step = now, .tensors = {}, .activations = {}};
    const size_t count = names.size();
    for (size_t i = 0; i < count; i++)
        health.tensors.push_back({names[i], of_all[i], of_all[count + i], of_all[2 * count + i]});
    for (size_t i = 0; i < activations.size(); i++)
        health.activations.push_back({activations[i], of_all[kKinds * count + i]});
    return health;
}

}  // namespace PRECISION::step
