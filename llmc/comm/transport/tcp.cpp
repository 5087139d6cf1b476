// Slices go straight from each rank to each other: as many bytes as around a ring, and sums in the order of
// the ranks.
#include "llmc/base/check.h"
#include "llmc/comm/staging.h"
#include "llmc/comm/transport/tcp.h"
#include "llmc/comm/transport/tcp_rank.h"

inline namespace transport {

thread_local std::vector<Link*> tcp_links;

static void tcp_exchange(Group& g, TcpFlight& f) {
    TcpMember& m = tcp_member(g);
    const Job& j = f.job;
    const size_t unit = size_of(wire_type(g, j));
    round_slices(g, j);
    for (int i = 1; i < g.size; i++) {
        const int k = (g.index + i) % g.size;
        const Parcel p = parcel_of(g, j, k);
        post_send(*m.links[size_t(k)], kCollectives, p.out, p.sent * unit, &f.left);
    }
    keep_own(g, j);
    for (int i = 1; i < g.size; i++) {
        const int k = (g.index + g.size - i) % g.size;
        const Parcel p = parcel_of(g, j, k);
        post_recv(*m.links[size_t(k)], kCollectives, p.in, p.received * unit, &f.left);
    }
}

static void tcp_broadcast(Group& g, TcpFlight& f) {
    TcpMember& m = tcp_member(g);
    const Job& j = f.job;
    const size_t bytes = j.total * size_of(j.type);
    if (g.index != j.root)
        return post_recv(*m.links[size_t(j.root)], kCollectives, j.dst, bytes, &f.left);
    for (const auto& link : m.links)
        if (link) post_send(*link, kCollectives, j.src, bytes, &f.left);
}

static uint64_t tcp_start(Group& g, const Job& job) {
    TcpMember& m = tcp_member(g);
    const uint64_t ticket = m.next++;
    TcpFlight& f = m.flights[ticket % m.kInFlight];
    CHECK(!f.open, "more than {} collectives over {} are in flight", uint64_t(m.kInFlight), g.name);
    f = {job, true, 0};
    if (job.kind == Job::Broadcast) tcp_broadcast(g, f);
    else tcp_exchange(g, f);
    return ticket;
}

static void tcp_finish(Group& g, uint64_t ticket) {
    TcpMember& m = tcp_member(g);
    TcpFlight& f = m.flights[ticket % m.kInFlight];
    await_pieces(tcp_links, &f.left);
    if (f.job.kind == Job::Reduce) sum_received(g, f.job, m.slices);
    f.open = false;
}

// Sends are finished in the order in which they were started.
static uint64_t tcp_start_send(Group& g, const void* data, size_t bytes, int peer) {
    TcpMember& m = tcp_member(g);
    post_send(*m.links[size_t(peer)], kMessages, data, bytes, &m.sends.emplace_back(0));
    return m.sent++;
}

static void tcp_finish_send(Group& g, uint64_t ticket) {
    TcpMember& m = tcp_member(g);
    CHECK(ticket + m.sends.size() == m.sent, "send {} over {} is awaited out of turn", ticket, g.name);
    await_pieces(tcp_links, &m.sends.front());
    m.sends.pop_front();
}

static void tcp_recv(Group& g, void* data, size_t bytes, int peer) {
    size_t left = 0;
    post_recv(*tcp_member(g).links[size_t(peer)], kMessages, data, bytes, &left);
    await_pieces(tcp_links, &left);
}

constexpr Transport tcp_transport = {
    .name = "tcp", .start = tcp_start, .finish = tcp_finish, .start_send = tcp_start_send,
    .finish_send = tcp_finish_send, .recv = tcp_recv, .sums_natively = sums_in_order,
    .native_all_reduce = {}, .needs_staging = true};

void tcp_abandon() { tcp_links.clear(); }

void tcp_end() {
    end_links(tcp_links);
    tcp_links.clear();
}

}  // namespace transport
