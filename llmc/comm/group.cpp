#include "llmc/comm/group.h"

#include <chrono>
#include <numeric>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/progress.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/wait.h"
#include "llmc/comm/flip_here.h"
#include "llmc/comm/reductions.h"
#include "llmc/ops/timeline.h"
#include "llmc/ops/walk.h"

inline namespace comm {

// Reductions up to this size are gathered whole, and each rank sums everything.
static constexpr size_t kSmall = 8192;

// A call in progress: its time counts as waiting, and the supervisor sees the call. A walk records no sums
// inside. On a timeline the record of the call has begun the call's event.
struct Call {
    Group& group;
    Verb verb;
    double started = seconds_now();
    Timeline* const timeline = context.walk ? context.walk->timeline : nullptr;
    const Unrecorded sums = {};
    const Waiting named;

    Call(Group& g, Verb v) : group(g), verb(v), named((std::string(verb_names[v]) + " " + g.name).c_str()) {
        may_die_at(DiesAt::Collective);
        if (g.most_delay_us == 0) return;
        static thread_local std::minstd_rand draw(unsigned(context.rank) * 7919 + 1);
        std::this_thread::sleep_for(std::chrono::microseconds(draw() % unsigned(g.most_delay_us + 1)));
    }
    ~Call() {
        group.moved[verb].seconds += seconds_now() - started;
        if (timeline) timeline->close();
    }
    Pending pending(uint64_t ticket) const {
        if (timeline) timeline->started(&group, verb, ticket);
        return {&group, ticket, verb};
    }
};

static Cost verb_cost(const Target&, const Group& g, Verb verb, uint64_t sent, uint64_t result, int peer) {
    return {.name = verb_names[verb], .kind = Kind::Collective, .read = sent, .written = result,
            .axis = g.name, .verb = verb, .peer = peer};
}

static Cost await_cost(const Target&, const Group& g, Verb verb) {
    return {.name = verb_names[verb], .kind = Kind::Wait, .axis = g.name, .verb = verb};
}

// Counts a call, of bytes that this rank sends and of its result; true: the rank only walks.
static bool counted_call(Group& g, Verb verb, uint64_t sent, uint64_t result, int peer = -1) {
    if (walked(verb_cost, g, verb, sent, result, peer)) return true;
    g.moved[verb].calls++;
    g.moved[verb].bytes += sent;
    return false;
}

static size_t wire_size(const Group& g, Wire t) {
    return t == Wire::F32 && g.bf16_wire ? size_of(Wire::BF16) : size_of(t);
}

static void check_reduction(const Group& g, size_t bytes) {
    CHECK(g.reductions_in_flight == 0, "two reductions over {} are in flight", g.name);
    const size_t needed = comm::staging_of(g, bytes);
    CHECK(needed <= g.staging_bytes, "a reduction over {} needs {} bytes of staging, {} were lent", g.name,
          needed, g.staging_bytes);
}

static void check_peer(const Group& g, int peer) {
    CHECK(peer >= 0 && peer < g.size, "rank {} of {}, which has {}", peer, g.name, g.size);
}

// A flip of a message (base/guard/flip.h): in what arrives at this rank, of a gather in the slice of another
// rank. Messages over all ranks are left out: they carry decisions, and the checks themselves.
namespace {
struct Arriving {
    const Group* group = nullptr;
    uint64_t ticket = 0;
    std::byte* at = nullptr;
    size_t bytes = 0;
};
}  // namespace
static thread_local Arriving flipped_message;

static void note_arrival(const Group& g, const Job& job, uint64_t ticket) {
    if (flip_asked != Flip::Message || flipped_message.group) return;
    if (g.name == std::string_view("world")) return;
    const size_t slice = job.slice * size_of(job.type);
    const size_t other = job.kind == Job::Gather ? size_t((g.index + 1) % g.size) * slice : 0;
    flipped_message = {&g, ticket, static_cast<std::byte*>(job.dst) + other, slice};
}

static void flip_arrival(const Group& g, uint64_t ticket) {
    const Arriving message = flipped_message;
    if (message.group != &g || message.ticket != ticket) return;
    flipped_message = {};
    flip_if_asked(Flip::Message, message.at, message.bytes);
}

static Pending started(Group& g, const Call& call, const Job& job) {
    const uint64_t ticket = g.transport->start(g, job);
    note_arrival(g, job, ticket);
    return call.pending(ticket);
}

static void run(Group& g, const Job& job) { g.transport->finish(g, g.transport->start(g, job)); }

Pending start_all_gather(Group& g, void* dst, const void* src, size_t count, Wire t) {
    const uint64_t bytes = count * size_of(t);
    if (counted_call(g, kAllGather, uint64_t(g.size - 1) * bytes, uint64_t(g.size) * bytes))
        return {&g, 0, kAllGather};
    Call call(g, kAllGather);
    return started(g, call, {Job::Gather, t, dst, src, count, count * size_t(g.size)});
}

Pending start_reduce_scatter(Group& g, void* dst, const void* src, size_t count, Wire t) {
    const uint64_t sent = uint64_t(g.size - 1) * count * wire_size(g, t);
    if (counted_call(g, kReduceScatter, sent, count * size_of(t))) return {&g, 0, kReduceScatter};
    check_reduction(g, size_t(g.size) * count * size_of(t));
    g.reductions_in_flight++;
    Call call(g, kReduceScatter);
    return started(g, call, {Job::Reduce, t, dst, src, count, count * size_t(g.size)});
}

Pending start_all_to_all(Group& g, void* dst, const void* src, const size_t* sent,
                               const size_t* received, Wire t) {
    const auto sum = [&](const size_t* counts) {
        return std::accumulate(counts, counts + g.size, size_t(0));
    };
    const size_t out = sum(sent), in = sum(received);
    if (counted_call(g, kAllToAll, (out - sent[g.index]) * size_of(t), in * size_of(t)))
        return {&g, 0, kAllToAll};
    Call call(g, kAllToAll);
    return call.pending(g.transport->start(g, {.kind = Job::AllToAll, .type = t, .dst = dst, .src = src,
                                               .slice = 0, .total = out + in, .sent = sent,
                                               .received = received}));
}

void wait(Pending& p) {
    if (!p.group) return;
    Group& g = *p.group;
    if (walked(await_cost, g, p.verb)) {
        p = {};
        return;
    }
    Call call(g, p.verb);
    (p.verb == kSend ? g.transport->finish_send : g.transport->finish)(g, p.ticket);
    if (p.verb == kReduceScatter) g.reductions_in_flight--;
    if (call.timeline) call.timeline->arrived(&g, p.verb, p.ticket);
    if (p.verb != kSend) flip_arrival(g, p.ticket);
    p = {};
}

// Every rank gets all values of all ranks.
static void small_all_reduce(Group& g, void* data, size_t count, Wire t) {
    const size_t bytes = count * size_of(t);
    if (counted_call(g, kAllReduce, uint64_t(g.size - 1) * bytes, bytes)) return;
    const Call call(g, kAllReduce);
    g.small.resize(size_t(g.size + 1) * bytes);
    run(g, {Job::Gather, t, g.small.data(), data, count, count * size_t(g.size)});
    std::vector<const void*> slices(size_t(g.size));
    for (int k = 0; k < g.size; k++) slices[size_t(k)] = g.small.data() + size_t(k) * bytes;
    std::byte* total = g.small.data() + size_t(g.size) * bytes;
    comm::sum(total, slices.data(), g.size, count, t, wire_size(g, t) != size_of(t));
    fp32::copy_between(data, total, bytes);
}

// Each rank sums a slice in place, and sends it to all others.
static void large_all_reduce(Group& g, void* data, size_t count, Wire t) {
    const size_t slice = (count + size_t(g.size) - 1) / size_t(g.size);
    const uint64_t sent = uint64_t(g.size - 1) * slice * (wire_size(g, t) + size_of(t));
    if (counted_call(g, kAllReduce, sent, count * size_of(t))) return;
    const Call call(g, kAllReduce);
    std::byte* own = static_cast<std::byte*>(data) + std::min(count, size_t(g.index) * slice) * size_of(t);
    check_reduction(g, slice * size_t(g.size) * size_of(t));
    run(g, {Job::Reduce, t, own, data, slice, count});
    run(g, {Job::Gather, t, data, own, slice, count});
}

// By the library, in the library's order. false: the library cannot sum this type.
static bool native_all_reduce(Group& g, void* data, size_t count, Wire t) {
    if (!g.transport->sums_natively(g, t)) return false;
    const uint64_t sent = 2 * uint64_t(g.size - 1) * count * size_of(t) / uint64_t(g.size);
    if (counted_call(g, kAllReduce, sent, count * size_of(t))) return true;
    const Call call(g, kAllReduce);
    g.transport->native_all_reduce(g, data, count, t);
    return true;
}

// Between devices. What lies on the host is summed there; but integers have the same bits in any order.
static void device_all_reduce(Group& g, void* data, size_t count, Wire t) {
    const bool native = g.native || t == Wire::I32 || t == Wire::I64;
    if (native && native_all_reduce(g, data, count, t)) return;
    if (only_walks() || fp32::is_on_device(data)) return large_all_reduce(g, data, count, t);
    const size_t at_once = kSmall / size_of(t);
    for (size_t at = 0; at < count; at += at_once)
        small_all_reduce(g, static_cast<std::byte*>(data) + at * size_of(t), std::min(at_once, count - at),
                         t);
}

void all_reduce(Group& g, void* data, size_t count, Wire t) {
    if (g.transport->on_device) return device_all_reduce(g, data, count, t);
    if (count * size_of(t) <= kSmall) return small_all_reduce(g, data, count, t);
    if (g.native && native_all_reduce(g, data, count, t)) return;
    large_all_reduce(g, data, count, t);
}

void broadcast(Group& g, void* data, size_t count, Wire t, int root) {
    check_peer(g, root);
    const uint64_t bytes = count * size_of(t);
    if (counted_call(g, kBroadcast, g.index == root ? uint64_t(g.size - 1) * bytes : 0, bytes)) return;
    Call call(g, kBroadcast);
    run(g, {.kind = Job::Broadcast, .type = t, .dst = data, .src = data, .slice = count, .total = count,
            .root = root});
}

Pending start_send(Group& g, const void* data, size_t count, Wire t, int peer) {
    check_peer(g, peer);
    if (counted_call(g, kSend, count * size_of(t), 0, peer)) return {&g, 0, kSend};
    Call call(g, kSend);
    return call.pending(g.transport->start_send(g, data, count * size_of(t), peer));
}

void recv(Group& g, void* data, size_t count, Wire t, int peer) {
    check_peer(g, peer);
    if (counted_call(g, kRecv, 0, count * size_of(t), peer)) return;
    Call call(g, kRecv);
    g.transport->recv(g, data, count * size_of(t), peer);
    flip_if_asked(Flip::Message, data, count * size_of(t));
}

// A rank with a slice of every other rank knows that every rank has called.
void barrier(Group& g) {
    if (counted_call(g, kBarrier, 0, 0)) return;
    Call call(g, kBarrier);
    g.small.resize(std::max(g.small.size(), size_t(g.size)));
    const std::byte here{1};
    run(g, {Job::Gather, Wire::Byte, g.small.data(), &here, 1, size_t(g.size)});
}

void lend_staging(Group& g, void* memory, size_t bytes) {
    g.staging = static_cast<std::byte*>(memory);
    g.staging_bytes = bytes;
}

template <class T> static void sum_integers(void* dst, const void* const* terms, int number, size_t count) {
    for (size_t i = 0; i < count; i++) {
        T s = 0;
        for (int k = 0; k < number; k++) s = T(s + static_cast<const T*>(terms[k])[i]);
        static_cast<T*>(dst)[i] = s;
    }
}

void sum(void* dst, const void* const* terms, int number, size_t count, Wire t, bool rounded) {
    const auto floats = reinterpret_cast<const float* const*>(terms);
    float* out = static_cast<float*>(dst);
    switch (t) {
    case Wire::F32:
        return rounded ? bf16::sum_rounded_terms(out, floats, number, count)
                       : fp32::sum_of_terms(out, floats, number, count);
    case Wire::F64:
        return fp64::sum_of_terms(static_cast<double*>(dst), reinterpret_cast<const double* const*>(terms),
                                   number, count);
    case Wire::BF16:
        return bf16::sum_of_terms(static_cast<bfloat16*>(dst),
                                   reinterpret_cast<const bfloat16* const*>(terms), number, count);
    case Wire::I32: return sum_integers<uint32_t>(dst, terms, number, count);
    case Wire::I64: return sum_integers<uint64_t>(dst, terms, number, count);
    case Wire::Byte: break;
    }
    CHECK(false, "bytes have no sum");
}

}  // namespace comm
