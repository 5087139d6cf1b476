// A rank calls the members of its groups that have lower ranks, and is called by the others: a connection for
// each group and pair. The caller says who it is, and both prove that they know the job's secret, and the
// random numbers that the ranks have exchanged.
//
//     caller                          called
//     Hello, with a proof      ->
//                              <-     Answer, with a proof
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/sha256.h"
#include "llmc/comm/rendezvous/rendezvous.h"
#include "llmc/comm/transport/placement.h"
#include "llmc/comm/transport/tcp.h"
#include "llmc/comm/transport/tcp_rank.h"

inline namespace transport {

static constexpr double kSilence = 5;           // seconds for a caller to say who it is

namespace {

struct Claim {
    int32_t from, to, group;
    uint32_t reads;                 // whether the speaker reads the other's memory
};
struct Hello {                      // Answer has the same form, from the called rank
    Claim claim;
    Sha256 proof;
};
static_assert(sizeof(Hello) == 48, "no byte is left unset");

struct Caller {
    Socket socket;
    double until;
    Hello hello = {};
    size_t got = 0;
};

// One rank's part of connecting.
struct Connecting {
    const TcpDoor& door;
    const std::vector<TcpEndpoint>& endpoints;
    RankMesh& ranks;
    const int own = ranks.mesh.rank;
    const double until = seconds_now() + start_patience();
    std::vector<Caller> callers;
    size_t awaited = 0;             // links without a connection

    void call(Link& l, int group);
    void await_answers(int group);
    void take_calls();
    bool listen_to(Caller& c);      // false: its connection is a link's now, or was closed
    void welcome(Caller& c);
    void wait_for_calls();
    Hello spoken(int to, int group) const;
    bool is_proved(const Hello& h) const;
    void finish(Link& l, bool peer_reads);
    [[noreturn]] void late() const;
};

}  // namespace

static Sha256 proof_of(const std::string& secret, const Claim& c, const std::vector<TcpEndpoint>& all) {
    std::string data = "tcp\n";
    data.append(reinterpret_cast<const char*>(&c), sizeof c);
    for (const int rank : {c.from, c.to})
        data.append(reinterpret_cast<const char*>(all[size_t(rank)].nonce.data()), sizeof all[0].nonce);
    return hmac_sha256(secret, data);
}

// Same host, same namespace of processes, and the right to read: then the mark is there.
static bool reads(const TcpEndpoint& own, const TcpEndpoint& other) {
    uint64_t mark = 0;
    return tcp_reads_memory && !memcmp(own.boot, other.boot, sizeof own.boot) &&
           read_memory(other.process, &mark, other.mark_address, sizeof mark) && mark == other.mark;
}

Hello Connecting::spoken(int to, int group) const {
    const Claim claim = {own, to, group, reads(endpoints[size_t(own)], endpoints[size_t(to)])};
    return {claim, proof_of(door.secret, claim, endpoints)};
}

bool Connecting::is_proved(const Hello& h) const {
    const int32_t world = int32_t(endpoints.size());
    return h.claim.from >= 0 && h.claim.from < world && h.claim.to == own &&
           same_hash(h.proof, proof_of(door.secret, h.claim, endpoints));
}

void Connecting::late() const {
    std::string missing;
    for (const Link* l : tcp_links)
        if (l->socket.fd < 0 && missing.size() < 60)
            missing += fmt::format("{}{} on {}", missing.empty() ? "" : ", ", l->peer, l->host);
    lose_rank(__FILE__, __LINE__, fmt::format("ranks did not connect to rank {} within {:g} s: {}", own,
                                              start_patience(), missing));
}

// Short pieces leave at once. A host that vanishes closes no connection: after a minute without an answer the
// kernel does.
static void set_options(const Socket& s) {
    const auto set = [&](int level, int option, int value) {
        setsockopt(s.fd, level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, 60000);      // milliseconds
}

void Connecting::finish(Link& l, bool peer_reads) {
    set_options(l.socket);
    const TcpEndpoint& peer = endpoints[size_t(l.peer)];
    if (peer_reads && reads(endpoints[size_t(own)], peer)) l.process = peer.process;
    awaited--;
}

// The answer is awaited later: the called rank may still be calling.
void Connecting::call(Link& l, int group) {
    const TcpEndpoint& to = endpoints[size_t(l.peer)];
    std::vector<uint16_t> ports;
    std::copy_if(to.ports.begin(), to.ports.end(), std::back_inserter(ports), [](uint16_t p) { return p; });
    std::vector<Socket> found = connect_to(to.address, ports, until);
    if (found.empty())
        lose_rank(__FILE__, __LINE__, fmt::format("rank {} does not answer at {}, port {}", l.peer,
                                                  to.address, to.ports[0]));
    l.socket = std::move(found.front());
    const Hello hello = spoken(l.peer, group);
    if (!l.socket.send_all(&hello, sizeof hello, until)) late();
}

void Connecting::await_answers(int group) {
    if (!ranks.groups[group].state) return;
    for (const auto& l : tcp_member(ranks.groups[group]).links) {
        if (!l || l->peer > own) continue;
        Hello answer;
        if (!l->socket.recv_all(&answer, sizeof answer, until) || answer.claim.from != l->peer ||
            answer.claim.group != group || !is_proved(answer))
            lose_rank(__FILE__, __LINE__, fmt::format("rank {} on {} does not answer as a rank of this job",
                                                      l->peer, l->host));
        finish(*l, answer.claim.reads);
    }
}

void Connecting::welcome(Caller& c) {
    const Claim& said = c.hello.claim;
    if (!is_proved(c.hello) || said.group < 0 || said.group >= kGroups) return;
    Group& g = ranks.groups[said.group];
    if (!g.state) return;
    auto& links = tcp_member(g).links;
    const auto found = std::find_if(links.begin(), links.end(),
                                    [&](const auto& l) { return l && l->peer == said.from; });
    if (found == links.end() || (*found)->socket || said.from < own) return;
    const Hello answer = spoken(said.from, said.group);
    if (c.socket.send_some(&answer, sizeof answer) != ssize_t(sizeof answer)) return;
    (*found)->socket = std::move(c.socket);
    finish(**found, said.reads);
}

bool Connecting::listen_to(Caller& c) {
    const ssize_t k = c.socket.recv_some(reinterpret_cast<char*>(&c.hello) + c.got, sizeof c.hello - c.got);
    if (k < 0 || seconds_now() > c.until) return false;
    c.got += size_t(k);
    if (c.got < sizeof c.hello) return true;
    welcome(c);
    return false;
}

void Connecting::take_calls() {
    for (const Socket& listener : door.listeners.sockets)
        for (;;) {
            Socket s(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!s) break;
            callers.push_back({std::move(s), seconds_now() + kSilence});
        }
    std::erase_if(callers, [&](Caller& c) { return !listen_to(c); });
}

void Connecting::wait_for_calls() {
    std::vector<pollfd> files;
    for (const Socket& s : door.listeners.sockets) files.push_back({s.fd, POLLIN, 0});
    for (const Caller& c : callers) files.push_back({c.socket.fd, POLLIN, 0});
    wait_for_files({.what = "calls of other ranks", .nap = 0.1, .until = std::min(until, seconds_now() + 1)},
                   files.data(), files.size());
}

// ---------------------------------------------------------------------------------------------------------
// begin

// A connection is a descriptor; the usual limit is 1,024.
static void raise_limit_of_files() {
    rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

// Also Linux's security module Yama then lets processes of the same user read this rank's memory.
static void let_others_read() { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

static TcpDoor door_of(Listeners listeners, const std::string& address, const std::string& secret) {
    TcpDoor door;
    TcpEndpoint& e = door.endpoint;
    door.listeners = std::move(listeners);
    for (size_t i = 0; i < std::min(e.ports.size(), door.listeners.sockets.size()); i++)
        e.ports[i] = port_of(door.listeners.sockets[i]);
    host_name().copy(e.host, sizeof e.host - 1);
    address.copy(e.address, sizeof e.address - 1);
    memcpy(e.boot, own_placement(false).boot, sizeof e.boot);
    e.process = getpid();
    door.secret = secret;
    door.mark = std::make_unique<uint64_t>();
    CHECK(getrandom(door.mark.get(), sizeof *door.mark, 0) == sizeof *door.mark &&
              getrandom(e.nonce.data(), e.nonce.size(), 0) == ssize_t(e.nonce.size()),
          "getrandom: {}", strerror(errno));
    e.mark = *door.mark;
    e.mark_address = reinterpret_cast<uint64_t>(door.mark.get());
    return door;
}

TcpDoor tcp_listen(const Rendezvous& r) {
    const std::string address = r.rank == 0 ? r.host : own_address_towards(r.host);
    Listeners listeners = r.rank == 0 ? listen_as_rank_0(r, {0}) : listen_at(address, {0});
    CHECK_INPUT(!listeners.sockets.empty() && address.size() < sizeof TcpEndpoint().address,
                "rank {} cannot listen at {}, from where it reaches rank 0 at {}: set MASTER_ADDR to an "
                "address of rank 0 that every rank reaches",
                r.rank, address, r.host);
    return door_of(std::move(listeners), address, r.secret);
}

TcpDoor tcp_listen_at(const std::string& address, const std::string& secret) {
    Listeners listeners = listen_at(address, {0});
    CHECK_INPUT(!listeners.sockets.empty() && address.size() < sizeof TcpEndpoint().address,
                "this rank cannot listen at {}, the address of its agent", address);
    return door_of(std::move(listeners), address, secret);
}

// A group's links, not connected yet.
static std::shared_ptr<TcpMember> unconnected(const GridSlice& members, int own,
                                              const std::vector<TcpEndpoint>& endpoints) {
    auto m = std::make_shared<TcpMember>();
    m->slices.resize(size_t(members.size));
    for (int i = 0; i < members.size; i++) {
        const int peer = members.rank(i);
        m->links.push_back(peer == own ? nullptr : std::make_unique<Link>());
        if (peer == own) continue;
        m->links.back()->peer = peer;
        m->links.back()->host = endpoints[size_t(peer)].host;
        tcp_links.push_back(m->links.back().get());
    }
    return m;
}

void tcp_begin(const TcpDoor& door, RankMesh& ranks, const MeshShape& shape,
               const std::vector<TcpEndpoint>& endpoints) {
    const Waiting named("connecting the ranks", Awaits::Ranks, start_patience());
    raise_limit_of_files();
    let_others_read();
    tcp_links.clear();
    for (size_t i = 0; i < kGroups; i++) {
        const GridSlice members = group_slice(shape, i, ranks.mesh.rank);
        if (members.size == 1) continue;
        ranks.groups[i].transport = &tcp_transport;
        ranks.groups[i].state = unconnected(members, ranks.mesh.rank, endpoints);
    }
    Connecting c = {.door = door, .endpoints = endpoints, .ranks = ranks, .callers = {},
                    .awaited = tcp_links.size()};
    size_t called = 0;
    for (int group = 0; group < kGroups; group++) {
        if (!ranks.groups[group].state) continue;
        for (const auto& l : tcp_member(ranks.groups[group]).links)
            if (l && l->peer < c.own) {
                c.call(*l, group);
                called++;
            }
    }
    while (c.awaited > called) {
        if (seconds_now() > c.until) c.late();
        c.wait_for_calls();
        c.take_calls();
    }
    for (int group = 0; group < kGroups; group++) c.await_answers(group);
}

}  // namespace transport
