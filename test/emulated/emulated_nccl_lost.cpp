// Generations of ranks over NCCL, as threads on emulated GPUs (run.elastic): a rank is lost at each of its
// calls, NCCL tells nobody, and the ranks that live abort, connect anew and compute on.
#include <nccl.h>

#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>

#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/guard/wait.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/transport/nccl_rank.h"
#include "test/emulator/messages.h"
#include "test/emulator/settings.h"
#include "test/nccl_ranks.h"

using emulator::settings;

namespace {

// ---------------------------------------------------------------------------------------------------------
// the calls of NCCL, nonblocking

ncclResult_t polled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
    return state;
}

ncclResult_t connect(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0, config.maxCTAs = 1;
    const ncclResult_t result = ncclCommInitRankConfig(comm, ranks, id, rank, &config);
    EXPECT(result == ncclInProgress, "%d", result);
    return result;
}

// Two ranks, connected.
void as_two_ranks(const std::function<void(int, ncclComm_t, cudaStream_t)>& body) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; r++)
        ranks.emplace_back([&, r] {
            cudaSetDevice(r);
            ncclComm_t comm = nullptr;
            connect(&comm, 2, id, r);
            EXPECT(polled(comm) == ncclSuccess);
            cudaStream_t stream;
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
            body(r, comm, stream);
            cudaStreamDestroy(stream);
        });
}

// ---------------------------------------------------------------------------------------------------------
// a job

ProgressPage the_page;

// Pinned memory of the host that nobody has once it is freed.
struct Page {
    void* const p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Page() { cudaHostRegister(p, 4096, cudaHostRegisterDefault); }
    ~Page() { cudaHostUnregister(p), munmap(p, 4096); }
};

// A rank that is gone: it calls nothing any more. Its objects are freed when the others have left.
struct Dead {};

// What the ranks of a generation do: `calls` says how many collectives this rank has called.
struct Turn {
    const Mesh& mesh;
    int calls = 0, dies_at;
    std::vector<float> seen = {};

    void step() { if (calls++ == dies_at) throw Dead(); }
    void see(const Device<float>& d) {
        host_waits_for(cuda_device().compute);
        const std::vector<float> v = d.host();
        seen.insert(seen.end(), v.begin(), v.end());
    }
    void run(std::barrier<>& begun) {
        const Axis& a = mesh.shard;
        float* const own = static_cast<float*>(comm::alloc(400));
        const struct Freed { float* p; ~Freed() { comm::release(p); } } freed{own};
        begun.arrive_and_wait();            // threads take no memory beside collectives of others
        Device<std::byte> staging(1 << 16);
        a.lend_staging(staging.p, staging.count);
        for (int turn = 0; turn < 2; turn++) {
            Device<float> all(values<float>(a.index + turn, size_t(400 * a.size))), slice(400), message(100);
            step(), a.reduce_scatter(slice.p, all.p, 400);
            step();
            Pending p = a.start_all_gather(all.p, slice.p, 400);
            step(), a.broadcast(message.p, 100, 0);
            a.wait(p);
            const Page page;            // a copy is queued behind what waits for a lost rank
            cudaMemcpyAsync(page.p, all.p, 4096, cudaMemcpyDefault, cuda_device().compute);
            see(all);
            double host = 1 + turn;
            std::vector<double> hosts(size_t(mesh.world.size));
            step(), mesh.world.all_gather(hosts.data(), &host, 1);
            EXPECT(hosts.back() == host, "%g", hosts.back());
        }
        a.lend_staging(nullptr, 0);
        step();
    }
};

struct Survivors {
    int ranks;
    bool stuck = false;                 // a rank did not leave
    std::atomic<int> out = 0;           // ranks that have left the generation
    std::vector<std::vector<float>> seen = {};
    std::vector<int> calls = {};
    std::barrier<> begun{ranks};

