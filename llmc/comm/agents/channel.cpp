// A caller and the called agent prove that they know the secret, without sending it:
//
//     called                          caller
//     Challenge: a random number ->
//                                <-   Proof: another, HMAC over "caller" and both
//     Welcome: HMAC over "called" and both ->
#include "llmc/comm/agents/channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cstdlib>

#include "llmc/base/sha256.h"
#include "llmc/comm/rendezvous/rendezvous_protocol.h"

inline namespace agents {

static constexpr double kSilence = 5;           // seconds for a proof
static constexpr size_t kUnproved = 256;        // bytes of a message before it

namespace {
struct Frame {
    uint32_t kind, magic;
    uint64_t bytes;
};
}  // namespace
static constexpr uint32_t kFrameMagic = 0x74677031;

void MessageChannel::send(Say kind, std::string_view bytes) {
    if (closed) return;
    const Frame frame = {uint32_t(kind), kFrameMagic, bytes.size()};
    out.append(reinterpret_cast<const char*>(&frame), sizeof frame).append(bytes);
    flush();
}

void MessageChannel::flush() {
    while (!closed && unsent()) {
        const ssize_t k = socket.send_some(out.data() + sent, unsent());
        if (k < 0) return close();
        if (k == 0) break;
        sent += size_t(k);
    }
    constexpr size_t kKept = 1 << 20;           // bytes that were sent
    if (unsent() && sent < kKept) return;
    out.erase(0, sent);
    sent = 0;
}

void MessageChannel::close() {
    closed = true;
    socket = Socket();
}

// What has arrived, up to a few pieces. false: nothing.
bool MessageChannel::read_some() {
    constexpr size_t kPiece = 256 << 10;
    const size_t before = in.size();
    in.resize(before + kPiece);
    const ssize_t k = socket.recv_some(in.data() + before, kPiece);
    in.resize(before + size_t(std::max<ssize_t>(k, 0)));
    if (k < 0) close();
    return k > 0;
}

std::optional<Message> MessageChannel::next() {
    for (;;) {
        Frame frame;
        if (in.size() >= sizeof frame) {
            memcpy(&frame, in.data(), sizeof frame);
            if (frame.magic != kFrameMagic || frame.bytes > longest) {
                close();
                return std::nullopt;
            }
            if (in.size() - sizeof frame >= frame.bytes) {
                Message m{Say(frame.kind), in.substr(sizeof frame, frame.bytes)};
                in.erase(0, sizeof frame + frame.bytes);
                return m;
            }
        }
        if (closed || !read_some()) return std::nullopt;
    }
}

std::optional<Message> MessageChannel::await(const char* what, double until, bool beats) {
    std::optional<Message> m;
    const Wait wait = {.what = what, .nap = 0.1, .until = until, .beats = beats};
    const auto done = [&] {
        flush();
        return (m = next()).has_value() || closed;
    };
    wait_until(wait, done, [&](double nap) {
        pollfd p = {.fd = socket.fd, .events = events(), .revents = 0};
        poll(&p, 1, int(nap * 1000) + 1);
    });
    return m;
}

std::string to_bytes(const GroupPlan& p) {
    return bytes_of(p.head, bytes_of_list(p.seats) + bytes_of_list(p.sources) + bytes_of_list(p.losses));
}

GroupPlan plan_of(std::string_view bytes) {
    GroupPlan p;
    if (bytes.size() < sizeof p.head) return p;
    memcpy(&p.head, bytes.data(), sizeof p.head);
    bytes.remove_prefix(sizeof p.head);
    const auto take = [&](auto& list, int32_t count) {
        const size_t size = size_t(std::max(count, 0)) * sizeof list[0];
        using T = std::remove_reference_t<decltype(list[0])>;
        list = list_of<T>(bytes.substr(0, std::min(size, bytes.size())));
        bytes.remove_prefix(std::min(size, bytes.size()));
    };
    take(p.seats, p.head.world);
    take(p.sources, p.head.images);
    take(p.losses, p.head.losses);
    return p;
}

// ---------------------------------------------------------------------------------------------------------
// proofs

std::string hex_of(const uint8_t* bytes) {
    std::string text;
    for (size_t i = 0; i < 16; i++) text += fmt::format("{:02x}", bytes[i]);
    return text;
}

std::string secret_of_run(const std::string& of_lease) {
    const char* const given = getenv("TRAIN_GPT_SECRET");
    return given && *given ? hex_of(sha256(given).data()) : of_lease;
}

static std::string random_number() {
    const Nonce n = new_nonce();
    return std::string(reinterpret_cast<const char*>(n.data()), n.size());
}

static std::string proof_by(const char* speaker, const std::string& secret, std::string_view called,
                            std::string_view caller) {
    const std::string data = std::string(speaker).append("\n").append(called).append(caller);
    const Sha256 proof = hmac_sha256(secret, data);
    return std::string(reinterpret_cast<const char*>(proof.data()), proof.size());
}

static bool same_proof(std::string_view a, const std::string& b) {
    Sha256 x, y;
    if (a.size() != x.size() || b.size() != y.size()) return false;
    memcpy(x.data(), a.data(), a.size());
    memcpy(y.data(), b.data(), b.size());
    return same_hash(x, y);
}

static void set_options(const Socket& s) {
    const int on = 1;
    setsockopt(s.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Caller::Caller(Socket s)
    : channel(std::move(s)), until(seconds_now() + kSilence), challenge(random_number()) {
    set_options(channel.socket);
    channel.longest = kUnproved;
    channel.send(Say::Challenge, challenge);
}

bool Caller::admit(const Message& m, const std::string& secret) {
    const size_t n = challenge.size();
    if (m.kind != Say::Proof || m.bytes.size() <= n) return false;
    const std::string number = m.bytes.substr(0, n);
    if (!same_proof(std::string_view(m.bytes).substr(n), proof_by("caller", secret, challenge, number)))
        return false;
    channel.send(Say::Welcome, proof_by("called", secret, challenge, number));
    channel.longest = MessageChannel().longest;
    return admitted = true;
}

AgentCall::AgentCall(const std::string& address, uint16_t port, const std::string& secret, double until)
    : secret_(secret) {
    std::vector<Socket> found = connect_to(address, {port}, until);
    if (found.empty()) return;
    channel = MessageChannel(std::move(found.front()));
    set_options(channel.socket);
}

bool AgentCall::take(const Message& m) {
    if (m.kind == Say::Challenge && number_.empty()) {
        challenge_ = m.bytes;
        number_ = random_number();
        channel.send(Say::Proof, number_ + proof_by("caller", secret_, challenge_, number_));
        return true;
    }
    proved = m.kind == Say::Welcome && !number_.empty() &&
             same_proof(m.bytes, proof_by("called", secret_, challenge_, number_));
    return proved;
}

MessageChannel call_agent(const std::string& address, uint16_t port, const std::string& secret,
                          double until) {
    AgentCall call(address, port, secret, until);
    while (!call.proved) {
        const std::optional<Message> m = call.channel.await("another agent", until);
        if (!m || !call.take(*m)) return {};
    }
    return std::move(call.channel);
}

}  // namespace agents
