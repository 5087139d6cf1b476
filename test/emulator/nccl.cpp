// NCCL's calls, between threads of one process (test/emulator/messages.h).
#include <nccl.h>

#include <cstring>

#include "llmc/base/check.h"
#include "test/emulator/memory.h"
#include "test/emulator/messages.h"
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

static ncclResult_t call(Communicator* comm, cudaStream_t stream, const Meeting& wanted, Between at,
                         const void* from, size_t sent, void* to, size_t received) {
    const size_t unit = bytes_of(wanted.type);
    if (unit == 0) return refuse(ncclInvalidArgument, "no such type");
    if ((from && sent && !is_device_memory(from, sent * unit)) ||
        (to && received && !is_device_memory(to, received * unit)))
        return refuse(ncclInvalidArgument, strf("%s: not memory of the device, or over its end",
                                                call_names[int(wanted.call)]));
    const auto meeting = enter(*comm, at.from, at.to, wanted, at.part,
                               {static_cast<const std::byte*>(from), static_cast<std::byte*>(to)});
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
    if (root < 0 || root >= n) return refuse(ncclInvalidArgument, strf("root %d of %d ranks", root, n));
    const Meeting wanted{kind, count, type, root, n, {}, 0, 0, false};
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
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    const Meeting wanted{Call::Message, count, type, 0, 2, {}, 0, 0, false};
    return call(comm, stream, wanted, {comm->rank, peer, 0}, from, count, nullptr, 0);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    const Meeting wanted{Call::Message, count, type, 0, 2, {}, 0, 0, false};
    return call(comm, stream, wanted, {peer, comm->rank, 1}, nullptr, 0, to, count);
}

// ---------------------------------------------------------------------------------------------------------
// communicators

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int next = 0;
    const std::lock_guard lock(guard_of_ranks);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "emulated %d", next++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return refuse(ncclInvalidArgument, strf("rank %d of %d", rank, ranks));
    std::unique_lock lock(guard_of_ranks);
    const std::string name(id.internal, sizeof id.internal);
    std::shared_ptr<Clique>& world = worlds[name];
    if (!world) world = make_clique(ranks);
    const std::shared_ptr<Clique> c = world;
    if (c->size != ranks || c->devices[size_t(rank)] >= 0)
        return refuse(ncclInvalidUsage, strf("rank %d of %d: not the number of ranks, or there twice", rank,
                                             ranks));
    for (int other = 0; other < ranks; other++)
        if (c->devices[size_t(other)] == current_device())
            break_up(*c, ncclInvalidUsage, strf("duplicate GPU detected: ranks %d and %d are both on device "
                                                "%d", other, rank, current_device()));
    c->devices[size_t(rank)] = current_device();
    c->present++;
    came.notify_all();
    if (!came.wait_for(lock, std::chrono::seconds(120), [&] { return c->present == ranks; }))
        return refuse(ncclSystemError, strf("%d of %d ranks came", c->present, ranks));
    worlds.erase(name);
    if (c->error != ncclSuccess) return refuse(c->error, c->why);
    *comm = new Communicator{c, rank, {}, 0};
    return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
    std::unique_lock lock(guard_of_ranks);
    Clique& c = *comm->clique;
    const size_t number = comm->splits++;
    if (c.splits.size() <= number) c.splits.resize(number + 1);
    c.splits[number].push_back({color, key, comm->rank});
    came.notify_all();
    const auto all_here = [&] { return int(c.splits[number].size()) == c.size || c.error != ncclSuccess; };
    if (!came.wait_for(lock, std::chrono::seconds(120), all_here))
        return refuse(ncclSystemError, "not all ranks came to split");
    *part = nullptr;
    if (c.error != ncclSuccess) return refuse(c.error, c.why);
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    int size = 0, rank = 0;
    for (const auto& [other, place, r] : c.splits[number]) {
        size += other == color;
        rank += other == color && std::pair(place, r) < std::pair(key, comm->rank);
    }
    std::shared_ptr<Clique>& made = c.parts[{int(number), color}];
    if (!made) made = make_clique(size);
    *part = new Communicator{made, rank, {}, 0};
    return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* n) { *n = comm->clique->size; return ncclSuccess; }
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) { *rank = comm->rank; return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    const std::lock_guard lock(guard_of_ranks);
    *error = comm->clique->error;
    if (*error != ncclSuccess) last_message = comm->clique->why;
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { delete comm; return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    {
        const std::lock_guard lock(guard_of_ranks);
        break_up(*comm->clique, ncclRemoteError, strf("rank %d has left", comm->rank));
        came.notify_all();
    }
    delete comm;
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
    *p = allocate(bytes);
    return *p ? ncclSuccess : refuse(ncclUnhandledCudaError, "out of memory");
}
ncclResult_t ncclMemFree(void* p) {
    return cudaFree(p) == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, "not allocated");
}
ncclResult_t ncclCommRegister(ncclComm_t, void* p, size_t bytes, void** handle) {
    *handle = p;
    return is_device_memory(p, bytes) ? ncclSuccess : refuse(ncclInvalidArgument, "not the device's memory");
}
ncclResult_t ncclCommDeregister(ncclComm_t, void*) { return ncclSuccess; }
