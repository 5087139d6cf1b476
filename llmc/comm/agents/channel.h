// Room comm/agents: run.elastic: one agent a host starts ranks, outlives them, keeps images of their state in
// memory, and agrees with the other agents on who trains next. main() calls be_agent(); comm/launch runs a
// rank by member.h, and train/survive keeps and restores images by it.
// The room knows processes, hosts and bytes. It knows no tensor, and no mesh beyond the number of its ranks.
//
// A channel: messages between two processes, over a stream socket. No call waits, unless it says so.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "llmc/comm/agents/messages.h"
#include "llmc/comm/rendezvous/socket.h"

inline namespace agents {

struct Message {
    Say kind;
    std::string bytes;

    // The numbers in front; a message that is too short gives zeros.
    template <class T> T head() const {
        T t = {};
        if (bytes.size() >= sizeof t) memcpy(&t, bytes.data(), sizeof t);
        return t;
    }
    // What follows them.
    template <class T> std::string_view rest() const {
        return std::string_view(bytes).substr(std::min(bytes.size(), sizeof(T)));
    }
};

template <class T> std::string bytes_of(const T& head, std::string_view rest = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
    return bytes.append(rest);
}
template <class T> std::string bytes_of_list(const std::vector<T>& list) {
    return std::string(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
}
template <class T> std::vector<T> list_of(std::string_view bytes) {
    std::vector<T> list(bytes.size() / sizeof(T));
    memcpy(list.data(), bytes.data(), list.size() * sizeof(T));
    return list;
}

struct MessageChannel {
    Socket socket;
    bool closed = true;             // the other end has gone, or sent what is no message
    size_t longest = size_t(1) << 34;       // bytes of a message that arrives, at most

    MessageChannel() = default;
    explicit MessageChannel(Socket s) : socket(std::move(s)), closed(!socket) {}

    void send(Say kind, std::string_view bytes = {});
    template <class T> requires(!std::convertible_to<T, std::string_view>)
    void send(Say kind, const T& head, std::string_view rest = {}) {
        send(kind, std::string_view(bytes_of(head, rest)));
    }
    // The next message that has arrived whole.
    std::optional<Message> next();
    // Waits for a message; none: the channel has closed, or `until` is over.
    std::optional<Message> await(const char* what, double until, bool beats = false);
    // Sends what has not been sent; waits for it in await() only.
    void flush();
    size_t unsent() const { return out.size() - sent; }
    short events() const { return short(POLLIN | (unsent() ? POLLOUT : 0)); }
    void close();

private:
    std::string in, out;
    size_t sent = 0;                // of out
    bool read_some();
};

// 16 bytes as a text that fits a Word: random, or the front of a hash.
std::string hex_of(const uint8_t* bytes);

// What proves that a process belongs to the run: TRAIN_GPT_SECRET, hashed, or else the lease's.
std::string secret_of_run(const std::string& of_lease);

// A call of another agent; both prove that they know the run's secret.
struct AgentCall {
    MessageChannel channel;
    bool proved = false;

    AgentCall() = default;
    // Connects; waits for the other machine at most, not for its agent.
    AgentCall(const std::string& address, uint16_t port, const std::string& secret, double until);
    // Takes what the called agent proves. false: it is no such message, or a wrong proof.
    bool take(const Message& m);

private:
    std::string secret_, challenge_, number_;
};
// The same, with both proofs. Closed: the agent did not answer in time.
MessageChannel call_agent(const std::string& address, uint16_t port, const std::string& secret, double until);

// The other end of call_agent(). A caller who does not prove the secret in time is turned away.
struct Caller {
    MessageChannel channel;
    double until;
    std::string challenge;
    bool admitted = false;

    explicit Caller(Socket s);
    // Takes the caller's proof. false: there is none, or a wrong one.
    bool admit(const Message& m, const std::string& secret);
};

}  // namespace agents
