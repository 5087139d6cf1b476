// Rank 0 listens to every caller at once, to each until a deadline, and hangs up on a caller without the
// job's protocol. With too many callers, rank 0 hangs up on the oldest silent caller.
#include <algorithm>
#include <utility>

#include "llmc/base/console.h"
#include "llmc/comm/rendezvous/rendezvous_protocol.h"
#include "llmc/comm/rendezvous/socket.h"

inline namespace rendezvous {

static constexpr double kSilence = 5;                   // seconds for a caller to prove its identity
static constexpr size_t kMostCallers = 256;             // who have not
static constexpr int kAtOnce = 64;                      // calls that are taken before anybody is listened to

namespace {

// Somebody who has connected.
struct Caller {
    Socket socket;
    double until = 0;
    std::string got;                // so far, of Hello or of Shown and its text
    Hello hello = {};
    Nonce nonce = {};               // rank 0's
    bool answered = false;
    bool here = true;               // false: finished

    Caller() = default;
    Caller(Socket s, double deadline) : socket(std::move(s)), until(deadline) {}
    // Missing bytes of the message.
    size_t left() const {
        const size_t head = answered ? sizeof(Shown) : sizeof(Hello);
        const size_t all = head + (answered && got.size() >= head ? shown().length : 0);
        return all - got.size();
    }
    Shown shown() const {
        Shown s;
        memcpy(&s, got.data(), sizeof s);
        return s;
    }
};

struct Server {
    const Rendezvous& r;
    std::vector<Socket> listeners;
    std::vector<Caller> callers;        // the oldest first
    std::vector<Caller> peers;          // by rank; no socket: yet to call
    std::vector<std::string> texts;
    int refused = 0;                    // who called themselves ranks of this job, without its secret

    std::string missing() const;
    bool complete() const;
    void wait(double until);            // for anything to happen
    void make_room();
    void take_calls();
    void listen_to(Caller& c);
    void answer(Caller& c);
    void welcome(Caller& c);
    void refuse(Caller& c);
};

}  // namespace

std::string Server::missing() const {
    std::string list;
    for (int i = 1; i < r.world; i++)
        if (!peers[size_t(i)].socket) list += (list.empty() ? "" : ", ") + std::to_string(i);
    return list;
}

bool Server::complete() const {
    return std::all_of(peers.begin() + 1, peers.end(), [](const Caller& p) { return bool(p.socket); });
}

void Server::refuse(Caller& c) {
    c.here = false;
    if (refused++) return;
    print(stderr, "warning: rank 0 turns away a connection from {}: it calls itself rank {} of this job, "
          "and {}\n", address_of_peer(c.socket), c.hello.rank,
          c.hello.has_secret ? "its TRAIN_GPT_SECRET is another" : "it has no TRAIN_GPT_SECRET");
}

void Server::answer(Caller& c) {
    memcpy(&c.hello, c.got.data(), sizeof c.hello);
    c.got.clear();
    c.answered = true;
    c.nonce = new_nonce();
    const Hello& h = c.hello;
    c.here = h.magic == kMagic && h.job == stream_of(r.job.c_str()) && h.world == r.world && h.rank >= 1 &&
             h.rank < r.world;
    if (!c.here) return;
    const Answer a = {kMagic, h.job, !r.secret.empty(), c.nonce, proof_of(r, "rank 0", h, c.nonce)};
    c.here = c.socket.send_some(&a, sizeof a) == ssize_t(sizeof a);     // its buffer is empty
    if (h.has_secret != a.has_secret) refuse(c);
}

// A rank that tries again, because its first attempt took too long, replaces itself.
void Server::welcome(Caller& c) {
    std::string text = c.got.substr(sizeof(Shown));
    if (!same_hash(c.shown().proof, proof_of(r, "rank", c.hello, c.nonce, sha256(text)))) return refuse(c);
    c.here = false;
    if (c.socket.send_some(&kMagic, sizeof kMagic) != ssize_t(sizeof kMagic)) return;
    const size_t rank = size_t(c.hello.rank);
    texts[rank] = std::move(text);
    peers[rank] = std::move(c);
}

void Server::listen_to(Caller& c) {
    while (c.here) {
        char data[4096];
        if (const size_t left = c.left()) {
            const ssize_t k = c.socket.recv_some(data, std::min(left, sizeof data));
            if (k == 0) return;
            if (k > 0) c.got.append(data, size_t(k));
            c.here = k > 0 && c.left() <= kLongest;
        } else {
            c.answered ? welcome(c) : answer(c);
        }
    }
}

void Server::make_room() {
    const auto says_nothing = [](const Caller& c) { return !c.answered; };
    const auto silent = std::find_if(callers.begin(), callers.end(), says_nothing);
    if (!callers.empty()) callers.erase(silent == callers.end() ? callers.begin() : silent);
}

void Server::take_calls() {
    for (const Socket& listener : listeners)
        for (int i = 0; i < kAtOnce; i++) {
            Socket s(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            const bool no_descriptor = !s && (errno == EMFILE || errno == ENFILE);
            if (no_descriptor || (s && callers.size() >= kMostCallers)) make_room();
            if (!s) break;
            callers.push_back(Caller(std::move(s), seconds_now() + kSilence));
        }
}

void Server::wait(double until) {
    std::vector<pollfd> all;
    const auto add = [&](const Socket& s, short events) { all.push_back({s.fd, events, 0}); };
    for (const Socket& listener : listeners) add(listener, POLLIN);
    for (const Caller& p : peers) add(p.socket, POLLRDHUP);         // -1, not here yet, is passed over
    for (const Caller& c : callers) {
        add(c.socket, POLLIN);
        until = std::min(until, c.until);
    }
    wait_for_files({.what = "rendezvous", .nap = 0.1, .until = until}, all.data(), all.size());
    for (size_t i = 0; i < peers.size(); i++)                       // whoever has left is missing again
        if (all[listeners.size() + i].revents) peers[i].socket = Socket();
}

Listeners listen_as_rank_0(const Rendezvous& r, const std::vector<uint16_t>& ports) {
    Listeners found = listen_at(r.host, ports);
    CHECK_INPUT(found.local || !r.secret.empty(),
                "rank 0 is to listen at {}, which is no address of this machine that others can reach: set "
                "MASTER_ADDR to one, or one TRAIN_GPT_SECRET for all ranks: then rank 0 listens at all",
                r.host);
    return found.local ? std::move(found) : listen_at("", ports);
}

std::vector<std::string> serve(const Rendezvous& r, const std::string& own) {
    const double until = seconds_now() + r.timeout;
    Listeners found = listen_as_rank_0(r, r.ports);
    CHECK_INPUT(!found.sockets.empty(),
                "rank 0 cannot listen at any of the ports {} of {}: set MASTER_PORT to one that is free",
                ports_of(r), r.host);
    Server s = {r, std::move(found.sockets), {}, std::vector<Caller>(size_t(r.world)),
                std::vector<std::string>(size_t(r.world))};
    s.texts[0] = own;
    while (!s.complete()) {
        s.wait(until);
        s.take_calls();
        const double now = seconds_now();
        for (Caller& c : s.callers) {
            s.listen_to(c);
            if (now > c.until) c.here = false;
        }
        std::erase_if(s.callers, [](const Caller& c) { return !c.here; });
        if (now < until) continue;
        const std::string turned_away = s.refused ? fmt::format("; {} calls were turned away that did not "
                                                                "know its TRAIN_GPT_SECRET", s.refused) : "";
        fatal(kExitRestart, __FILE__, __LINE__, "of {} ranks these did not come within {:g} s: {}{}", r.world,
              r.timeout, s.missing(), turned_away);
    }
    const std::string all = packed_texts(s.texts);
    const uint64_t bytes = all.size();
    const Sha256 of_all = sha256(all);          // once: it is long, and there are many peers
    for (int i = 1; i < r.world; i++) {
        const Caller& peer = s.peers[size_t(i)];
        const Sha256 proof = proof_of(r, "all", peer.hello, peer.nonce, of_all);
        if (!peer.socket.send_all(&bytes, sizeof bytes, until) ||
            !peer.socket.send_all(all.data(), all.size(), until) ||
            !peer.socket.send_all(proof.data(), proof.size(), until))
            fatal(kExitRestart, __FILE__, __LINE__, "rank {} left while the ranks met", i);
    }
    return s.texts;
}

}  // namespace rendezvous
