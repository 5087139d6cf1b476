// At most one gather and one reduction are in flight. A rank waits for collectives in the order of their
// start, which is the same on every rank, as every rank walks the same list of actions.
//
// Replicas of the shards add a step more: the sum of a shard over replicas is an all-reduce in two halves,
// sum (each replica sums a slice) and spread (each replica gets all slices). Each half runs beside the
// backward of one block:
//
//     backward of block    l - 1         l - 2      l - 3
//     in flight            reduction l   sum l      spread l
#include "llmc/train/step/zero.h"

#include <algorithm>

#include "llmc/train/step/whole_tensors.h"

namespace PRECISION::inline step {

static bool partial_over_tp(const Tensor& t) { return t.param.split == Split::None; }

Zero::Zero(Shards& s, bool overlaps)
    : shards(s), layout(s.layout), sharding(s.sharding), overlap(overlaps), hosted(s),
      begun(size_t(s.layout.count())) {
    if (s.mesh.tp.size > 1) tp_runs = s.own_runs(partial_over_tp);
    codes = CodedShards(s);
}

void Zero::take_off(Flight& flight, ZeroEvent::Kind kind, int b, Pending pending) {
    flight = {pending, ++started, b};
    log(kind, b);
}

void Zero::finish_gather() {
    if (!gather.serial) return;
    if (reduction.serial && reduction.serial < gather.serial) finish_reduce();
    land(gather, ZeroEvent::WaitGather, shards.group_of(gather.bucket).shard);
}

// ---------------------------------------------------------------------------------------------------------
// weights

void Zero::begin_step(std::vector<int> next, BlockForm form) {
    if (!fetches()) return;
    finish_gather();
    order = std::move(next);
    position = 0;
    if (shards.stale) {
        for (Gathered& g : gather_buffers) g.block = -1;
        hosted.forget();
        for (int b = 0; b < layout.count(); b++)
            if (sharding.weights && !shards.is_block(b))
                shards.group_of(b).shard.all_gather(end_weights(b), shards.weight_shard(b), shards.shard(b));
        shards.stale = false;
    }
    take_form(form);
    if (overlap && !order.empty() && gathered_index(order[0]) < 0) fetch(order[0]);
}

void Zero::fetch(int l) {
    finish_gather();
    Gathered& next = gather_buffers[1 - in_use];
    next.block = l;
    CHECK(gathered_blocks() <= kGathered, "{} blocks are gathered", gathered_blocks());
    if (hosted && !sharding.weights) return hosted.bring(l, next.memory, 1 - in_use);
    const int b = layout.block(l);
    const Axis& ranks = shards.group_of(b).shard;
    const floatX* const shard = hosted ? hosted.shard(l) : shards.weight_shard(b);
    take_off(gather, ZeroEvent::StartGather, b,
             as_codes ? ranks.start_all_gather(bytes_of(next), codes.shard(l), shards.shard(b))
                      : ranks.start_all_gather(next.memory, shard, shards.shard(b)));
}

// The weights stay valid until the next call: the other buffer belongs to the next block.
floatX* Zero::gathered(int l) {
    CHECK(!shards.stale, "weights are asked for before begin_step()");
    if (gathered_index(l) < 0) fetch(l);
    if (gather.bucket == layout.block(l)) finish_gather();
    in_use = gathered_index(l);
    if (hosted && !sharding.weights) hosted.await(in_use);
    if (!order.empty()) {
        if (position == order.size()) position = 0;
        CHECK(order[position] == l, "block {} is asked for, block {} was announced", l, order[position]);
        position++;
        const auto other_block = [&](size_t at, int than) {
            while (at < order.size() && order[at] == than) at++;
            return at;
        };
        const size_t next = other_block(position, l);
        if (overlap && next < order.size()) {
            if (gathered_index(order[next]) < 0) fetch(order[next]);
            const size_t after = other_block(next, order[next]);
            const bool comes = after < order.size() && gathered_index(order[after]) < 0;
            if (hosted.of_shards() && comes) hosted.request(order[after]);
        }
    }
    return gather_buffers[in_use].memory;
}

// ---------------------------------------------------------------------------------------------------------
// gradients

void Zero::clear_grads() {
    CHECK(!reduction.serial, "a reduction is in flight");
    if (!buffers_grads()) ops::set_zero(shards.grads, layout.size() * sizeof(real));
    for (int b = 0; buffers_grads() && b < layout.count(); b++)
        if (!shards.is_block(b)) ops::set_zero(end_grads(b), layout.size(b) * sizeof(real));
    std::fill(begun.begin(), begun.end(), false);
    last = false;
    reduced = 0;
    filled_block = -1;
}

// Returns the buffer for a block's gradients of a micro-batch, beside the buffer that is being reduced.
real* Zero::buffered_grads(int l) {
    if (filled_block != l) {
        if (!sharding.grads) {              // the block that had the buffer before has to have left
            filling = l % 2;
            hosted.await_left(l);
        }
        ops::set_zero(grad_buffers[filling], layout.size(layout.block(l)) * sizeof(real));
    }
    filled_block = l;
    return grad_buffers[filling];
}

real* Zero::grad_shard(int b) const {
    if (!shards.on_host(b)) return shards.grad_shard(b);
    const int l = block_of(b);
    return sharding.grads ? hosted.sum(l) : grad_buffers[l % 2] + shards.own(b).begin;
}

// The first micro-batch is reduced into the shard; later micro-batches in the buffer, then added.
void Zero::reduce(int b) {
    finish_reduce();
    const bool buffered = sharding.grads;
    const real* whole = buffers_grads() ? grad_buffers[filling] : shards.gradient(b, 0);
    const bool adds = buffered && begun[size_t(b)];
    if (buffered && hosted && !adds) hosted.await_left(block_of(b));
    result = adds ? grad_buffers[filling] + shards.own(b).begin : grad_shard(b);
    if (buffered) {
        filling = 1 - filling;
        filled_block = -1;
    }
    begun[size_t(b)] = true;
    completes = last;
    take_off(reduction, ZeroEvent::StartReduce, b,
             shards.group_of(b).shard.start_reduce_scatter(result, whole, shards.shard(b)));
    const bool alone = hosted && shards.group_of(b).shard.size == 1;     // it can leave at once
    if (!overlap || alone) finish_reduce();
}

void Zero::finish_reduce() {
    if (!reduction.serial) return;
    if (gather.serial && gather.serial < reduction.serial) finish_gather();
    const int b = reduction.bucket;
    land(reduction, ZeroEvent::WaitReduce, shards.group_of(b).shard);
    if (result != grad_shard(b)) ops::accumulate(grad_shard(b), result, shards.shard(b));
    if (!completes) return;
    start_sum(b);
    reduced++;
    if (overlap && !hosted) return;
    start_spread();
    finish_spread();
    if (hosted) leave(b);
}

// The sum of block b is complete but over tp. Where each rank updates all, each gets all: the update then
// needs no other rank's memory.
void Zero::leave(int b) {
    sum_over_tp([b](int bucket) { return bucket == b; });
    if (before_leaving) before_leaving(b, grad_shard(b));
    const bool all = !sharding.state;
    real* const whole = grad_buffers[block_of(b) % 2];
    if (all) shards.group_of(b).shard.all_gather(whole, grad_shard(b), shards.shard(b));
    hosted.leave(block_of(b), all ? whole : grad_shard(b));
}

// This rank's shard of bucket b is complete but for its sum over replicas.
void Zero::start_sum(int b) {
    start_spread();
    const Axis& replica = shards.group_of(b).replica;
    const size_t slice = shards.shard(b) / size_t(replica.size);
    real* const all = grad_shard(b);
    take_off(sum, ZeroEvent::StartSum, b,
             replica.start_reduce_scatter(all + size_t(replica.index) * slice, all, slice));
}

// Turns the sum in flight into a spread.
void Zero::start_spread() {
    finish_spread();
    if (!sum.serial) return;
    const int b = sum.bucket;
    const Axis& replica = shards.group_of(b).replica;
    const size_t slice = shards.shard(b) / size_t(replica.size);
    real* const all = grad_shard(b);
    land(sum, ZeroEvent::WaitSum, replica);
    take_off(spread, ZeroEvent::StartSpread, b,
             replica.start_all_gather(all, all + size_t(replica.index) * slice, slice));
}

void Zero::finish_spread() {
    if (spread.serial) land(spread, ZeroEvent::WaitSpread, shards.group_of(spread.bucket).replica);
}

void Zero::finish() {
    finish_reduce();
    const int blocks = int(layout.block_at.size());
    CHECK(reduced == blocks, "gradients of {} of {} blocks are reduced", reduced, blocks);
    for (int b = 0; b < layout.count(); b++) {
        if (shards.is_block(b)) continue;
        shards.group_of(b).shard.reduce_scatter(shards.grad_shard(b), end_grads(b), shards.shard(b));
        start_sum(b);
    }
    start_spread();
    finish_spread();
    sum_over_tp([this](int bucket) { return !shards.on_host(bucket); });
    hosted.await_all_left();
    if (layout.wte >= 0 && shards.d.kind.tied)
        shards.mesh.tied.all_reduce(shards.grad_shard(layout.wte), shards.shard(layout.wte));
}

// Sums the gradients of tensors that every rank of tp has whole, of these buckets by a single all-reduce.
void Zero::sum_over_tp(const std::function<bool(int)>& of) {
    size_t at = 0;
    const auto here = [this](int b, const Interval& run) {
        return grad_shard(b) + (run.begin - shards.own(b).begin);
    };
    for (const auto& [bucket, run] : tp_runs) {
        if (!of(bucket)) continue;
        ops::copy_on_device(packed + at, here(bucket, run), run.count * sizeof(real));
        at += run.count;
    }
    shards.mesh.tp.all_reduce(packed, at);
    at = 0;
    for (const auto& [bucket, run] : tp_runs) {
        if (!of(bucket)) continue;
        ops::copy_on_device(here(bucket, run), packed + at, run.count * sizeof(real));
        at += run.count;
    }
}

// ---------------------------------------------------------------------------------------------------------
// the update

void Zero::gather_bucket(int b) {
    const Axis& ranks = shards.group_of(b).shard;
    take_off(gather, ZeroEvent::StartGather, b,
             sharding.state
                 ? ranks.start_all_gather(shards.weight(b, 0), shards.weight_shard(b), shards.shard(b))
                 : ranks.start_all_gather(shards.gradient(b, 0), shards.grad_shard(b), shards.shard(b)));
}

// Without a sharded state each rank updates every parameter: gathers the gradients of bucket b, and starts to
// gather bucket b + 1.
void Zero::before_update(int b) {
    beat();
    if (sharding.state || shards.on_host(b)) return;
    if (!gather.serial) gather_bucket(b);
    finish_gather();
    if (overlap && b + 1 < layout.count() && !shards.on_host(b + 1)) gather_bucket(b + 1);
}

// ZeRO 1 and 2: gathers the new weights of bucket b while the next bucket is updated.
void Zero::after_update(int b) {
    if (!sharding.state || sharding.weights || shards.on_host(b)) return;
    finish_gather();
    gather_bucket(b);
    if (!overlap) finish_gather();
}

void Zero::end_update() {
    finish_gather();
    shards.weights_changed();
}

}  // namespace PRECISION::step
