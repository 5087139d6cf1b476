// How ranks meet beside NCCL's collectives: connections for messages, made before the first step; the idle
// barrier, in which ranks that are threads with a GPU each wait on the host until every GPU is idle.
#ifdef HAVE_NCCL
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>

#include "llmc/base/guard/wait.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/transport/nccl_rank.h"

struct comm::Together {
    const uint64_t ranks;
    std::atomic<uint64_t> calls = 0;        // of all ranks together
};

inline namespace transport {

// Before CUDA begins: by default, kernels and connections load at first use, beside the collectives of other
// threads.
std::shared_ptr<Together> ranks_together(int ranks) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    return std::make_shared<Together>(uint64_t(ranks));
}

static void one_byte(const NcclLine& l, bool sends, int peer) {
    std::byte* const at = nccl_rank.bounce;
    if (sends) NCCL_CHECK(l.comm, ncclSend(at, 1, ncclInt8, peer, l.comm, l.stream));
    else NCCL_CHECK(l.comm, ncclRecv(at + 1, 1, ncclInt8, peer, l.comm, l.stream));
}

// Whether steps send messages over the axis: sums in the order of the ranks do. Messages over the world
// belong to exports.
static bool sends_messages(const Group& g, const GroupRow& row) {
    return row.axis != &Mesh::world && (!g.native || g.bf16_wire || g.all_to_all);
}

// NCCL connects two ranks for messages at the first message, whatever NCCL_RUNTIME_CONNECT says: the hosts
// wait for each other and allocate memory, perhaps beside waiting collectives. A byte over each connection
// makes the connection here. As one group: all connections are made before any byte is sent, in no order.
void nccl_connect_messages(RankMesh& ranks) {
    const Waiting wait("connecting messages", Awaits::Ranks, start_patience());
    NCCL_CHECK(nullptr, ncclGroupStart());
    for (int axis = 0; axis < kGroups; axis++) {
        Group& g = ranks.groups[axis];
        if (g.size == 1) continue;
        const NcclMember& m = nccl_member(g);
        for (const NcclRoute& w : m.routes)
            one_byte(w.line, g.index == w.from, std::max(w.from, w.to) == g.index ? 0 : 1);
        for (int k = 0; k < g.size && sends_messages(g, group_rows[axis]); k++)
            for (const bool sends : {true, false})
                if (k != g.index) one_byte(m, sends, k);
    }
    NCCL_CHECK(nullptr, ncclGroupEnd());
    for (const NcclLine& l : nccl_rank.lines) host_waits_for(l.stream);
}

}  // namespace transport

bool comm::idle_barrier() {
    Together* const t = nccl_rank.together.get();
    if (!t) return false;
    if (std::uncaught_exceptions() > 0) {       // nobody waits for a rank that fails
        nccl_end(true);
        return true;
    }
    wait_for_idle_device(nccl_rank.lines);
    const uint64_t all = (t->calls++ / t->ranks + 1) * t->ranks;
    wait_until({.what = "idle_barrier", .yields = 1000, .nap = 1e-4}, [&] { return t->calls >= all; });
    return true;
}

#endif
