// Slices go straight from each rank to each other: as many bytes as around a ring, and sums in the order of
// the ranks. Counts beyond 31 bits travel as several messages.
#include "llmc/comm/transport/mpi.h"

#include "llmc/base/check.h"

#ifdef HAVE_MPI
#include <mpi.h>

#include <cstring>
#include <deque>

#include "llmc/base/context.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/machine.h"
#include "llmc/comm/staging.h"
#endif

inline namespace transport {

#ifndef HAVE_MPI

std::string mpi_library() { return {}; }
MpiJob mpi_begin() { fatal(kExitInternal, __FILE__, __LINE__, "this build has no MPI"); }
void mpi_end() {}
void join_mpi(Group&, int, int) { CHECK(false, "this build has no MPI"); }

#else

static constexpr uint64_t kInFlight = 8;                // jobs in flight
static constexpr int kPairTag = 1 << 14;                // of send and recv; jobs have those below

#define MPI_CHECK(call) \
    do { const int e_ = (call); CHECK(e_ == MPI_SUCCESS, "{}: MPI error {}", #call, e_); } while (0)

// Messages on their way; peers: the member at the other end of each, -1: of a collective of MPI's own.
struct Requests {
    std::vector<MPI_Request> all;
    std::vector<int> peers;

    MPI_Request* add(int peer = -1) {
        peers.push_back(peer);
        return &all.emplace_back();
    }
};

struct Flight {
    Job job;
    bool open = false, native = false;
    Requests requests;
};

// A member of a group, for messages.
struct Peer { int rank; char host[60]; };

struct MpiMember {
    MPI_Comm comm;
    uint64_t next = 0;                  // ticket
    Flight flights[kInFlight];
    std::deque<Requests> sends;                         // on their way
    uint64_t sent = 0;                                  // so far
    std::vector<const void*> slices;
    std::vector<Peer> members;
};

static MpiMember& member(Group& g) { return *static_cast<MpiMember*>(g.state.get()); }

std::string mpi_library() {
    return fmt::format("Open MPI {}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
}

MpiJob mpi_begin() {
    int provided, rank, size, begun;
    MPI_CHECK(MPI_Initialized(&begun));
    if (!begun) MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    return {rank, size};
}

void mpi_end() { MPI_CHECK(MPI_Finalize()); }

static void isend(Group& g, Requests& r, const void* data, size_t bytes, int to, int tag) {
    for (size_t at = 0; at < bytes; at += g.message)
        MPI_CHECK(MPI_Isend(static_cast<const std::byte*>(data) + at, int(std::min(g.message, bytes - at)),
                            MPI_BYTE, to, tag, member(g).comm, r.add(to)));
}

static void irecv(Group& g, Requests& r, void* data, size_t bytes, int from, int tag) {
    for (size_t at = 0; at < bytes; at += g.message)
        MPI_CHECK(MPI_Irecv(static_cast<std::byte*>(data) + at, int(std::min(g.message, bytes - at)),
                            MPI_BYTE, from, tag, member(g).comm, r.add(from)));
}

// A peer whose message is not complete; one on another host goes before the peers of this host.
static int awaited_peer(const MpiMember& m, Requests& r, int own) {
    int found = -1;
    for (size_t i = 0; i < r.all.size(); i++) {
        int done = 0;
        if (r.peers[i] < 0 || MPI_Request_get_status(r.all[i], &done, MPI_STATUS_IGNORE) || done) continue;
        if (strcmp(m.members[size_t(r.peers[i])].host, m.members[size_t(own)].host)) return r.peers[i];
        if (found < 0) found = r.peers[i];
    }
    return found;
}

// A long wait names the awaited rank, for the line about a hang: "all_gather tp from rank 3 on node2".
static void publish_peer(const Group& g, const MpiMember& m, Requests& requests) {
    const int peer = awaited_peer(m, requests, g.index);
    if (peer < 0) return;
    const Peer& of = m.members[size_t(peer)];
    waits_for_peer(fmt::format("rank {} on {}", of.rank, of.host));
}

// MPI's own waiting never sleeps. Here a rank polls, then lets others run, then sleeps for moments: the ranks
// may be more than the cores.
static void await(Group& g, Requests& requests) {
    static constexpr int kLong = 10000;             // naps: a second or so
    int done = 0, naps = 0;
    const auto test = [&] {
        MPI_CHECK(MPI_Testall(int(requests.all.size()), requests.all.data(), &done, MPI_STATUSES_IGNORE));
        return done != 0;
    };
    const Wait hasty = {.what = "a wait for other ranks", .spins = 200, .yields = 1800, .nap = 20e-6};
    wait_until(hasty, test, [&](double nap) {
        if (++naps % kLong == 0) publish_peer(g, member(g), requests);
        sleep_for(nap);
    });
    requests = {};
}

static MPI_Datatype mpi_type(Wire t) {
    switch (t) {
    case Wire::F32: return MPI_FLOAT;
    case Wire::F64: return MPI_DOUBLE;
    case Wire::I32: return MPI_INT32_T;
    case Wire::I64: return MPI_INT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}

// Messages to and from every other rank.
static void start_exchange(Group& g, Flight& f, int tag) {
    const Job& j = f.job;
    const size_t unit = size_of(wire_type(g, j));
    round_slices(g, j);
    for (int i = 1; i < g.size; i++) {
        const int k = (g.index + g.size - i) % g.size;
        const Parcel p = parcel_of(g, j, k);
        irecv(g, f.requests, p.in, p.received * unit, k, tag);
    }
    for (int i = 1; i < g.size; i++) {
        const int k = (g.index + i) % g.size;
        const Parcel p = parcel_of(g, j, k);
        isend(g, f.requests, p.out, p.sent * unit, k, tag);
    }
    keep_own(g, j);
}

// By MPI's own reduction, where it has one.
static bool start_native_reduce(Group& g, Flight& f) {
    const Job& j = f.job;
    f.native = j.kind == Job::Reduce && g.native && !rounds(g, j) &&
               mpi_type(j.type) != MPI_DATATYPE_NULL && j.slice < g.message &&
               j.total == j.slice * size_t(g.size);
    if (f.native)
        MPI_CHECK(MPI_Ireduce_scatter_block(j.src, g.staging, int(j.slice), mpi_type(j.type), MPI_SUM,
                                            member(g).comm, f.requests.add()));
    return f.native;
}

static void finish_reduce(Group& g, const Flight& f) {
    const Job& j = f.job;
    if (!f.native) return sum_received(g, j, member(g).slices);
    const size_t own = comm::elements(j, g.index);
    if (own > 0) memcpy(j.dst, g.staging, own * size_of(j.type));
}

static void start_broadcast(Group& g, Flight& f) {
    const Job& j = f.job;
    const size_t bytes = j.total * size_of(j.type);
    for (size_t at = 0; at < bytes; at += g.message)
        MPI_CHECK(MPI_Ibcast(static_cast<std::byte*>(j.dst) + at, int(std::min(g.message, bytes - at)),
                             MPI_BYTE, j.root, member(g).comm,
                             f.requests.add(j.root)));
}

static uint64_t start(Group& g, const Job& job) {
    MpiMember& m = member(g);
    const uint64_t ticket = m.next++;
    Flight& f = m.flights[ticket % kInFlight];
    CHECK(!f.open, "more than {} collectives over {} are in flight", int(kInFlight), g.name);
    f.job = job;
    f.open = true;
    if (job.kind == Job::Broadcast) start_broadcast(g, f);
    else if (!start_native_reduce(g, f)) start_exchange(g, f, int(ticket % kPairTag));
    return ticket;
}

static void finish(Group& g, uint64_t ticket) {
    Flight& f = member(g).flights[ticket % kInFlight];
    await(g, f.requests);
    if (f.job.kind == Job::Reduce) finish_reduce(g, f);
    f.open = false;
}

// Sends are finished in the order in which they were started.
static uint64_t start_send(Group& g, const void* data, size_t bytes, int peer) {
    MpiMember& m = member(g);
    isend(g, m.sends.emplace_back(), data, bytes, peer, kPairTag);
    return m.sent++;
}

static void finish_send(Group& g, uint64_t ticket) {
    MpiMember& m = member(g);
    CHECK(ticket + m.sends.size() == m.sent, "send {} over {} is awaited out of turn",
          ticket, g.name);
    await(g, m.sends.front());
    m.sends.pop_front();
}

static void recv(Group& g, void* data, size_t bytes, int peer) {
    Requests requests;
    irecv(g, requests, data, bytes, peer, kPairTag);
    await(g, requests);
}

static void native_all_reduce(Group& g, void* data, size_t count, Wire t) {
    Requests requests;
    for (size_t at = 0; at < count; at += g.message)
        MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, static_cast<std::byte*>(data) + at * size_of(t),
                                 int(std::min(g.message, count - at)), mpi_type(t), MPI_SUM, member(g).comm,
                                 requests.add()));
    await(g, requests);
}

static constexpr Transport mpi = {
    .name = "mpi", .start = start, .finish = finish, .start_send = start_send, .finish_send = finish_send,
    .recv = recv, .sums_natively = mpi_sums, .native_all_reduce = native_all_reduce,
    .needs_staging = true};

void join_mpi(Group& g, int color, int index) {
    auto m = std::make_shared<MpiMember>();
    MPI_CHECK(MPI_Comm_split(MPI_COMM_WORLD, color, index, &m->comm));
    MPI_CHECK(MPI_Comm_rank(m->comm, &g.index));
    MPI_CHECK(MPI_Comm_size(m->comm, &g.size));
    m->slices.resize(size_t(g.size));
    Peer own = {};
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &own.rank));
    host_name().copy(own.host, sizeof own.host - 1);
    m->members.resize(size_t(g.size));
    MPI_CHECK(MPI_Allgather(&own, sizeof own, MPI_BYTE, m->members.data(), sizeof own, MPI_BYTE, m->comm));
    g.transport = &mpi;
    g.state = std::move(m);             // MPI_Finalize frees the communicators
}

#endif

}  // namespace transport
