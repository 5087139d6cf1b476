// State of a rank of the transport over TCP, for the files of the transport.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "llmc/comm/transport/links.h"

inline namespace transport {

// A started collective.
struct TcpFlight {
    Job job;
    bool open = false;
    size_t left = 0;                // pieces
};

// This rank's part of a group: Group::state.
struct TcpMember {
    static constexpr uint64_t kInFlight = 8;        // collectives

    std::vector<std::unique_ptr<Link>> links;       // by member; null: this rank
    uint64_t next = 0;                              // ticket
    TcpFlight flights[kInFlight];
    std::deque<size_t> sends;                       // pieces left of each send in flight, the oldest first
    uint64_t sent = 0;                              // sends so far
    std::vector<const void*> slices;                // workspace of sum_received()
};

// This thread's connections, of all its groups.
extern thread_local std::vector<Link*> tcp_links;
extern const Transport tcp_transport;
inline TcpMember& tcp_member(Group& g) { return *static_cast<TcpMember*>(g.state.get()); }

}  // namespace transport
