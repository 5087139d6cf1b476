// Ranks on CPUs over TCP: processes of any launcher, on any hosts. Sums are in the order of the ranks, as
// over threads and MPI: equal bits.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llmc/comm/mesh.h"
#include "llmc/comm/rendezvous/rendezvous.h"
#include "llmc/comm/rendezvous/socket.h"

inline namespace transport {

// Where a rank listens to the other ranks of its job. Exchanged as raw bytes.
struct TcpEndpoint {
    char host[64];                  // its name, for messages
    char address[64];               // that others can reach: a number, or rank 0's name
    char boot[40];                  // id of the host's boot
    std::array<uint16_t, 4> ports;  // of each listening socket; 0: none
    int32_t process;
    uint64_t mark, mark_address;    // a number in the rank's memory, and where: whoever reads it there may
                                    // read all
    std::array<uint8_t, 16> nonce;
};

// A rank that listens, before it knows the others.
struct TcpDoor {
    Listeners listeners;
    TcpEndpoint endpoint = {};
    std::unique_ptr<uint64_t> mark;
    std::string secret;
};
// Listens at the address from which the rank reaches rank 0. Exit code 78 where rank 0 has no address that
// others can reach.
TcpDoor tcp_listen(const Rendezvous& r);
// The same at an address of this host; exit code 78 where it is none.
TcpDoor tcp_listen_at(const std::string& address, const std::string& secret);

// false: pieces between ranks of a host go through connections alone. For tests whose ranks are threads: the
// memory of a thread that is gone can be read.
inline thread_local bool tcp_reads_memory = true;

// All ranks together: connects the groups of this rank's mesh. endpoints: of all ranks. Exit code 75 if ranks
// do not connect in time.
void tcp_begin(const TcpDoor& door, RankMesh& ranks, const MeshShape& shape,
               const std::vector<TcpEndpoint>& endpoints);
// After a barrier of all ranks: closing connections are no error any more.
void tcp_end();
// Forgets the connections of a generation that is over.
void tcp_abandon();

}  // namespace transport
