// NCCL's calls, between threads of one process (test/emulator/messages.h).
#include <nccl.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"
#include "test/emulator/memory.h"
#include "test/emulator/messages.h"
#include "test/emulator/settings.h"
#include "test/emulator/streams.h"

namespace emulator {

static std::map<std::string, std::shared_ptr<Clique>> worlds;          // by unique id
static thread_local int group_depth = 0;
static thread_local std::vector<std::shared_ptr<Group>> group;         // by stream
static thread_local std::string last_message;

ncclResult_t refuse(ncclResult_t error, std::string why) {
    last_message = std::move(why);
    return error;
}

struct Between { int from, to, part; };

static ptrdiff_t registered_at(const Communicator& comm, const void* p, size_t bytes) {
    const auto* at = static_cast<const std::byte*>(p);
    for (const auto& [base, size] : comm.registered)
        if (at >= base && at + bytes <= base + size) return at - base;
    return -1;
}

static ncclResult_t call(Communicator* comm, cudaStream_t stream, const Meeting& wanted, Between at,
                         const void* from, size_t sent, void* to, size_t received) {
    const size_t unit = bytes_of(wanted.type);
    if (unit == 0) return refuse(ncclInvalidArgument, "no such type");
    if ((from && sent && !is_device_memory(from, sent * unit)) ||
        (to && received && !is_device_memory(to, received * unit)))
        return refuse(ncclInvalidArgument, fmt::format("{}: not memory of the device, or over its end",
                                                       call_names[int(wanted.call)]));
    const auto meeting = enter(*comm, at.from, at.to, wanted, at.part,
                               {static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
                                sent ? registered_at(*comm, from, sent * unit) : -1,
                                received ? registered_at(*comm, to, received * unit) : -1});
    std::shared_ptr<Group>* mine = nullptr;
    for (auto& g : group) if (g->stream == stream) mine = &g;
    if (!mine) mine = &group.emplace_back(std::make_shared<Group>(Group{stream, {}, 0, false}));
    (*mine)->visits.push_back({comm->clique, meeting});
    return group_depth ? ncclSuccess : (group_depth = 1, ncclGroupEnd());
}

static ncclResult_t collective(Communicator* comm, cudaStream_t stream, Call kind, size_t count,
                               ncclDataType_t type, int root, const void* from, size_t sent, void* to,
                               size_t received) {
    const int n = comm->clique->size;
    if (root < 0 || root >= n) return refuse(ncclInvalidArgument,
                                             fmt::format("root {} of {} ranks", root, n));
    const Meeting wanted{kind, count, type, root, n, {}, {}, 0, 0, false};
    return call(comm, stream, wanted, {-1, -1, comm->rank}, from, sent, to, received);
}

static std::shared_ptr<Clique> make_clique(int size) {
    auto c = std::make_shared<Clique>();
    c->size = size;
    c->devices.assign(size_t(size), -1);
    return c;
}

}  // namespace emulator

using namespace emulator;

ncclResult_t ncclGroupStart() { group_depth++; return ncclSuccess; }
ncclResult_t ncclGroupEnd() {
    if (group_depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group_depth) return ncclSuccess;
    const auto all = std::exchange(group, {});
    for (const auto& g : all)
        if (const ncclResult_t error = enqueue(g); error != ncclSuccess) return error;
    return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return collective(comm, stream, Call::AllGather, count, type, 0, from, count, to,
                      count * size_t(comm->clique->size));
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
    return collective(comm, stream, Call::ReduceScatter, count, type, 0, from,
                      count * size_t(comm->clique->size), to, count);
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
    return collective(comm, stream, Call::AllReduce, count, type, 0, from, count, to, count);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return collective(comm, stream, Call::Broadcast, count, type, root, from,
                      comm->rank == root ? count : 0, to, count);
}
// The first message between two ranks connects them, for which both allocate memory.
static ncclResult_t connect(ncclComm_t comm, int from, int to, size_t count, ncclDataType_t type) {
    comm->bytes_alone += count * bytes_of(type) == 1;
    if (comm->calls.count({from, to}) || beside_collectives("a first message") == cudaSuccess)
        return ncclSuccess;
    return refuse(ncclUnhandledCudaError, cudaGetErrorString(cudaErrorLaunchFailure));
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (const auto e = connect(comm, comm->rank, peer, count, type); e != ncclSuccess) return e;
    const Meeting wanted{Call::Message, count, type, 0, 2, {}, {}, 0, 0, false};
    return call(comm, stream, wanted, {comm->rank, peer, 0}, from, count, nullptr, 0);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (const auto e = connect(comm, peer, comm->rank, count, type); e != ncclSuccess) return e;
    const Meeting wanted{Call::Message, count, type, 0, 2, {}, {}, 0, 0, false};
    return call(comm, stream, wanted, {peer, comm->rank, 1}, nullptr, 0, to, count);
}

