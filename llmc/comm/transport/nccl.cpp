// The job's communicators, one for each axis, and memory registered with NCCL. nccl_verbs.cpp has the
// collectives, nccl_end.cpp errors and ends.
#include "llmc/comm/transport/nccl.h"

#include "llmc/base/check.h"

#ifdef HAVE_NCCL
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "llmc/base/context.h"
#include "llmc/base/guard/generation.h"
#include "llmc/comm/transport/nccl_rank.h"
#endif

#ifndef HAVE_NCCL

inline namespace transport {

std::string nccl_library() { return {}; }
std::vector<std::string> gpu_addresses() { return {}; }
int fewest_processors() { return 0; }
int gpu_in_use() { return -1; }
NcclId new_nccl_id() { return {}; }
void nccl_begin(const NcclId&, RankMesh&, int, const NcclBlocks&) { CHECK(false, "this build has no NCCL"); }
void nccl_end(bool) {}
std::shared_ptr<Together> ranks_together(int) { return nullptr; }

}  // namespace transport

bool comm::idle_barrier() { return false; }
void* comm::alloc(size_t) { return nullptr; }
bool comm::release(void*) { return false; }

#else

inline namespace transport {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1), "communicators are split: NCCL 2.18 or newer");
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

thread_local NcclRank nccl_rank;

// ---------------------------------------------------------------------------------------------------------
// the job

std::string nccl_library() {
    return fmt::format("NCCL {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}

std::vector<std::string> gpu_addresses() {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);     // no stream waits because another one does
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
    std::vector<std::string> all;
    for (int i = 0; i < count; i++) {
        char address[16] = {};
        CUDA_CHECK(cudaDeviceGetPCIBusId(address, sizeof address, i));
        all.push_back(address);
    }
    return all;
}

int fewest_processors() {
    int count = 0, fewest = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
    for (int i = 0; i < count; i++) {
        int here = 0;
        CUDA_CHECK(cudaDeviceGetAttribute(&here, cudaDevAttrMultiProcessorCount, i));
        fewest = i == 0 ? here : std::min(fewest, here);
    }
    return fewest;
}

static thread_local int used_gpu = -1;
int gpu_in_use() { return used_gpu; }

NcclId new_nccl_id() {
    ncclUniqueId id;
    NCCL_CHECK(nullptr, ncclGetUniqueId(&id));
    return std::bit_cast<NcclId>(id);
}

// ---------------------------------------------------------------------------------------------------------
// memory for registration with NCCL: saves copies between NCCL's buffers and the caller's

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
static void* allocate_for_nccl(size_t bytes) {
    void* p = nullptr;
    if (ncclMemAlloc(&p, bytes) == ncclSuccess) return p;
    cudaGetLastError();
    return nullptr;
}
static void enroll(Registered& r, ncclComm_t comm, size_t bytes) {
    void* handle = nullptr;
    if (ncclCommRegister(comm, r.memory, bytes, &handle) == ncclSuccess)
        r.handles.push_back({comm, handle});
}
static void give_back(Registered& r) {
    for (const auto& [comm, handle] : r.handles) ncclCommDeregister(comm, handle);
    NCCL_CHECK(nullptr, ncclMemFree(r.memory));
}
#else
static void* allocate_for_nccl(size_t) { return nullptr; }
static void enroll(Registered&, ncclComm_t, size_t) {}
static void give_back(Registered&) {}
#endif

// ---------------------------------------------------------------------------------------------------------
// axes

static constexpr int kFirst = -5;                       // of priorities: CUDA takes the highest it has

static ncclConfig_t config_of(const char* name, int blocks) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = blocks;
    config.blocking = own_generation ? 0 : 1;       // a thread of NCCL's for each call: where a loss needs it
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = name;
#else
    (void)name;
#endif
    return config;
}

// NCCL wants a registered buffer at the same offset on all ranks of a collective. Ranks of one stage lay out
// memory alike; stages do not, and messages between stages need no equal offsets.
static bool has_the_same_tensors(const GroupRow& row) { return (row.over & axis_bit(kPp)) == 0; }

static NcclLine line_of(ncclComm_t comm, bool registers) {
    NcclLine l = {.comm = comm, .registers = registers};
    CUDA_CHECK(cudaStreamCreateWithPriority(&l.stream, cudaStreamNonBlocking, kFirst));
    CUDA_CHECK(cudaEventCreateWithFlags(&l.reached, cudaEventDisableTiming));
    nccl_rank.lines.push_back(l);
    return l;
}

// The communicator of the ranks with the same colour, or null. Collective over `from`. Its handle is there
// when `from` is done; after that the part connects.
static ncclComm_t split(const char* name, ncclComm_t from, bool within, int color, int index, int blocks) {
    ncclConfig_t config = config_of(name, blocks);
    ncclComm_t& comm = nccl_rank.comms.emplace_back(nullptr);
    const Waiting wait(fmt::format("connecting {}", name).c_str(), Awaits::Ranks, start_patience());
    NCCL_CHECK(from, ncclCommSplit(from, within ? color : NCCL_SPLIT_NOCOLOR, index, &comm, &config));
    if (comm) NCCL_CHECK(comm, ncclInProgress);
    return comm;
}