    // A generation. dying: the rank that dies at its call `at`; -1: before it connects, -2: before it splits.
    void generation(int64_t number, int dying, int at) {
        const NcclId id = new_nccl_id();
        out = 0;
        seen.assign(size_t(ranks), {});
        calls.assign(size_t(ranks), 0);
        std::vector<std::jthread> threads;
        for (int r = 0; r < ranks; r++)
            threads.emplace_back([&, r] { rank(r, number, id, r == dying ? at : INT_MAX, dying >= 0); });
        if (dying < 0) return;
        wait_for([&] { return out > 0; });              // the dead one
        usleep(3000);                                   // the others wait for it
        the_page.stopped = number;                      // as its agent does
        if (wait_for([&] { return out == ranks; })) return;
        stuck = true;
        EXPECT(!stuck, "%d of %d ranks left the generation", out.load(), ranks);
        emulator::break_up_all();
    }
    static bool wait_for(const std::function<bool()>& done) {
        for (int i = 0; i < 10000 && !done(); i++) usleep(1000);
        return done();
    }
    void rank(int r, int64_t number, const NcclId& id, int dies_at, bool loses) {
        const std::function<void()> look = look_for_stop;
        in_wait = &look;
        own_generation = number;
        agent_page = &the_page;
        bool left = false;
        try {
            connected(r, id, dies_at);
        } catch (const Lost&) {
            left = true;
        } catch (const Dead&) {
            in_wait = nullptr;
            out++;
            wait_for([&] { return out == ranks; });
            nccl_end(true);
            return;
        }
        EXPECT(left == loses, "rank %d: %d", r, left);
        out++;
        if (left) wait_for([&] { return out == ranks; });
        nccl_end(left);
        own_generation = 0;
        in_wait = nullptr;
    }
    void connected(int r, const NcclId& id, int dies_at) {
        const Config c = over("nccl", ranks);
        RankMesh mesh(c.parallel, ranks, r, true);
        if (dies_at == -1) throw Dead();
        if (dies_at == -2) {
            cudaSetDevice(r);
            connect(&nccl_rank.comms.emplace_back(nullptr), ranks, std::bit_cast<ncclUniqueId>(id), r);
            EXPECT(polled(nccl_rank.comms.back()) == ncclSuccess);
            throw Dead();
        }
        nccl_begin(id, mesh, r, nccl_blocks({.dp = ranks, .shard = ranks}, fewest_processors()));
        Turn turn{mesh.mesh, 0, dies_at};
        turn.run(begun);
        mesh.mesh.world.barrier();
        seen[size_t(r)] = turn.seen;
        calls[size_t(r)] = turn.calls;
    }
};

struct Silent {
    Silent() { settings.silent_peers = true, the_page.stopped = 0; }
    ~Silent() { settings.silent_peers = false; }
};

}  // namespace

