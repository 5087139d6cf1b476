// State of a rank of the transport over NCCL, for the files of the transport.
#pragma once
#include <nccl.h>

#include <deque>
#include <memory>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/comm/mesh.h"
#include "llmc/ops/cuda/device/waiting.h"

inline namespace transport {

inline constexpr uint64_t kInFlight = 8;                // most jobs of an axis in flight
inline constexpr size_t kBounce = 1 << 20;              // bytes of NcclRank::bounce

// Events of a collective: start and end on its stream, and the start of the compute stream's wait.
struct NcclTimes {
    cudaEvent_t began, ended, needed;
    uint64_t ticket;                    // kNoTicket: an all_reduce
};
inline constexpr uint64_t kNoTicket = ~uint64_t(0);

// A started collective.
struct NcclFlight {
    Job job;
    uint64_t ticket = 0;
    bool open = false;                  // not yet awaited
    bool on_host = false;               // with a buffer of the host: complete when started
    bool sums = false;                  // this rank adds the received slices, which are in staging
    bool timed = false;
    NcclTimes times;
    cudaEvent_t done = nullptr;         // the collective's end on the stream
};

// A communicator and the stream of its calls.
struct NcclLine {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t reached = nullptr;      // orders the stream after compute, or compute after the stream
    bool registers = false;             // memory from comm::alloc() is registered with the communicator
};

// Messages from a rank of a pipeline to a neighbour. Each direction has its own line: a message waiting for
// the receiver delays no other message.
struct NcclRoute {
    int from, to;
    NcclLine line;
    cudaEvent_t sent[kSends] = {};
    uint64_t sends = 0;                 // so far; at most kSends are in flight
};

// This rank's part of an axis: Group::state.
struct NcclMember : NcclLine {
    uint64_t next = 0;                  // ticket
    NcclFlight flights[kInFlight];
    std::vector<const void*> slices;    // workspace of sum_received()
    std::vector<NcclRoute> routes;      // from or to this rank
    std::vector<NcclTimes> times;       // not yet looked at, the oldest first
    std::vector<NcclTimes> spare;       // events to be used again
};

// Memory of comm::alloc(), and its registration with each communicator.
struct Registered {
    void* memory;
    std::vector<std::pair<ncclComm_t, void*>> handles;
};

// This thread's part of the job.
struct NcclRank {
    std::vector<std::shared_ptr<NcclMember>> members;
    std::vector<NcclLine> lines;        // of the members and their routes; empty: not begun
    std::deque<ncclComm_t> comms;       // all, also while they connect; NCCL writes its handles here
    std::vector<NcclLine> ended_lines;  // of communicators that are destroyed or aborted
    std::vector<Registered> memory;
    std::byte* bounce = nullptr;        // kBounce bytes of the device, for collectives on host memory
    std::shared_ptr<Together> together;
    const std::function<void()>* outer = nullptr;   // in_wait before the rank began
};
extern thread_local NcclRank nccl_rank;
extern const Transport nccl_transport;
inline NcclMember& nccl_member(Group& g) { return *static_cast<NcclMember*>(g.state.get()); }

void nccl_connect_messages(RankMesh& ranks);            // of all members and routes; all ranks together

NcclTimes nccl_began(NcclMember& m, uint64_t ticket);   // records the start of a collective on m's stream
void nccl_needed(NcclMember& m, const NcclTimes& t);    // records the start of the compute stream's wait
void nccl_look_at_times(Group& g);                      // Transport::look_at_times

// Waits until the last call of a nonblocking communicator is done; null: of every one. A lost peer is no bug:
// it ends the generation, or the job with exit code 75.
void nccl_check(ncclResult_t result, ncclComm_t comm, const char* what, const char* file, int line);
// The look of every wait of this rank: errors that come while nobody calls, then what was looked for before.
extern const std::function<void()> nccl_look_for_errors;
void wait_for_idle_device(const std::vector<NcclLine>& lines);      // streams of the lines, and the ops'
// From here on a Lost of this rank aborts its communicators.
void nccl_may_be_lost();

}  // namespace transport

#define NCCL_CHECK(comm, call) nccl_check(call, comm, #call, __FILE__, __LINE__)
