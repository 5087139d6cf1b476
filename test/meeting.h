// Ranks that are threads and meet over TCP, on loopback addresses alone.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "llmc/base/context.h"
#include "llmc/comm/rendezvous/rendezvous.h"
#include "test/test.h"

// A socket that listens at a port of the kernel's choice; not listening, it only keeps the port from others.
struct Door {
    int fd;
    uint16_t port;
    explicit Door(bool listens, int queue = 16) : fd(socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in a = {};
        a.sin_family = AF_INET;
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a);
        if (listens) listen(fd, queue);
        socklen_t n = sizeof a;
        getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n);
        port = ntohs(a.sin_port);
    }
    ~Door() { close(fd); }
};

inline uint16_t free_port() { return Door(false).port; }

struct Result { std::vector<std::string> texts; int code = 0; std::string error; };

inline Result meet(const Rendezvous& r, const std::string& text, int delay_ms = 0) {
    Result result;
    usleep(unsigned(delay_ms) * 1000);
    const Fatal e = test::fatal_of([&] { result.texts = exchange(r, text); });
    result.code = e.code;
    result.error = e.what();
    return result;
}

inline Rendezvous place_of_rank(int rank, int world, std::vector<uint16_t> ports, std::string job = "a job") {
    return {.rank = rank,
            .world = world,
            .host = "localhost",
            .ports = std::move(ports),
            .job = std::move(job),
            .secret = "",
            .timeout = 20,
            .patience = 0.5};
}

inline std::string text_of(int rank) { return std::string(size_t(rank) * 1000, 'x') + std::to_string(rank); }

inline void expect_all(const std::vector<Result>& all) {
    for (size_t r = 0; r < all.size(); r++) {
        EXPECT(all[r].code == 0, "rank %zu: %s", r, all[r].error.c_str());
        EXPECT(all[r].texts.size() == all.size(), "rank %zu has %zu", r, all[r].texts.size());
        for (size_t i = 0; i < all[r].texts.size(); i++) EXPECT(all[r].texts[i] == text_of(int(i)));
    }
}

inline std::vector<Result> run(int world, const std::vector<uint16_t>& ports, const std::string& job,
                               int latest) {
    std::vector<Result> all;
    all.resize(size_t(world));
    std::vector<std::thread> threads;
    for (int r = 0; r < world; r++)
        threads.emplace_back([&, r] {
            all[size_t(r)] = meet(place_of_rank(r, world, ports, job), text_of(r), r == latest ? 300 : 0);
        });
    for (auto& t : threads) t.join();
    return all;
}