static ncclComm_t connect_all(const NcclId& id, const Place& at, int blocks) {
    ncclConfig_t config = config_of("world", blocks);
    ncclComm_t& world = nccl_rank.comms.emplace_back(nullptr);
    const Waiting wait("connecting world", Awaits::Ranks, start_patience());
    const ncclResult_t result = ncclCommInitRankConfig(&world, at.size, std::bit_cast<ncclUniqueId>(id),
                                                       at.index, &config);
    NCCL_CHECK(world, result);
    return world;
}

// Both routes between neighbours; in a ring the last and the first are some.
static void make_routes(NcclMember& m, const Group& g, bool ring, int blocks) {
    const int size = g.size, index = g.index;
    for (int low = 0; low < (ring && size > 2 ? size : size - 1); low++)
        for (const bool up : {true, false}) {
            const int high = (low + 1) % size;
            const bool within = index == low || index == high;
            const ncclComm_t comm = split(up ? "pp up" : "pp down", m.comm, within, 0, index, blocks);
            if (!within) continue;
            const NcclLine line = line_of(comm, true);
            NcclRoute& w = m.routes.emplace_back(NcclRoute{up ? low : high, up ? high : low, line, {}, 0});
            for (cudaEvent_t& e : w.sent) CUDA_CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        }
}

static void become_member(Group& g, const GroupRow& row, ncclComm_t comm, bool ring, int blocks_of_route) {
    auto m = std::make_shared<NcclMember>();
    static_cast<NcclLine&>(*m) = line_of(comm, has_the_same_tensors(row));
    for (NcclFlight& f : m->flights) CUDA_CHECK(cudaEventCreateWithFlags(&f.done, cudaEventDisableTiming));
    NCCL_CHECK(m->comm, ncclCommCount(m->comm, &g.size));
    NCCL_CHECK(m->comm, ncclCommUserRank(m->comm, &g.index));
    m->slices.resize(size_t(g.size));
    if (row.messages) make_routes(*m, g, ring, blocks_of_route);
    nccl_rank.members.push_back(m);
    g.transport = &nccl_transport;
    g.state = std::move(m);
}

// The world's communicator comes first; the other axes are split from the world's.
void nccl_begin(const NcclId& id, RankMesh& ranks, int device, const NcclBlocks& blocks) {
    CUDA_CHECK(cudaSetDevice(device));
    CHECK(cuda_device().index == device, "rank {} uses GPU {} already", ranks.mesh.rank,
          cuda_device().index);
    used_gpu = device;
    nccl_rank = {};
    nccl_rank.together = ranks.together;
    nccl_rank.outer = in_wait;
    nccl_may_be_lost();
    CUDA_CHECK(cudaMalloc(&nccl_rank.bounce, kBounce));
    ncclComm_t world = nullptr;
    for (int axis = kGroups - 1; axis >= 0; axis--) {
        Group& g = ranks.groups[axis];
        const Place& at = ranks.places[size_t(axis)];
        const int most = blocks.of_axis[axis];
        ncclComm_t comm = nullptr;
        if (!world) comm = world = connect_all(id, at, most);
        else comm = split(g.name, world, g.size > 1, at.color, at.index, most);
        if (g.size > 1) become_member(g, group_rows[axis], comm, ranks.ring, blocks.of_route);
    }
    in_wait = &nccl_look_for_errors;
    nccl_connect_messages(ranks);
    comm::idle_barrier();
}

}  // namespace transport

void* comm::alloc(size_t bytes) {
    void* p = nccl_rank.lines.empty() ? nullptr : allocate_for_nccl(bytes);
    if (!p) return nullptr;
    Registered& r = nccl_rank.memory.emplace_back(Registered{p, {}});
    for (const NcclLine& l : nccl_rank.lines)
        if (l.registers) enroll(r, l.comm, bytes);
    CUDA_CHECK(cudaMemsetAsync(p, 0, bytes, cuda_device().compute));
    return p;
}

bool comm::release(void* p) {
    // tests: a failing rank frees its memory while other ranks still wait for the rank
    if (std::uncaught_exceptions() > 0) nccl_end(true);
    const auto is_p = [p](const Registered& r) { return r.memory == p; };
    const auto r = std::find_if(nccl_rank.memory.begin(), nccl_rank.memory.end(), is_p);
    if (r == nccl_rank.memory.end()) return false;
    // Freeing waits for all kernels, without a look at other ranks: a gather ahead of time may be in flight.
    host_waits_for(cuda_device().compute);
    for (const NcclLine& l : nccl_rank.lines) host_waits_for(l.stream);
    give_back(*r);
    nccl_rank.memory.erase(r);
    return true;
}

#endif