// ---------------------------------------------------------------------------------------------------------
// communicators

static constexpr int kMostBlocks = 64;                  // default of a communicator
static std::vector<Communicator*> alive;

static bool sound(const ncclConfig_t* c) {
    if (!c) return true;
    return c->size == sizeof *c && c->magic == 0xcafebeef &&
           (c->maxCTAs == NCCL_CONFIG_UNDEF_INT || (c->maxCTAs >= 1 && c->maxCTAs <= kMostBlocks));
}
static int blocks_of(const ncclConfig_t* c, int otherwise) {
    return c && c->maxCTAs != NCCL_CONFIG_UNDEF_INT ? c->maxCTAs : otherwise;
}

static Communicator* new_communicator(std::shared_ptr<Clique> clique, int rank, const ncclConfig_t* config,
                                      const Communicator* parent) {
    const int blocks = blocks_of(config, parent ? parent->blocks : kMostBlocks);
    const char* name = config && config->commName ? config->commName : "unnamed";
    alive.push_back(new Communicator{std::move(clique), rank, name, current_device(), blocks, {}, 0, 0, {}});
    return alive.back();
}
static void remove(Communicator* comm) {
    std::erase(alive, comm);
    delete comm;
}

// A kernel keeps its blocks while waiting for other ranks: the kernels of a device's communicators must fit
// together. Kernels of messages have a power of two. One block each always fits, since emulated devices are
// small.
static ncclResult_t fit_beside_others() {
    int blocks = 0, count = 0;
    for (const Communicator* c : alive)
        if (c->device == current_device()) blocks += int(std::bit_ceil(unsigned(c->blocks))), count++;
    if (count == 1 || blocks <= std::max(count, settings.processors)) return ncclSuccess;
    return refuse(ncclInvalidUsage,
                  fmt::format("{} communicators may have {} blocks at once on device {}, which "
                                                "has {} processors: set maxCTAs", count, blocks,
                                                current_device(),
                                                settings.processors));
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int next = 0;
    const std::lock_guard lock(guard_of_ranks);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "emulated %d", next++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    if (!sound(config)) return refuse(ncclInvalidArgument, "a configuration that NCCL does not take");
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return refuse(ncclInvalidArgument, fmt::format("rank {} of {}", rank, ranks));
    std::unique_lock lock(guard_of_ranks);
    const std::string name(id.internal, sizeof id.internal);
    std::shared_ptr<Clique>& world = worlds[name];
    if (!world) world = make_clique(ranks);
    const std::shared_ptr<Clique> c = world;
    if (c->size != ranks || c->devices[size_t(rank)] >= 0)
        return refuse(ncclInvalidUsage,
                      fmt::format("rank {} of {}: not the number of ranks, or there twice", rank,
                                                    ranks));
    for (int other = 0; other < ranks; other++)
        if (c->devices[size_t(other)] == current_device())
            break_up(*c, ncclInvalidUsage,
                     fmt::format("duplicate GPU detected: ranks {} and {} are both on device "
                                                       "{}", other, rank, current_device()));
    c->devices[size_t(rank)] = current_device();
    c->present++;
    came.notify_all();
    if (!came.wait_for(lock, std::chrono::seconds(120), [&] { return c->present == ranks; }))
        return refuse(ncclSystemError, fmt::format("{} of {} ranks came", c->present, ranks));
    worlds.erase(name);
    if (c->error != ncclSuccess) return refuse(c->error, c->why);
    *comm = new_communicator(c, rank, config, nullptr);
    return fit_beside_others();
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
    if (!sound(config)) return refuse(ncclInvalidArgument, "a configuration that NCCL does not take");
    std::unique_lock lock(guard_of_ranks);
    Clique& c = *comm->clique;
    const size_t number = comm->splits++;
    if (c.splits.size() <= number) c.splits.resize(number + 1);
    c.splits[number].push_back({color, key, comm->rank, blocks_of(config, comm->blocks)});
    came.notify_all();
    const auto all_here = [&] { return int(c.splits[number].size()) == c.size || c.error != ncclSuccess; };
    if (!came.wait_for(lock, std::chrono::seconds(120), all_here))
        return refuse(ncclSystemError, "not all ranks came to split");
    *part = nullptr;
    if (c.error != ncclSuccess) return refuse(c.error, c.why);
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    int size = 0, rank = 0;
    for (const auto& [other, place, r, blocks] : c.splits[number]) {
        size += other == color;
        rank += other == color && std::pair(place, r) < std::pair(key, comm->rank);
        if (other == color && blocks != blocks_of(config, comm->blocks))
            return refuse(ncclInvalidUsage, fmt::format("ranks {} and {} split with maxCTAs {} and {}", r,
                                                        comm->rank, blocks, blocks_of(config, comm->blocks)));
    }
    std::shared_ptr<Clique>& made = c.parts[{int(number), color}];
    if (!made) made = make_clique(size);
    *part = new_communicator(made, rank, config, comm);
    return fit_beside_others();
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* n) { *n = comm->clique->size; return ncclSuccess; }
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) { *rank = comm->rank; return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    const std::lock_guard lock(guard_of_ranks);
    *error = comm->clique->error;
    if (*error != ncclSuccess) last_message = comm->clique->why;
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const std::lock_guard lock(guard_of_ranks);
    uint64_t calls = 0;
    for (const auto& [between, count] : comm->calls) calls += count;
    if (FILE* file = settings.comms_file.empty() ? nullptr : fopen(settings.comms_file.c_str(), "a")) {
        fprintf(file, "%s %d %d\n", comm->name.c_str(), comm->clique->size, int(calls - comm->bytes_alone));
        fclose(file);
    }
    remove(comm);
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    {
        const std::lock_guard lock(guard_of_ranks);
        break_up(*comm->clique, ncclRemoteError, fmt::format("rank {} has left", comm->rank));
        came.notify_all();
        remove(comm);
    }
    tell_of_change();
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    static const char* const texts[] = {"no error", "unhandled cuda error", "unhandled system error",
                                        "internal error", "invalid argument", "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return texts[result];
}
const char* ncclGetLastError(ncclComm_t) { return last_message.c_str(); }
ncclResult_t ncclGetVersion(int* version) { *version = NCCL_VERSION_CODE; return ncclSuccess; }

ncclResult_t ncclMemAlloc(void** p, size_t bytes) {
    if (beside_collectives("ncclMemAlloc") != cudaSuccess)
        return refuse(ncclUnhandledCudaError, cudaGetErrorString(cudaErrorLaunchFailure));
    *p = allocate(bytes);
    return *p ? ncclSuccess : refuse(ncclUnhandledCudaError, "out of memory");
}
ncclResult_t ncclMemFree(void* p) {
    return cudaFree(p) == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, "not allocated");
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* p, size_t bytes, void** handle) {
    if (!is_device_memory(p, bytes)) return refuse(ncclInvalidArgument, "not the device's memory");
    *handle = p;
    comm->registered.push_back({static_cast<const std::byte*>(p), bytes});
    return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
    const size_t gone = std::erase_if(comm->registered, [=](const auto& r) { return r.first == handle; });
    return gone ? ncclSuccess : refuse(ncclInvalidArgument, "not registered");
}
