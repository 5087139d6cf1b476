// Every axis has its own communicator and stream. On the device, a collective waits for earlier ops, and ops
// called after finish() wait for the collective. The host waits only for collectives on host memory, which go
// through a buffer on the device, a share at a time.
//
// Sums in the order of the ranks: each rank receives the slices of the other ranks and adds in FP32 on the
// compute stream. A ring sends as many bytes.
#ifdef HAVE_NCCL
#include <algorithm>

#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/transport/nccl_rank.h"
#include "llmc/comm/staging.h"

inline namespace transport {

// ---------------------------------------------------------------------------------------------------------
// streams

static bool on_device(const void* p) {
    cudaPointerAttributes attributes;
    CUDA_CHECK(cudaPointerGetAttributes(&attributes, p));
    return attributes.type == cudaMemoryTypeDevice;
}

static void after_compute(const NcclLine& m) {
    CUDA_CHECK(cudaEventRecord(m.reached, cuda_device().compute));
    CUDA_CHECK(cudaStreamWaitEvent(m.stream, m.reached, 0));
}
static void compute_after(const NcclLine& m) {
    CUDA_CHECK(cudaEventRecord(m.reached, m.stream));
    CUDA_CHECK(cudaStreamWaitEvent(cuda_device().compute, m.reached, 0));
}

static ncclDataType_t nccl_type(Wire t) {
    switch (t) {
    case Wire::BF16: return ncclBfloat16;
    case Wire::F32: return ncclFloat32;
    case Wire::F64: return ncclFloat64;
    case Wire::I32: return ncclInt32;
    case Wire::I64: return ncclInt64;
    case Wire::Byte: break;
    }
    return ncclInt8;
}

static bool any_order_is_exact(Wire t) { return t == Wire::I32 || t == Wire::I64; }

// ---------------------------------------------------------------------------------------------------------
// memory of the host

static void copy_now(NcclMember& m, void* to, const void* from, size_t bytes) {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, m.stream));
    host_waits_for(m.stream);
}

// Bytes [at, at + n) of every slice, from the bounce buffer: a copy for all of them, and a copy for a slice
// whose end is cut off.
static void scatter_share(NcclMember& m, const Job& j, size_t unit, size_t at, size_t n) {
    const size_t slice = j.slice * unit, total = j.total * unit;
    const size_t whole = total < at + n ? 0 : (total - at - n) / slice + 1;
    std::byte* const to = static_cast<std::byte*>(j.dst) + at;
    if (whole)
        CUDA_CHECK(cudaMemcpy2DAsync(to, slice, nccl_rank.bounce, n, n, whole, cudaMemcpyDefault, m.stream));
    host_waits_for(m.stream);
    if (const size_t first = whole * slice + at; first < total)
        copy_now(m, to + whole * slice, nccl_rank.bounce + whole * n, std::min(n, total - first));
}

static void gather_on_host(Group& g, const Job& j) {
    NcclMember& m = nccl_member(g);
    const size_t unit = size_of(j.type), slice = j.slice * unit, ranks = size_t(g.size);
    const size_t share = kBounce / (ranks + 1);
    std::byte* const own = nccl_rank.bounce + ranks * share;
    const size_t own_bytes = comm::elements(j, g.index) * unit;         // the end of a slice may be cut off
    for (size_t at = 0; at < slice; at += share) {
        const size_t n = std::min(share, slice - at);
        if (const size_t bytes = std::min(n, own_bytes - std::min(own_bytes, at)))
            CUDA_CHECK(cudaMemcpyAsync(own, static_cast<const std::byte*>(j.src) + at, bytes,
                                       cudaMemcpyDefault, m.stream));
        NCCL_CHECK(m.comm, ncclAllGather(own, nccl_rank.bounce, n, ncclInt8, m.comm, m.stream));
        host_waits_for(m.stream);
        scatter_share(m, j, unit, at, n);
    }
}