TEST(a_nonblocking_call_is_over_when_nccl_says_so) {
    as_two_ranks([](int r, ncclComm_t comm, cudaStream_t stream) {
        Device<float> x(std::vector<float>(64, float(r)));
        EXPECT(ncclAllReduce(x.p, x.p, 64, ncclFloat32, ncclSum, comm, stream) == ncclInProgress);
        EXPECT(ncclAllReduce(x.p, x.p, 64, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument &&
               strstr(ncclGetLastError(comm), "in progress"), "a call before the last one is over");
        cudaStreamSynchronize(stream);
        EXPECT(x.host()[0] == float(r), "nothing is in the stream yet");
        EXPECT(polled(comm) == ncclSuccess);
        cudaStreamSynchronize(stream);
        EXPECT(x.host()[0] == 1, "%g", x.host()[0]);
        ncclComm_t part = nullptr;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.maxCTAs = 1;
        EXPECT(ncclCommSplit(comm, r == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &part, &config) == ncclInProgress);
        EXPECT(!part && polled(comm) == ncclSuccess && (part != nullptr) == (r == 0));
        if (part) {
            EXPECT(ncclCommDestroy(part) == ncclInvalidArgument, "it connects");
            EXPECT(polled(part) == ncclSuccess && ncclCommDestroy(part) == ncclSuccess);
        }
        EXPECT(ncclCommDestroy(comm) == ncclSuccess);
    });
    EXPECT(emulator::communicators_alive() == 0);
}

// A kernel that waits for a rank that has gone ends by the abort; the rank that is late finds nobody.
TEST(an_abort_ends_what_waits) {
    const Silent silent;
    std::atomic<bool> aborted = false;
    as_two_ranks([&](int r, ncclComm_t comm, cudaStream_t stream) {
        Device<float> x(std::vector<float>(64, 1));
        while (r == 1 && !aborted) std::this_thread::yield();
        EXPECT(ncclAllReduce(x.p, x.p, 64, ncclFloat32, ncclSum, comm, stream) == ncclInProgress);
        EXPECT(polled(comm) == ncclSuccess);
        usleep(2000);
        ncclResult_t error = ncclSuccess;
        EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady && polled(comm) == ncclSuccess);
        EXPECT(ncclCommGetAsyncError(comm, &error) == ncclSuccess && error == ncclSuccess, "%d", error);
        EXPECT(ncclCommAbort(comm) == ncclSuccess && cudaStreamSynchronize(stream) == cudaSuccess);
        EXPECT(x.host()[0] == 1, "%g", x.host()[0]);
        aborted = true;
    });
    EXPECT(emulator::communicators_alive() == 0);
}

// Every rank dies at every call of a small run, before it connects and between its communicators. The others
// leave, and a new generation computes what a calm one does; nothing stays behind.
TEST(a_rank_is_lost_at_every_call) {
    const Silent silent;
    Survivors job{3};
    int64_t generation = 1;
    job.generation(generation, -1, 0);
    const auto calm = job.seen;
    const int calls = job.calls[0];
    EXPECT(calls > 8 && calm[0].size() == 2400, "%d calls, %zu numbers", calls, calm[0].size());
    const int aborts = emulator::stuck_aborts;
    for (int at = -2; at < calls; at++)
        for (int dying = 0; dying < 3; dying++) {
            if (job.stuck || emulator::stuck_aborts > aborts) break;
            job.generation(++generation, dying, at);
            EXPECT(emulator::communicators_alive() == 0, "rank %d at %d: %d stay", dying, at,
                   emulator::communicators_alive());
            job.generation(++generation, -1, 0);
            EXPECT(job.seen == calm, "rank %d at %d: other numbers", dying, at);
        }
    EXPECT(emulator::stuck_aborts == aborts, "%d aborts waited for others", emulator::stuck_aborts - aborts);
}

// All leave at one place, as others join: nothing is cut off.
TEST(ranks_that_leave_together_destroy) {
    const Silent silent;
    const NcclId id = new_nccl_id();
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; r++)
        ranks.emplace_back([&, r] {
            own_generation = 100;
            Device<float> x(std::vector<float>(64, float(r)));
            try {
                RankMesh mesh(over("nccl", 2).parallel, 2, r, true);
                nccl_begin(id, mesh, r, nccl_blocks({.dp = 2, .shard = 2}, fewest_processors()));
                EXPECT(!nccl_rank.lines[0].comm->blocking, "a call could keep the host");
                if (r == 0) usleep(20000);      // the other one leaves while its gather waits
                [[maybe_unused]] const Pending p = mesh.mesh.shard.start_all_gather(x.p, x.p + 32 * r, 32);
                leave_generation(true);
            } catch (const Lost&) {
                EXPECT(x.host()[0] == 0 && x.host()[32] == 1, "%g %g", x.host()[0], x.host()[32]);
            }
            nccl_end(true);
            own_generation = 0;
        });
    ranks.clear();
    EXPECT(emulator::communicators_alive() == 0);
}
