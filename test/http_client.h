// A small HTTP client.
#pragma once
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

#include "llmc/base/disk/files.h"
#include "test/test.h"

namespace test {

// A connection to a port of 127.0.0.1, closed at its end.
struct Connection {
    Fd fd{socket(AF_INET, SOCK_STREAM, 0)};
    std::string got = {};

    explicit Connection(int port, int receive_buffer = 0) {
        if (receive_buffer)
            setsockopt(fd.fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
        sockaddr_in to = {};
        to.sin_family = AF_INET;
        to.sin_port = htons(uint16_t(port));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT(connect(fd.fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect: %s",
               strerror(errno));
    }
    void send_text(const std::string& text) { (void)!send(fd.fd, text.data(), text.size(), MSG_NOSIGNAL); }
    // Reads until `until` has come, or the end, or the time is over.
    bool read(const std::string& until, double seconds = 10) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
        char bytes[65536];
        while (until.empty() || got.find(until) == got.npos) {
            const auto left = std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count();
            if (left <= 0) return false;
            const timeval wait = {time_t(left), suseconds_t(1e6 * (left - double(time_t(left)))) + 1};
            setsockopt(fd.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
            const ssize_t n = recv(fd.fd, bytes, sizeof bytes, 0);
            if (n <= 0) return until.empty() && n == 0;
            got.append(bytes, size_t(n));
        }
        return true;
    }
};

// Whether a connection to an address of this machine, as "127.0.0.2", is taken.
inline bool listens_at(const char* address, int port) {
    const Fd fd{socket(AF_INET, SOCK_STREAM, 0)};
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(uint16_t(port));
    CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1, "{} is no address", address);
    return connect(fd.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

inline std::string ask(int port, const std::string& target, const std::string& host = "127.0.0.1",
                       const std::string& method = "GET") {
    Connection c(port);
    c.send_text(method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
    c.read("");
    return c.got;
}
inline int status(const std::string& answer) { return answer.size() > 12 ? atoi(answer.c_str() + 9) : 0; }
inline std::string body(const std::string& answer) {
    const size_t at = answer.find("\r\n\r\n");
    return at == answer.npos ? "" : answer.substr(at + 4);
}

inline void listen_to(Connection& c) {
    c.send_text("GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n");
}

}  // namespace test