static void broadcast_on_host(Group& g, const Job& j) {
    NcclMember& m = nccl_member(g);
    const size_t all = j.total * size_of(j.type);
    std::byte* const data = static_cast<std::byte*>(j.dst);
    for (size_t at = 0; at < all; at += kBounce) {
        const size_t n = std::min(kBounce, all - at);
        if (g.index == j.root) copy_now(m, nccl_rank.bounce, data + at, n);
        NCCL_CHECK(m.comm, ncclBroadcast(nccl_rank.bounce, nccl_rank.bounce, n, ncclInt8, j.root, m.comm,
                                         m.stream));
        host_waits_for(m.stream);
        if (g.index != j.root) copy_now(m, data + at, nccl_rank.bounce, n);
    }
}

// ---------------------------------------------------------------------------------------------------------
// jobs

// Messages to and from every other rank at once.
static void exchange(Group& g, const Job& j) {
    NcclMember& m = nccl_member(g);
    const ncclDataType_t type = nccl_type(wire_type(g, j));
    NCCL_CHECK(m.comm, ncclGroupStart());
    for (int k = 0; k < g.size; k++) {
        if (k == g.index) continue;
        const Parcel p = parcel_of(g, j, k);
        if (p.sent) NCCL_CHECK(m.comm, ncclSend(p.out, p.sent, type, k, m.comm, m.stream));
        if (p.received) NCCL_CHECK(m.comm, ncclRecv(p.in, p.received, type, k, m.comm, m.stream));
    }
    NCCL_CHECK(m.comm, ncclGroupEnd());
}

// This rank's part of an exchange.
static void keep_own_on_device(Group& g, const Job& j) {
    const Parcel own = parcel_of(g, j, g.index);
    if (own.in != own.out && own.sent)
        CUDA_CHECK(cudaMemcpyAsync(own.in, own.out, own.sent * size_of(j.type), cudaMemcpyDefault,
                                   nccl_member(g).stream));
}

static void start_gather(Group& g, const Job& j) {
    NcclMember& m = nccl_member(g);
    if (j.total == j.slice * size_t(g.size)) {
        NCCL_CHECK(m.comm, ncclAllGather(j.src, j.dst, j.slice, nccl_type(j.type), m.comm, m.stream));
        return;
    }
    keep_own_on_device(g, j);
    exchange(g, j);
}

static void start_all_to_all(Group& g, const Job& j) {
    keep_own_on_device(g, j);
    exchange(g, j);
}

static void start_reduce(Group& g, NcclFlight& f) {
    const Job& j = f.job;
    NcclMember& m = nccl_member(g);
    const bool rounded = rounds(g, j);
    f.sums = !any_order_is_exact(j.type) && (!g.native || rounded || j.total != j.slice * size_t(g.size));
    round_slices(g, j);
    after_compute(m);
    if (f.timed) f.times = nccl_began(m, f.ticket);
    if (!f.sums) {
        NCCL_CHECK(m.comm, ncclReduceScatter(j.src, j.dst, j.slice, nccl_type(j.type), ncclSum, m.comm,
                                             m.stream));
        return;
    }
    exchange(g, j);
}

static uint64_t start(Group& g, const Job& job) {
    NcclMember& m = nccl_member(g);
    const uint64_t ticket = m.next++;
    NcclFlight& f = m.flights[ticket % kInFlight];
    CHECK(!f.open, "more than {} collectives over {} are in flight", int(kInFlight), g.name);
    f.job = job;
    f.ticket = ticket;
    f.open = true;
    f.sums = f.timed = false;
    f.on_host = job.total == 0 || !on_device(job.dst) || !on_device(job.src);
    if (job.total == 0) return ticket;
    CHECK(!f.on_host || job.kind == Job::Gather || job.kind == Job::Broadcast,
          "a reduction or an all-to-all over {} of memory of the host", g.name);
    f.timed = g.timed && !f.on_host;
    if (job.kind == Job::Reduce) {
        start_reduce(g, f);
    } else {
        after_compute(m);
        if (f.timed) f.times = nccl_began(m, f.ticket);
    }
    if (job.kind == Job::Gather) f.on_host ? gather_on_host(g, job) : start_gather(g, job);
    if (job.kind == Job::AllToAll) start_all_to_all(g, job);
    if (job.kind == Job::Broadcast && f.on_host) broadcast_on_host(g, job);
    else if (job.kind == Job::Broadcast)
        NCCL_CHECK(m.comm, ncclBroadcast(job.src, job.dst, job.total, nccl_type(job.type), job.root, m.comm,
                                         m.stream));
    CUDA_CHECK(cudaEventRecord(f.done, m.stream));
    if (f.timed) CUDA_CHECK(cudaEventRecord(f.times.ended, m.stream));
    return ticket;
}

