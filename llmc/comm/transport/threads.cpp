// Each job has a mailbox, where every member posts its side. Finishing a job waits for every side, reads the
// memory behind, and waits until every member has read: then the buffers are the caller's again.
// Counters only rise, so mailboxes are reused without clearing.
#include "llmc/comm/transport/threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/guard/wait.h"
#include "llmc/comm/staging.h"

inline namespace transport {

static constexpr uint64_t kMailboxes = 8;           // jobs in flight

struct Channel {                                // from one member to another
    struct { const void* data; size_t bytes; } messages[kSends] = {};
    std::atomic<uint64_t> sent{0}, taken{0};
};

struct Mailbox {
    std::vector<const Job*> jobs;               // of each member
    std::atomic<uint64_t> posted{0}, read{0};
};

struct ThreadTeam {
    int size;
    std::atomic<bool>& broken;
    std::mutex mutex;
    std::condition_variable changed;
    Mailbox mailboxes[kMailboxes];
    std::vector<Channel> channels;              // [from * size + to]

    ThreadTeam(int n, std::atomic<bool>& b) : size(n), broken(b), channels(size_t(n) * size_t(n)) {
        for (Mailbox& s : mailboxes) s.jobs.resize(size_t(n));
    }
    // Nobody waits for less than the next multiple of `all`.
    void raise(std::atomic<uint64_t>& counter, int all) {
        uint64_t now;
        {
            std::lock_guard lock(mutex);
            now = counter.fetch_add(1, std::memory_order_release) + 1;
        }
        if (now % uint64_t(all) == 0) changed.notify_all();
    }
    void await(const std::atomic<uint64_t>& counter, uint64_t target) {
        const auto there = [&] { return counter.load(std::memory_order_acquire) >= target; };
        // a rank sleeps after some tens of microseconds
        const Wait hasty = {.what = "a wait for other ranks", .spins = 100, .yields = 200, .nap = 1};
        wait_until(hasty, there, [&](double nap) {
            std::unique_lock lock(mutex);
            changed.wait_for(lock, std::chrono::duration<double>(nap), [&] { return there() || broken; });
        });
    }
};

struct ThreadWorld::State {
    std::atomic<bool> broken{false};
    std::vector<std::unique_ptr<ThreadTeam>> teams;
};

ThreadWorld::ThreadWorld()
    : look([this] {
          if (state->broken) fatal(kExitRestart, __FILE__, __LINE__, "another rank has failed");
      }),
      state(std::make_unique<State>()) {}
ThreadWorld::~ThreadWorld() = default;

void ThreadWorld::broken() {
    state->broken = true;
    for (const auto& team : state->teams) {
        { std::lock_guard lock(team->mutex); }  // a member that saw the old value now sleeps
        team->changed.notify_all();
    }
}

ThreadTeam* ThreadWorld::make_team(int size) {
    state->teams.push_back(std::make_unique<ThreadTeam>(size, state->broken));
    return state->teams.back().get();
}

// A member's side of a team.
struct Member {
    ThreadTeam* team;
    uint64_t next = 0;                          // ticket
    Job jobs[kMailboxes];
    bool open[kMailboxes] = {};
    std::vector<const void*> slices;
};

static Member& member(Group& g) { return *static_cast<Member*>(g.state.get()); }

static uint64_t start(Group& g, const Job& job) {
    Member& m = member(g);
    const uint64_t ticket = m.next++, mailbox = ticket % kMailboxes;
    CHECK(!m.open[mailbox], "more than {} collectives over {} are in flight", int(kMailboxes), g.name);
    m.jobs[mailbox] = job;
    m.open[mailbox] = true;
    fp32::settle(job.src);
    m.team->mailboxes[mailbox].jobs[size_t(g.index)] = &m.jobs[mailbox];
    m.team->raise(m.team->mailboxes[mailbox].posted, g.size);
    return ticket;
}

static void gather(const Group& g, const Job& job, const Mailbox& mailbox) {
    const size_t unit = size_of(job.type);
    for (int i = 0; i < g.size; i++) {
        const int k = (g.index + i) % g.size;   // members begin at different sources
        std::byte* to = static_cast<std::byte*>(job.dst) + size_t(k) * job.slice * unit;
        const void* from = mailbox.jobs[size_t(k)]->src;
        const size_t bytes = comm::elements(job, k) * unit;
        if (to != from && bytes) fp32::copy_between(to, from, bytes);
    }
}

// Others read the slices that are theirs: this rank's slice may be overwritten.
static void reduce(Group& g, const Job& job, const Mailbox& mailbox) {
    const size_t first = std::min(job.total, size_t(g.index) * job.slice) * size_of(job.type);
    auto& slices = member(g).slices;
    for (int k = 0; k < g.size; k++)
        slices[size_t(k)] = static_cast<const std::byte*>(mailbox.jobs[size_t(k)]->src) + first;
    comm::sum(job.dst, slices.data(), g.size, comm::elements(job, g.index), job.type,
              g.bf16_wire && job.type == Wire::F32);
    fp32::settle(job.dst);
}

static void all_to_all(const Group& g, const Job& job, const Mailbox& mailbox) {
    const size_t unit = size_of(job.type);
    for (int i = 0; i < g.size; i++) {
        const int k = (g.index + i) % g.size;
        const Job& of = *mailbox.jobs[size_t(k)];
        CHECK(of.sent[g.index] == job.received[k], "rank {} of {} sent {} elements, {} are expected", k,
              g.name, of.sent[g.index], job.received[k]);
        const std::byte* from = static_cast<const std::byte*>(of.src) + first_of(of.sent, g.index) * unit;
        std::byte* to = static_cast<std::byte*>(job.dst) + first_of(job.received, k) * unit;
        if (job.received[k]) fp32::copy_between(to, from, job.received[k] * unit);
    }
}

static void finish(Group& g, uint64_t ticket) {
    Member& m = member(g);
    Mailbox& mailbox = m.team->mailboxes[ticket % kMailboxes];
    const Job& job = m.jobs[ticket % kMailboxes];
    const uint64_t all = (ticket / kMailboxes + 1) * uint64_t(g.size);
    m.team->await(mailbox.posted, all);
    if (job.kind == Job::Gather) gather(g, job, mailbox);
    else if (job.kind == Job::Reduce) reduce(g, job, mailbox);
    else if (job.kind == Job::AllToAll) all_to_all(g, job, mailbox);
    else if (const void* from = mailbox.jobs[size_t(job.root)]->src; job.dst != from)
        fp32::copy_between(job.dst, from, job.total * size_of(job.type));
    m.team->raise(mailbox.read, g.size);
    m.team->await(mailbox.read, all);
    m.open[ticket % kMailboxes] = false;
}

static Channel& channel(Group& g, int from, int to) {
    return member(g).team->channels[size_t(from) * size_t(g.size) + size_t(to)];
}

// The ticket tells message and peer.
static uint64_t start_send(Group& g, const void* data, size_t bytes, int peer) {
    Channel& c = channel(g, g.index, peer);
    const uint64_t number = c.sent.load(std::memory_order_relaxed);
    CHECK(number - c.taken.load(std::memory_order_acquire) < kSends, "more than {} sends to rank {} of {}",
          int(kSends), peer, g.name);
    fp32::settle(data);
    c.messages[number % kSends] = {data, bytes};
    member(g).team->raise(c.sent, 1);
    return number * uint64_t(g.size) + uint64_t(peer);
}

static void finish_send(Group& g, uint64_t ticket) {
    const uint64_t size = uint64_t(g.size);
    member(g).team->await(channel(g, g.index, int(ticket % size)).taken, ticket / size + 1);
}

static void recv(Group& g, void* data, size_t bytes, int peer) {
    Channel& c = channel(g, peer, g.index);
    const uint64_t number = c.taken.load(std::memory_order_relaxed);
    member(g).team->await(c.sent, number + 1);
    const auto& m = c.messages[number % kSends];
    CHECK(m.bytes == bytes, "rank {} of {} sent {} bytes, {} are expected", peer, g.name, m.bytes, bytes);
    if (bytes) fp32::copy_between(data, m.data, bytes);
    member(g).team->raise(c.taken, 1);
}

static constexpr Transport threads = {
    .name = "threads", .start = start, .finish = finish, .start_send = start_send,
    .finish_send = finish_send, .recv = recv,
    .sums_natively = sums_in_order, .native_all_reduce = {},
    .needs_staging = false};

void join_team(Group& g, ThreadTeam* team, int index) {
    g.index = index;
    g.size = team->size;
    g.transport = &threads;
    auto m = std::make_shared<Member>();
    m->team = team;
    m->slices.resize(size_t(team->size));
    g.state = std::move(m);
}

}  // namespace transport
