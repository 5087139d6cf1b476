#include "llmc/comm/group.h"

#include <chrono>
#include <random>
#include <thread>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/progress.h"

// A call in progress: its time counts as waiting.
struct Call {
    Group& group;
    Verb verb;
    double started = seconds_now();

    Call(Group& g, Verb v) : group(g), verb(v) {
        if (g.most_delay_us == 0) return;
        static thread_local std::minstd_rand draw(unsigned(context.rank) * 7919 + 1);
        std::this_thread::sleep_for(std::chrono::microseconds(draw() % unsigned(g.most_delay_us + 1)));
    }
    ~Call() { group.moved[verb].seconds += seconds_now() - started; }
};

static void count_call(Group& g, Verb verb, uint64_t bytes) {
    g.moved[verb].calls++;
    g.moved[verb].bytes += bytes;
}

static size_t wire_size(const Group& g, Wire t) {
    return t == Wire::F32 && g.bf16_wire ? size_of(Wire::BF16) : size_of(t);
}

static void check_staging(const Group& g, size_t bytes) {
    CHECK(!g.transport->needs_staging || bytes <= g.staging_bytes,
          "a reduction over %s needs %zu bytes of staging, %zu were lent", g.name, bytes, g.staging_bytes);
}

static void check_peer(const Group& g, int peer) {
    CHECK(peer >= 0 && peer < g.size, "rank %d of %s, which has %d", peer, g.name, g.size);
}

// Tickets of the transport, with the verb in the lowest bit.
static Pending pending(Group& g, uint64_t ticket, bool reduces) { return {&g, ticket << 1 | reduces}; }

Pending comm::start_all_gather(Group& g, void* dst, const void* src, size_t count, Wire t) {
    Call call(g, kAllGather);
    count_call(g, kAllGather, uint64_t(g.size - 1) * count * size_of(t));
    return pending(g, g.transport->start_all_gather(g, dst, src, count, t), false);
}

Pending comm::start_reduce_scatter(Group& g, void* dst, const void* src, size_t count, Wire t) {
    CHECK(g.reductions_in_flight == 0, "two reductions over %s are in flight", g.name);
    check_staging(g, size_t(g.size) * count * size_of(t));
    g.reductions_in_flight++;
    Call call(g, kReduceScatter);
    count_call(g, kReduceScatter, uint64_t(g.size - 1) * count * wire_size(g, t));
    return pending(g, g.transport->start_reduce_scatter(g, dst, src, count, t), true);
}

void comm::wait(Pending& p) {
    if (!p.group) return;
    Group& g = *p.group;
    const bool reduces = p.ticket & 1;
    Call call(g, reduces ? kReduceScatter : kAllGather);
    g.transport->finish(g, p.ticket >> 1);
    if (reduces) g.reductions_in_flight--;
    p = {};
}

void comm::all_reduce(Group& g, void* data, size_t count, Wire t) {
    CHECK(g.reductions_in_flight == 0, "two reductions over %s are in flight", g.name);
    Call call(g, kAllReduce);
    // a piece is summed by each rank, and sent to all others
    const size_t piece = (count + size_t(g.size) - 1) / size_t(g.size);
    count_call(g, kAllReduce, uint64_t(g.size - 1) * piece * (wire_size(g, t) + size_of(t)));
    g.transport->all_reduce(g, data, count, t);
}

void comm::broadcast(Group& g, void* data, size_t count, Wire t, int root) {
    check_peer(g, root);
    Call call(g, kBroadcast);
    count_call(g, kBroadcast, g.index == root ? uint64_t(g.size - 1) * count * size_of(t) : 0);
    g.transport->broadcast(g, data, count * size_of(t), root);
}

void comm::send(Group& g, const void* data, size_t count, Wire t, int peer) {
    check_peer(g, peer);
    Call call(g, kSend);
    count_call(g, kSend, count * size_of(t));
    g.transport->send(g, data, count * size_of(t), peer);
}

void comm::recv(Group& g, void* data, size_t count, Wire t, int peer) {
    check_peer(g, peer);
    Call call(g, kRecv);
    count_call(g, kRecv, 0);
    g.transport->recv(g, data, count * size_of(t), peer);
}

void comm::barrier(Group& g) {
    Call call(g, kBarrier);
    count_call(g, kBarrier, 0);
    g.transport->barrier(g);
}

void comm::lend_staging(Group& g, void* memory, size_t bytes) {
    g.staging = static_cast<std::byte*>(memory);
    g.staging_bytes = bytes;
}
