// A TCP socket that closes itself, and waits until a deadline.
#pragma once
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/guard/wait.h"
#include "llmc/base/progress.h"

inline namespace rendezvous {

struct Socket {
    int fd = -1;

    explicit Socket(int fd = -1) : fd(fd) {}
    Socket(Socket&& s) noexcept : fd(s.fd) { s.fd = -1; }
    Socket& operator=(Socket&& s) noexcept { std::swap(fd, s.fd); return *this; }
    ~Socket() { if (fd >= 0) close(fd); }
    explicit operator bool() const { return fd >= 0; }

    bool ready(short events, double until) const {
        pollfd p = {.fd = fd, .events = events, .revents = 0};
        const Wait wait = {.what = "a socket", .nap = 0.1, .until = until};
        return seconds_now() < until && wait_for_files(wait, &p, 1);
    }
    // Bytes that moved at once; 0: the call would block. -1: the other end has closed, or an error.
    ssize_t send_some(const void* data, size_t n) const {
        const ssize_t k = send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        return k < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : k;
    }
    template <size_t n> ssize_t send_some(const iovec (&parts)[n]) const {
        msghdr m = {};
        m.msg_iov = const_cast<iovec*>(parts);
        m.msg_iovlen = n;
        const ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        return k < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : k;
    }
    ssize_t recv_some(void* data, size_t n) const {
        const ssize_t k = recv(fd, data, n, MSG_DONTWAIT);
        if (k == 0) return -1;
        return k < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : k;
    }
    bool send_all(const void* data, size_t n, double until) const {
        for (size_t at = 0; at < n;) {
            if (!ready(POLLOUT, until)) return false;
            const ssize_t k = send_some(static_cast<const char*>(data) + at, n - at);
            if (k < 0) return false;
            at += size_t(k);
        }
        return true;
    }
    bool recv_all(void* data, size_t n, double until) const {
        for (size_t at = 0; at < n;) {
            if (!ready(POLLIN, until)) return false;
            const ssize_t k = recv_some(static_cast<char*>(data) + at, n - at);
            if (k < 0) return false;
            at += size_t(k);
        }
        return true;
    }
};

// Listens at the first free port, at the addresses of `host` that belong to this machine. A loopback address
// counts only if `host` names a loopback address. host empty: all addresses.
struct Listeners {
    std::vector<Socket> sockets;    // empty: not listening
    bool local = false;             // an address of this machine was found
};
Listeners listen_at(const std::string& host, const std::vector<uint16_t>& ports);

// Connects to every address of `host` at every port at once: a dead address delays no other. Returns the
// connected sockets, the first to answer in front.
std::vector<Socket> connect_to(const std::string& host, const std::vector<uint16_t>& ports, double until);
std::string address_of_peer(const Socket& s);       // "10.0.0.7"
uint16_t port_of(const Socket& s);                  // its own
// This machine's address on the way to `host`, as a number; empty: there is no way, or no such host.
std::string own_address_towards(const std::string& host);

}  // namespace rendezvous
