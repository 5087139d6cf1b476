// Ranks that are threads of this process, connected over TCP on loopback addresses.
#pragma once
#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/comm/rendezvous/rendezvous.h"
#include "llmc/comm/transport/tcp.h"
#include "test/test.h"

namespace test {

// Whether long pieces are read from memory, or go through the connections.
enum class Memory { Read, Apart };

inline Rendezvous at_loopback(int rank, int world) {
    return {.rank = rank, .world = world, .host = "127.0.0.1", .ports = {}, .job = "a job", .secret = "s"};
}

// What a rank's thread has thrown; code 0: nothing.
struct RankEnd {
    int code = 0;
    std::string error;
};

// body(mesh) of each rank; without a last barrier where it throws.
inline std::vector<RankEnd> run_over_tcp(const Config& c, int ranks, Memory memory,
                                       const std::function<void(const Mesh&)>& body) {
    std::vector<TcpDoor> doors;
    std::vector<TcpEndpoint> endpoints;
    for (int r = 0; r < ranks; r++) {
        doors.push_back(tcp_listen(at_loopback(r, ranks)));
        if (memory == Memory::Apart) doors.back().endpoint.boot[0] = char('A' + r);     // other hosts
        endpoints.push_back(doors.back().endpoint);
    }
    std::vector<RankEnd> ended;
    ended.resize(size_t(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; r++)
        threads.emplace_back([&, r] {
            const Fatal e = fatal_of([&] {
                RankMesh m(c.parallel, ranks, r);
                tcp_begin(doors[size_t(r)], m, mesh_shape(c.parallel, ranks), endpoints);
                body(m.mesh);
                m.mesh.world.barrier();
                tcp_end();
            });
            ended[size_t(r)] = {e.code, e.what()};
        });
    for (std::thread& t : threads) t.join();
    return ended;
}

inline void expect_success(const std::vector<RankEnd>& all) {
    for (size_t r = 0; r < all.size(); r++)
        EXPECT(all[r].code == 0, "rank %zu: %s", r, all[r].error.c_str());
}

}  // namespace test