static void finish(Group& g, uint64_t ticket) {
    NcclFlight& f = nccl_member(g).flights[ticket % kInFlight];
    f.open = false;
    if (f.on_host) return;
    if (f.timed) nccl_needed(nccl_member(g), f.times);
    CUDA_CHECK(cudaStreamWaitEvent(cuda_device().compute, f.done, 0));
    if (f.sums) sum_received(g, f.job, nccl_member(g).slices);
}

// ---------------------------------------------------------------------------------------------------------
// messages

static NcclRoute& route(Group& g, int from, int to) {
    for (NcclRoute& w : nccl_member(g).routes)
        if (w.from == from && w.to == to) return w;
    fatal(kExitInternal, __FILE__, __LINE__, "{} has no way from rank {} to rank {}", g.name, from, to);
}

// The ticket tells message and peer.
static uint64_t start_send(Group& g, const void* data, size_t bytes, int peer) {
    NcclRoute& w = route(g, g.index, peer);
    CHECK(bytes == 0 || on_device(data), "a message over {} from memory of the host", g.name);
    after_compute(w.line);
    const int to = w.to > w.from ? 1 : 0;
    if (bytes)
        NCCL_CHECK(w.line.comm, ncclSend(data, bytes, ncclInt8, to, w.line.comm, w.line.stream));
    CUDA_CHECK(cudaEventRecord(w.sent[w.sends % kSends], w.line.stream));
    return w.sends++ * uint64_t(g.size) + uint64_t(peer);
}

static void finish_send(Group& g, uint64_t ticket) {
    const NcclRoute& w = route(g, g.index, int(ticket % uint64_t(g.size)));
    const cudaEvent_t sent = w.sent[ticket / uint64_t(g.size) % kSends];
    CUDA_CHECK(cudaStreamWaitEvent(cuda_device().compute, sent, 0));
}

static void recv(Group& g, void* data, size_t bytes, int peer) {
    const NcclLine& l = route(g, peer, g.index).line;
    if (bytes == 0) return;
    CHECK(on_device(data), "a message over {} to memory of the host", g.name);
    after_compute(l);
    const int from = peer > g.index ? 1 : 0;
    NCCL_CHECK(l.comm, ncclRecv(data, bytes, ncclInt8, from, l.comm, l.stream));
    compute_after(l);
}

static void native_all_reduce(Group& g, void* data, size_t count, Wire t) {
    NcclMember& m = nccl_member(g);
    const size_t unit = size_of(t), most = kBounce / unit;
    after_compute(m);
    if (on_device(data)) {
        const NcclTimes times = g.timed ? nccl_began(m, kNoTicket) : NcclTimes();
        NCCL_CHECK(m.comm, ncclAllReduce(data, data, count, nccl_type(t), ncclSum, m.comm, m.stream));
        if (g.timed) {
            CUDA_CHECK(cudaEventRecord(times.ended, m.stream));
            nccl_needed(m, times);
        }
        compute_after(m);
        return;
    }
    for (size_t at = 0; at < count; at += most) {
        const size_t n = std::min(most, count - at);
        std::byte* const share = static_cast<std::byte*>(data) + at * unit;
        copy_now(m, nccl_rank.bounce, share, n * unit);
        NCCL_CHECK(m.comm, ncclAllReduce(nccl_rank.bounce, nccl_rank.bounce, n, nccl_type(t), ncclSum, m.comm,
                                         m.stream));
        host_waits_for(m.stream);
        copy_now(m, share, nccl_rank.bounce, n * unit);
    }
}

const Transport nccl_transport = {.name = "nccl", .start = start, .finish = finish,
                                  .start_send = start_send, .finish_send = finish_send, .recv = recv,
                                  .sums_natively = nccl_sums,
                                  .native_all_reduce = native_all_reduce, .needs_staging = true,
                                  .on_device = true, .look_at_times = nccl_look_at_times};

}  // namespace transport

#endif
