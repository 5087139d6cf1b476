// The collectives of a step.
//
// At most one gather and one reduction are in flight. A rank waits for collectives in the order of their
// start, which is the same on every rank, as every rank walks the same list of actions.
#include "llmc/train/step/zero.h"

namespace PRECISION::inline step {

void Zero::take_off(Flight& flight, ZeroEvent::Kind kind, int b, Pending pending) {
    flight = {pending, ++started, b};
    log(kind, b);
}

void Zero::finish_gather() {
    if (!gather.serial) return;
    if (reduction.serial && reduction.serial < gather.serial) finish_reduce();
    group_of(gather.bucket).shard.wait(gather.pending);
    log(ZeroEvent::WaitGather, gather.bucket);
    gather.serial = 0;
}

// ---------------------------------------------------------------------------------------------------------
// weights

void Zero::begin_step(std::vector<int> next) {
    if (!sharding.weights) return;
    finish_gather();
    order = std::move(next);
    position = 0;
    if (stale) {
        for (Gathered& g : gather_buffers) g.block = -1;
        for (int b = 0; b < layout.count(); b++)
            if (!is_block(b)) group_of(b).shard.all_gather(end_weights(b), weight_shard(b), shard(b));
        stale = false;
    }
    if (overlap && !order.empty() && gathered_index(order[0]) < 0) fetch(order[0]);
}

void Zero::fetch(int l) {
    finish_gather();
    Gathered& next = gather_buffers[1 - in_use];
    next.block = l;
    CHECK(gathered_blocks() <= kGathered, "{} blocks are gathered", gathered_blocks());
    const int b = layout.block(l);
    take_off(gather, ZeroEvent::StartGather, b,
             group_of(b).shard.start_all_gather(next.memory, weight_shard(b), shard(b)));
}

// The weights stay valid until the next call: the other buffer belongs to the next block.
floatX* Zero::gathered(int l) {
    CHECK(!stale, "weights are asked for before begin_step()");
    if (gathered_index(l) < 0) fetch(l);
    if (gather.bucket == layout.block(l)) finish_gather();
    in_use = gathered_index(l);
    if (!order.empty()) {
        if (position == order.size()) position = 0;
        CHECK(order[position] == l, "block {} is asked for, block {} was announced", l, order[position]);
        position++;
        size_t next = position;
        while (next < order.size() && order[next] == l) next++;
        if (overlap && next < order.size() && gathered_index(order[next]) < 0) fetch(order[next]);
    }
    return gather_buffers[in_use].memory;
}

// ---------------------------------------------------------------------------------------------------------
// gradients

void Zero::clear_grads() {
    CHECK(!reduction.serial, "a reduction is in flight");
    if (!sharding.grads) ops::set_zero(grads, layout.size() * sizeof(real));
    for (int b = 0; sharding.grads && b < layout.count(); b++)
        if (!is_block(b)) ops::set_zero(end_grads(b), layout.size(b) * sizeof(real));
    std::fill(begun.begin(), begun.end(), false);
    last = false;
    reduced = 0;
    filled_block = -1;
}

// Returns the buffer for a block's gradients of a micro-batch, beside the buffer that is being reduced.
real* Zero::buffered_grads(int l) {
    if (filled_block != l) ops::set_zero(grad_buffers[filling], layout.size(layout.block(l)) * sizeof(real));
    filled_block = l;
    return grad_buffers[filling];
}

// The first micro-batch is reduced into the shard; later micro-batches in the buffer, then added.
void Zero::reduce(int b) {
    finish_reduce();
    const bool buffered = sharding.grads;
    const real* whole = buffered ? grad_buffers[filling] : gradient(b, 0);
    result = buffered && begun[size_t(b)] ? grad_buffers[filling] + own(b).begin : grad_shard(b);
    if (buffered) {
        filling = 1 - filling;
        filled_block = -1;
    }
    begun[size_t(b)] = true;
    completes = last;
    take_off(reduction, ZeroEvent::StartReduce, b,
             group_of(b).shard.start_reduce_scatter(result, whole, shard(b)));
    if (!overlap) finish_reduce();
}

void Zero::finish_reduce() {
    if (!reduction.serial) return;
    if (gather.serial && gather.serial < reduction.serial) finish_gather();
    const int b = reduction.bucket;
    group_of(b).shard.wait(reduction.pending);
    log(ZeroEvent::WaitReduce, b);
    reduction.serial = 0;
    if (result != grad_shard(b)) ops::accumulate(grad_shard(b), result, shard(b));
    if (!completes) return;
    group_of(b).replica.all_reduce(grad_shard(b), shard(b));
    reduced++;
}

void Zero::finish() {
    finish_reduce();
    CHECK(reduced == blocks, "gradients of {} of {} blocks are reduced", reduced, blocks);
    for (int b = 0; b < layout.count(); b++) {
        if (is_block(b)) continue;
        group_of(b).shard.reduce_scatter(grad_shard(b), end_grads(b), shard(b));
        group_of(b).replica.all_reduce(grad_shard(b), shard(b));
    }
    sum_over_tp();
    if (layout.wte >= 0 && d.kind.tied) mesh.tied.all_reduce(grad_shard(layout.wte), shard(layout.wte));
}

// Sums the gradients of tensors that every rank of tp has whole, by a single all-reduce.
void Zero::sum_over_tp() {
    size_t at = 0;
    for (const auto& [bucket, run] : tp_runs) {
        ops::copy_on_device(packed + at, gradient(bucket, run.begin), run.count * sizeof(real));
        at += run.count;
    }
    mesh.tp.all_reduce(packed, at);
    at = 0;
    for (const auto& [bucket, run] : tp_runs) {
        ops::copy_on_device(gradient(bucket, run.begin), packed + at, run.count * sizeof(real));
        at += run.count;
    }
}

// ---------------------------------------------------------------------------------------------------------
// the update

void Zero::gather_bucket(int b) {
    const Axis& ranks = group_of(b).shard;
    take_off(gather, ZeroEvent::StartGather, b,
             sharding.state ? ranks.start_all_gather(weight(b, 0), weight_shard(b), shard(b))
                            : ranks.start_all_gather(gradient(b, 0), grad_shard(b), shard(b)));
}

// Without a sharded state each rank updates every parameter: gathers the gradients of bucket b, and starts to
// gather bucket b + 1.
void Zero::before_update(int b) {
    beat();
    if (sharding.state) return;
    if (!gather.serial) gather_bucket(b);
    finish_gather();
    if (overlap && b + 1 < layout.count()) gather_bucket(b + 1);
}

// ZeRO 1 and 2: gathers the new weights of bucket b while the next bucket is updated.
void Zero::after_update(int b) {
    if (!sharding.state || sharding.weights) return;
    finish_gather();
    gather_bucket(b);
    if (!overlap) finish_gather();
}

void Zero::end_update() {
    finish_gather();
    stale = true;
}

}  // namespace PRECISION::step
