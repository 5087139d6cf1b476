// NCCL's collectives, messages and memory (messages.h); communicators.cpp has the communicators.
#include <nccl.h>

#include "llmc/base/check.h"
#include "test/emulator/memory.h"
#include "test/emulator/messages.h"
#include "test/emulator/settings.h"
#include "test/emulator/streams.h"

namespace emulator {

static thread_local int group_depth = 0;
static thread_local std::vector<std::shared_ptr<Group>> group;         // by stream
static thread_local std::vector<Communicator*> nonblocking;            // of the group
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
    if (comm->pending)
        return refuse(ncclInvalidArgument, fmt::format("{}: the communicator's last call is in progress",
                                                       call_names[int(wanted.call)]));
    if (unit == 0) return refuse(ncclInvalidArgument, "no such type");
    if ((from && sent && !is_device_memory(from, sent * unit)) ||
        (to && received && !is_device_memory(to, received * unit)))
        return refuse(ncclInvalidArgument, fmt::format("{}: not memory of the device, or over its end",
                                                       call_names[int(wanted.call)]));
    const auto meeting = enter(*comm, at.from, at.to, wanted, at.part,
                               {static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
                                sent ? registered_at(*comm, from, sent * unit) : -1,
                                received ? registered_at(*comm, to, received * unit) : -1,
                                sent * unit, received * unit});
    std::shared_ptr<Group>* mine = nullptr;
    for (auto& g : group) if (g->stream == stream) mine = &g;
    if (!mine) mine = &group.emplace_back(std::make_shared<Group>(Group{stream, {}, 0, false}));
    (*mine)->visits.push_back({comm->clique, meeting, comm->kernels});
    if (!comm->blocking) nonblocking.push_back(comm);
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

}  // namespace emulator

using namespace emulator;

ncclResult_t ncclGroupStart() { group_depth++; return ncclSuccess; }
ncclResult_t ncclGroupEnd() {
    if (group_depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group_depth) return ncclSuccess;
    const auto launched = [all = std::exchange(group, {})] {
        for (const auto& g : all)
            if (const ncclResult_t error = enqueue(g); error != ncclSuccess) return error;
        return ncclSuccess;
    };
    const auto comms = std::exchange(nonblocking, {});
    if (comms.empty()) return launched();
    // nothing is in a stream before the second look
    const auto looks = std::make_shared<int>(0);
    for (Communicator* const comm : comms)
        comm->pending = [=] {
            if (++*looks == 2) return launched();
            return *looks > 2 ? ncclSuccess : ncclInProgress;
        };
    return ncclInProgress;
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

ncclResult_t ncclCommCount(ncclComm_t comm, int* n) { *n = comm->clique->size; return ncclSuccess; }
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) { *rank = comm->rank; return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    if (comm->pending) {
        const ncclResult_t result = comm->pending();
        if (result == ncclInProgress) return *error = result, ncclSuccess;
        comm->pending = nullptr;
        comm->failed = result;
    }
    const std::lock_guard lock(guard_of_ranks);
    *error = comm->failed != ncclSuccess ? comm->failed : comm->clique->error;
    if (comm->failed != ncclSuccess) return ncclSuccess;
    if (*error != ncclSuccess) refuse(*error, comm->clique->why);
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
