#include "llmc/comm/rendezvous/socket.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

inline namespace rendezvous {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// host empty: all of this machine's. numeric: an address as text, no name.
static Addresses addresses_of(const std::string& host, uint16_t port, bool numeric = false) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_flags = (host.empty() ? AI_PASSIVE : 0) | (numeric ? AI_NUMERICHOST : 0);
    hints.ai_socktype = SOCK_STREAM;
    const char* name = host.empty() ? nullptr : host.c_str();
    if (getaddrinfo(name, std::to_string(port).c_str(), &hints, &found)) found = nullptr;
    return {found, freeaddrinfo};
}

static bool is_loopback(const addrinfo& a) {
    if (a.ai_family == AF_INET)
        return ntohl(reinterpret_cast<const sockaddr_in*>(a.ai_addr)->sin_addr.s_addr) >> 24 == 127;
    return a.ai_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(a.ai_addr)->sin6_addr);
}

// 0, or why not.
static int open_listener(const addrinfo& a, Socket* listener) {
    Socket s(socket(a.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!s) return errno;
    const int on = 1;
    setsockopt(s.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a.ai_family == AF_INET6) setsockopt(s.fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(s.fd, a.ai_addr, a.ai_addrlen) || listen(s.fd, 1024)) return errno;
    *listener = std::move(s);
    return 0;
}

Listeners listen_at(const std::string& host, const std::vector<uint16_t>& ports) {
    const bool names_it = host == "localhost" || addresses_of(host, 0, true);
    Listeners found;
    for (const uint16_t port : ports) {
        found.sockets.clear();
        bool taken = false;
        const Addresses addresses = addresses_of(host, port);
        for (const addrinfo* a = addresses.get(); a && !taken; a = a->ai_next) {
            if (is_loopback(*a) && !names_it) continue;
            Socket listener;
            const int error = open_listener(*a, &listener);
            if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) continue;
            found.local = true;
            if (error) taken = true;
            else found.sockets.push_back(std::move(listener));
        }
        if (!taken && !found.sockets.empty()) return found;
    }
    found.sockets.clear();
    return found;
}

// 0: connected. EINPROGRESS: the answer comes later. Else: the reason.
static int start_connect(const addrinfo& a, Socket* socket_to) {
    Socket s(socket(a.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!s) return errno;
    const int error = connect(s.fd, a.ai_addr, a.ai_addrlen) == 0 ? 0 : errno;
    *socket_to = std::move(s);
    return error;
}

// Moves the sockets whose connecting has ended from `open` to `done`, or closes them.
static void take_connected(std::vector<Socket>& open, std::vector<Socket>& done, double until) {
    std::vector<pollfd> all;
    for (const Socket& s : open) all.push_back({s.fd, POLLOUT, 0});
    wait_for_files({.what = "connecting", .nap = 0.1, .until = until}, all.data(), all.size());
    for (size_t i = open.size(); i-- > 0;) {
        if (!all[i].revents) continue;
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(open[i].fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error == 0) done.push_back(std::move(open[i]));
        open.erase(open.begin() + ptrdiff_t(i));
    }
}

std::vector<Socket> connect_to(const std::string& host, const std::vector<uint16_t>& ports, double until) {
    static constexpr double kGrace = 0.25;      // seconds for the other addresses, after the first connects
    std::vector<Socket> open, done;
    for (const uint16_t port : ports) {
        const Addresses addresses = addresses_of(host, port);
        for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
            Socket s;
            const int error = start_connect(*a, &s);
            if (error == 0) done.push_back(std::move(s));
            if (error == EINPROGRESS) open.push_back(std::move(s));
        }
    }
    bool first = true;
    while (!open.empty() && seconds_now() < until) {
        if (!done.empty() && std::exchange(first, false)) until = std::min(until, seconds_now() + kGrace);
        take_connected(open, done, until);
    }
    return done;
}

struct Address {
    sockaddr_storage bytes = {};
    socklen_t size = sizeof bytes;
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

static std::string text_of(Address& a) {
    char text[NI_MAXHOST] = "?";
    getnameinfo(a.get(), a.size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    return text;
}

std::string address_of_peer(const Socket& s) {
    Address a;
    return getpeername(s.fd, a.get(), &a.size) == 0 ? text_of(a) : "?";
}

uint16_t port_of(const Socket& s) {
    Address a;
    if (getsockname(s.fd, a.get(), &a.size)) return 0;
    return ntohs(a.bytes.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(a.get())->sin6_port
                                               : reinterpret_cast<sockaddr_in*>(a.get())->sin_port);
}

// Connecting a socket of UDP sends nothing: the kernel looks up the route.
std::string own_address_towards(const std::string& host) {
    constexpr uint16_t kAny = 9;
    const Addresses addresses = addresses_of(host, kAny);
    for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
        const Socket s(socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        Address own;
        if (s && connect(s.fd, a->ai_addr, a->ai_addrlen) == 0 &&
            getsockname(s.fd, own.get(), &own.size) == 0)
            return text_of(own);
    }
    return {};
}

}  // namespace rendezvous
