// NCCL's communicators: their making, errors and ends.
#include <nccl.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/numbers/rng.h"
#include "test/emulator/memory.h"
#include "test/emulator/messages.h"
#include "test/emulator/processes.h"
#include "test/emulator/settings.h"
#include "test/emulator/streams.h"

namespace emulator {

static constexpr int kMostBlocks = 64;                  // default of a communicator
static std::vector<Communicator*> alive;
std::atomic<int> stuck_aborts = 0;
static std::map<std::string, std::shared_ptr<Clique>> worlds;          // by unique id

static std::shared_ptr<Clique> make_clique(int size) {
    auto c = std::make_shared<Clique>();
    c->size = size;
    c->devices.assign(size_t(size), -1);
    return c;
}

static bool sound(const ncclConfig_t* c) {
    if (!c) return true;
    return c->size == sizeof *c && c->magic == 0xcafebeef &&
           (c->blocking == NCCL_CONFIG_UNDEF_INT || c->blocking == 0 || c->blocking == 1) &&
           (c->maxCTAs == NCCL_CONFIG_UNDEF_INT || (c->maxCTAs >= 1 && c->maxCTAs <= kMostBlocks));
}

static int blocks_of(const ncclConfig_t* c, int otherwise) {
    return c && c->maxCTAs != NCCL_CONFIG_UNDEF_INT ? c->maxCTAs : otherwise;
}

static void note(const char* what, const Communicator& comm) {
    if (settings.lives_file.empty()) return;
    try_append(settings.lives_file, fmt::format("{} {} {}\n", getpid(), what, comm.name));
}

static Communicator* new_communicator(std::shared_ptr<Clique> clique, int rank, const ncclConfig_t* config,
                                      const Communicator* parent) {
    const int blocks = blocks_of(config, parent ? parent->blocks : kMostBlocks);
    const char* name = config && config->commName ? config->commName : "unnamed";
    alive.push_back(new Communicator{std::move(clique), rank, name, current_device(), blocks, {}, 0, 0, {}});
    Communicator* const comm = alive.back();
    comm->blocking = config && config->blocking != NCCL_CONFIG_UNDEF_INT ? config->blocking != 0
                                                                         : !parent || parent->blocking;
    note("made", *comm);
    return comm;
}
static void remove(Communicator* comm, const char* how) {
    note(how, *comm);
    std::erase(alive, comm);
    delete comm;
}
// As cudaFree(): until no kernel of the device waits for ranks.
static void wait_for_kernels(std::unique_lock<std::mutex>& lock, int device) {
    const auto idle = [=] {
        return std::ranges::none_of(alive, [=](const Communicator* c) {
            return c->device == device && c->kernels->waiting > 0 && !c->kernels->aborted;
        });
    };
    if (!came.wait_for(lock, std::chrono::seconds(5), idle)) stuck_aborts++;
}

void break_up_all() {
    {
        const std::lock_guard lock(guard_of_ranks);
        for (const Communicator* c : alive) break_up(*c->clique, ncclRemoteError, "ended by a test");
    }
    came.notify_all();
    tell_of_change();
}
int communicators_alive() {
    const std::lock_guard lock(guard_of_ranks);
    return int(alive.size());
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

// Looks until `step` is done, with the guard locked; of a nonblocking communicator ncclCommGetAsyncError()
// looks.
using Step = std::function<ncclResult_t()>;
static ncclResult_t complete(Communicator* comm, const Step& step, const std::function<std::string()>& late) {
    if (!comm->blocking) {
        comm->pending = [step] {
            const std::lock_guard lock(guard_of_ranks);
            return step();
        };
        return ncclInProgress;
    }
    std::unique_lock lock(guard_of_ranks);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    ncclResult_t result = ncclInProgress;
    const auto done = [&] { return (result = step()) != ncclInProgress; };
    while (!came.wait_for(lock, std::chrono::milliseconds(2), done))
        if (std::chrono::steady_clock::now() > until) return refuse(ncclSystemError, late());
    return result;
}

// ---------------------------------------------------------------------------------------------------------
// the world

// Of ranks that are threads.
static ncclResult_t enter_world(Clique& c, int ranks, int rank) {
    if (c.size != ranks || c.devices[size_t(rank)] >= 0)
        return refuse(ncclInvalidUsage, fmt::format("rank {} of {}: not the number of ranks, or there twice",
                                                    rank, ranks));
    for (int other = 0; other < ranks; other++)
        if (c.devices[size_t(other)] == current_device())
            break_up(c, ncclInvalidUsage, fmt::format("duplicate GPU detected: ranks {} and {} are both on "
                                                      "device {}", other, rank, current_device()));
    c.devices[size_t(rank)] = current_device();
    c.present++;
    came.notify_all();
    return ncclSuccess;
}

static ncclResult_t world_is_here(Clique& c, const std::string& id) {
    if (c.hall) {
        const std::vector<Clique::Asked> all = heard(c, "init", c.size);
        if (all.empty()) return ncclInProgress;
        for (const auto& a : all)
            for (const auto& b : all)
                if (a.rank < b.rank && a.key == b.key && a.color == b.color)
                    return refuse(ncclInvalidUsage, fmt::format("duplicate GPU detected: ranks {} and {} are "
                                                                "both on device {}", a.rank, b.rank, a.key));
        return fit_beside_others();
    }
    if (c.error == ncclSuccess && c.present < c.size) return ncclInProgress;
    worlds.erase(id);
    return c.error != ncclSuccess ? refuse(c.error, c.why) : fit_beside_others();
}

static ncclResult_t init(ncclComm_t* comm, int ranks, const std::string& id, int rank, ncclConfig_t* config) {
    std::unique_lock lock(guard_of_ranks);
    std::shared_ptr<Clique> c = make_clique(ranks);
    if (id.starts_with("/")) {
        c->name = id;
        c->hall = open_hall(id);
        const char* const host = getenv("NCCL_HOSTID");         // GPUs of another host are others
        const int of_host = int(stream_of(host ? host : ""));
        if (!say(*c, "init", rank, {of_host, current_device(), rank, 0}))
            return refuse(ncclInvalidUsage, fmt::format("rank {} of {} is there twice", rank, ranks));
    } else {
        std::shared_ptr<Clique>& world = worlds[id];
        if (!world) world = c;
        c = world;
        if (const auto error = enter_world(*c, ranks, rank); error != ncclSuccess) return error;
    }
    Communicator* const made = new_communicator(c, rank, config, nullptr);
    *comm = made;
    lock.unlock();
    const auto late = [=] { return fmt::format("{} of {} ranks came", c->present, ranks); };
    const ncclResult_t result = complete(made, [=] { return world_is_here(*c, id); }, late);
    if (result == ncclSuccess || result == ncclInProgress || c->error == ncclSuccess) return result;
    const std::lock_guard again(guard_of_ranks);
    *comm = nullptr;
    remove(made, "refused");
    return result;
}

// ---------------------------------------------------------------------------------------------------------
// parts

static std::vector<Clique::Asked> all_asked(Clique& c, size_t number) {
    if (c.hall) return heard(c, fmt::format("split {}", number), c.size);
    return int(c.splits[number].size()) == c.size ? c.splits[number] : std::vector<Clique::Asked>();
}

static ncclResult_t split(Communicator* comm, size_t number, const Clique::Asked& own, ncclComm_t* part,
                          const ncclConfig_t& config) {
    Clique& c = *comm->clique;
    if (c.error != ncclSuccess) return refuse(c.error, c.why);
    const std::vector<Clique::Asked> all = all_asked(c, number);
    if (all.empty()) return ncclInProgress;
    if (own.color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    int size = 0, rank = 0;
    for (const auto& [other, place, r, blocks] : all) {
        size += other == own.color;
        rank += other == own.color && std::pair(place, r) < std::pair(own.key, comm->rank);
        if (other == own.color && blocks != own.blocks)
            return refuse(ncclInvalidUsage, fmt::format("ranks {} and {} split with maxCTAs {} and {}", r,
                                                        comm->rank, blocks, own.blocks));
    }
    std::shared_ptr<Clique>& made = c.parts[{int(number), own.color}];
    if (!made) {
        made = make_clique(size);
        made->hall = c.hall;
        made->name = fmt::format("{} {}.{}", c.name, number, own.color);
    }
    *part = new_communicator(made, rank, &config, comm);
    if (!(*part)->blocking)
        (*part)->pending = [looks = 0]() mutable { return looks++ ? ncclSuccess : ncclInProgress; };
    return fit_beside_others();
}

}  // namespace emulator

using namespace emulator;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int next = 0;
    const std::lock_guard lock(guard_of_ranks);
    memset(id, 0, sizeof *id);
    const bool threads = settings.processes.empty();
    const std::string name = threads ? fmt::format("emulated {}", next++) : new_hall_file();
    CHECK(name.size() < sizeof id->internal, "EMU_PROCESSES={} is too long", settings.processes);
    name.copy(id->internal, name.size());
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
    return init(comm, ranks, id.internal, rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
    if (!sound(config)) return refuse(ncclInvalidArgument, "a configuration that NCCL does not take");
    if (comm->pending) return refuse(ncclInvalidArgument, "a split: the last call is in progress");
    Clique& c = *comm->clique;
    const Clique::Asked own = {color, key, comm->rank, blocks_of(config, comm->blocks)};
    const size_t number = comm->splits++;
    *part = nullptr;
    {
        const std::lock_guard lock(guard_of_ranks);
        if (c.hall) {
            say(c, fmt::format("split {}", number), comm->rank, own);
        } else {
            if (c.splits.size() <= number) c.splits.resize(number + 1);
            c.splits[number].push_back(own);
        }
        came.notify_all();
    }
    const ncclConfig_t asked = config ? *config : ncclConfig_t(NCCL_CONFIG_INITIALIZER);
    return complete(comm, [=] { return split(comm, number, own, part, asked); },
                    [] { return std::string("not all ranks came to split"); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (comm->pending) return refuse(ncclInvalidArgument, "destroyed while its last call is in progress");
    const std::lock_guard lock(guard_of_ranks);
    uint64_t calls = 0;
    for (const auto& [between, count] : comm->calls) calls += count;
    if (FILE* file = settings.comms_file.empty() ? nullptr : fopen(settings.comms_file.c_str(), "a")) {
        fprintf(file, "%s %d %d\n", comm->name.c_str(), comm->clique->size, int(calls - comm->bytes_alone));
        fclose(file);
    }
    remove(comm, "destroyed");
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    {
        std::unique_lock lock(guard_of_ranks);
        Clique& c = *comm->clique;
        comm->kernels->aborted = c.left = true;
        if (c.hall) leave(c);
        else if (settings.silent_peers) no_longer_awaited(c);
        else break_up(c, ncclRemoteError, fmt::format("rank {} has left", comm->rank));
        came.notify_all();
        wait_for_kernels(lock, comm->device);
        remove(comm, "aborted");
    }
    tell_of_change();
    return ncclSuccess;
}
