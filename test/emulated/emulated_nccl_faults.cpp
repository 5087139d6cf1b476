// Misuse of NCCL by ranks, found by the emulation of NCCL.
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/transport/nccl_rank.h"
#include "llmc/comm/transport/placement.h"
#include "test/emulator/messages.h"
#include "test/emulator/settings.h"
#include "test/nccl_ranks.h"

using emulator::settings;
using emulator::start;

static Fatal ends(const Config& c, const std::function<void(const Mesh&)>& body) {
    return test::fatal_of([&] { run_threads(c, [&](Config, const Mesh& m) { body(m); return 0; }); });
}

TEST(a_failing_rank_ends_all) {
    for (int failing = 0; failing < 3; failing++) {
        int lost[3] = {};
        const Fatal e = ends(over("nccl", 3), [&](const Mesh& mesh) {
            try {
                Device<float> x(100);
                mesh.shard.barrier();
                CHECK_INPUT(mesh.rank != failing, "rank {} has enough", failing);
                for (;;) {
                    mesh.shard.broadcast(x.p, 100, 0);
                    mesh.shard.barrier();
                }
            } catch (const Fatal& f) {
                lost[mesh.rank] = f.code;
                throw;
            }
        });
        EXPECT(e.code == kExitConfig && strstr(e.what(), "has enough"), "%d: %s", e.code, e.what());
        for (int r = 0; r < 3; r++)
            EXPECT(lost[r] == (r == failing ? kExitConfig : kExitRestart), "rank %d: %d", r, lost[r]);
    }
}

// Ranks connect while one of them is late: the wait of the others is longer than a hang.
TEST(a_late_rank_is_waited_for) {
    static ProgressPage page;
    const NcclId id = new_nccl_id();
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; r++)
        ranks.emplace_back([&, r] {
            context.progress = &page.ranks[r];
            RankMesh mesh(over("nccl", 2).parallel, 2, r, true);
            if (r == 1) {
                usleep(300000);
                EXPECT(page.ranks[0].waits_for_ranks() && page.ranks[0].patience == start_patience() &&
                       page.ranks[0].wait.text == std::string("connecting world"), "in '%s'",
                       page.ranks[0].wait.text);
            }
            nccl_begin(id, mesh, r, nccl_blocks({.dp = 2, .shard = 2}, fewest_processors()));
            nccl_end(false);
        });
}

// Of each error, whether a call returns it or a poll finds it.
TEST(a_lost_peer_is_no_bug) {
    struct Case { ncclResult_t error; int code; };
    for (const Case c : {Case{ncclRemoteError, kExitRestart}, {ncclSystemError, kExitRestart},
                         {ncclInternalError, kExitRestart}, {ncclInvalidUsage, kExitInternal},
                         {ncclUnhandledCudaError, kExitInternal}}) {
        const Fatal of_call = test::fatal_of([&] { NCCL_CHECK(nullptr, c.error); });
        int polled[2] = {};
        ends(over("nccl", 2), [&](const Mesh& mesh) {
            const Fatal e = test::fatal_of([&] {
                mesh.shard.barrier();
                if (mesh.rank == 1) break_up(*nccl_rank.lines[0].comm->clique, c.error, "planted");
                for (;;) mesh.world.barrier();
            });
            polled[mesh.rank] = e.code;
            throw e;
        });
        EXPECT(of_call.code == c.code && polled[0] == c.code && polled[1] == c.code,
               "%s: %d of a call, %d and %d of polls", ncclGetErrorString(c.error), of_call.code, polled[0],
               polled[1]);
    }
}

static __global__ void add_one(float* p) { *p += 1; }

// The device waits for a rank that is gone, and the host, which never waits for the device, fills its queue.
TEST(a_host_that_only_launches_sees_a_lost_peer) {
    constexpr int kMost = 20000;
    std::atomic<int> launched = 0;
    int code = 0;
    const Fatal e = ends(over("nccl", 2), [&](const Mesh& mesh) {
        Device<float> x(64);
        mesh.shard.barrier();
        while (mesh.rank == 1 && launched == 0) std::this_thread::yield();
        CHECK_INPUT(mesh.rank == 0, "rank 1 has enough");
        mesh.shard.all_gather(x.p, x.p, 32);
        const Fatal lost = test::fatal_of([&] {
            for (; launched < kMost; launched++) launch(add_one, dim3(1), dim3(1), 0, {}, x.p);
        });
        code = lost.code;
        throw lost;
    });
    EXPECT(e.code == kExitConfig && code == kExitRestart && launched > 0 && launched < 1000,
           "%d: %s; %d after %d launches", e.code, e.what(), code, launched.load());
}

// The device waits for a rank that is gone, and the host for the device, as its memory is given back. The
// compute stream waits for the rank too, or only the collective's stream, as of a gather ahead of time.
TEST(memory_is_not_given_back_before_a_lost_peer_is_seen) {
    for (const bool awaited : {true, false}) {
        int code = 0;
        std::atomic<int> done = 0;
        const Fatal e = ends(over("nccl", 2), [&](const Mesh& mesh) {
            float* const p = static_cast<float*>(comm::alloc(256));
            for (done++; done < (mesh.rank ? 3 : 2);) std::this_thread::yield();
            CHECK_INPUT(mesh.rank == 0, "rank 1 has enough");
            Pending gather = mesh.shard.start_all_gather(p, p, 32);
            if (awaited) mesh.shard.wait(gather);
            done++;
            const Fatal lost = test::fatal_of([&] { comm::release(p); });
            code = lost.code;
            throw lost;
        });
        EXPECT(e.code == kExitConfig && code == kExitRestart, "%d: %s; %d", e.code, e.what(), code);
    }
}

TEST(calls_that_do_not_fit_are_told) {
    const Fatal e = ends(over("nccl", 2), [](const Mesh& mesh) {
        Device<float> x(64);
        mesh.rank ? mesh.shard.broadcast(x.p, 32, 0) : void(mesh.shard.all_gather(x.p, x.p, 32));
        mesh.shard.barrier();
    });
    EXPECT(strstr(e.what(), "ncclBroadcast of 32") && strstr(e.what(), "ncclAllGather of 32"), "%s",
           e.what());
}

TEST(ranks_need_a_gpu_each) {
    settings.devices = 2;
    const Fatal more = ends(over("nccl", 3), [](const Mesh&) {});
    EXPECT(more.code == kExitConfig && strstr(more.what(), "3 ranks are more than the 2 GPUs"), "%s",
           more.what());
    settings.devices = 16;
    const Placements two(2, own_placement(true));
    EXPECT(two[0].gpus == 16 && hosts_of(two).device[1] == 1 && !strcmp(two[0].address[0], "ffff:01:00.0"));
}

// Two ranks add up what a kernel makes, on a stream of its own, and another kernel goes on with the sum.
static __global__ void go_on(float* p) { *p = *p * 10 + 1; }

static bool right(bool waits_before, bool waits_after) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    float result[2];
    const auto rank = [&](int r) {
        cudaSetDevice(r);
        ncclComm_t comm;
        EXPECT(ncclCommInitRank(&comm, 2, id, r) == ncclSuccess);
        cudaStream_t compute, messages;
        cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&messages, cudaStreamNonBlocking);
        cudaEvent_t made, sent;
        cudaEventCreate(&made), cudaEventCreate(&sent);
        {
            Device<float> x(1);
            start(add_one, 1, 1, 0, compute, x.p);
            cudaEventRecord(made, compute);
            if (waits_before) cudaStreamWaitEvent(messages, made);
            ncclAllReduce(x.p, x.p, 1, ncclFloat32, ncclSum, comm, messages);
            cudaEventRecord(sent, messages);
            if (waits_after) cudaStreamWaitEvent(compute, sent);
            start(go_on, 1, 1, 0, compute, x.p);
            cudaStreamSynchronize(compute);
            cudaStreamSynchronize(messages);
            result[r] = x.host()[0];
        }
        cudaEventDestroy(made), cudaEventDestroy(sent);
        cudaStreamDestroy(compute), cudaStreamDestroy(messages);
        ncclCommDestroy(comm);
    };
    std::thread other(rank, 1);
    std::thread(rank, 0).join();
    other.join();
    return result[0] == 21 && result[1] == 21;
}

TEST(a_missing_wait_changes_results) {
    EXPECT(right(true, true));
    settings.lazy_streams = true;
    EXPECT(right(true, true));
    EXPECT(!right(true, false), "it went on before the sum was there");
    settings.early_messages = true;
    EXPECT(right(true, true));
    EXPECT(!right(false, true), "what was not made yet was added up");
    settings.lazy_streams = settings.early_messages = false;
}

// Two threads as ranks of a communicator, each on its own device.
static void as_two_ranks(const std::function<void(int, ncclComm_t)>& body) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    const auto rank = [&](int r) {
        cudaSetDevice(r);
        ncclComm_t comm = nullptr;
        EXPECT(ncclCommInitRank(&comm, 2, id, r) == ncclSuccess);
        body(r, comm);
        ncclCommDestroy(comm);
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
    cudaSetDevice(0);
}

// CUDA may wait for the kernel of the collective, the collective for the thread that CUDA keeps waiting.
TEST(memory_is_not_taken_or_freed_beside_collectives_of_other_threads) {
    std::atomic<bool> begun = false, waits = false, asked = false;
    as_two_ranks([&](int r, ncclComm_t comm) {
        Device<float> x(32);
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        float* own = nullptr;
        void* host = nullptr;
        std::vector<float> page(1024);
        if (r == 0) {
            EXPECT(cudaMalloc(&own, 400) == cudaSuccess, "nothing runs");
            begun = true;
            while (!waits) std::this_thread::yield();
            const auto refused = [](cudaError_t error) {
                const std::string text = cudaGetErrorString(error);
                return error != cudaSuccess && text.find("ncclAllReduce of 32") != std::string::npos;
            };
            float* more = nullptr;
            EXPECT(refused(cudaMalloc(&more, 400)) && refused(cudaFree(own)));
            EXPECT(refused(cudaHostAlloc(&host, 400, 0)) && refused(cudaHostRegister(page.data(), 4096, 0)));
            EXPECT(ncclMemAlloc(&host, 400) == ncclUnhandledCudaError);
            asked = true;
        }
        while (!begun) std::this_thread::yield();
        EXPECT(ncclAllReduce(x.p, x.p, 32, ncclFloat32, ncclSum, comm, stream) == ncclSuccess);
        waits = true;
        while (!asked) std::this_thread::yield();
        cudaStreamSynchronize(stream);
        if (own) EXPECT(cudaFree(own) == cudaSuccess, "all have called");
        cudaGetLastError();
        cudaStreamDestroy(stream);
    });
}

// Kernels of three communicators of 64 blocks each never fit on an H100 at once.
TEST(communicators_that_cannot_run_at_once_are_refused) {
    settings.processors = 132;
    as_two_ranks([](int r, ncclComm_t comm) {
        ncclComm_t second = nullptr, third = nullptr, fourth = nullptr, fifth = nullptr;
        EXPECT(ncclCommSplit(comm, 0, r, &second, nullptr) == ncclSuccess);
        EXPECT(ncclCommSplit(comm, 0, r, &third, nullptr) == ncclInvalidUsage);
        EXPECT(strstr(ncclGetLastError(comm), "192 blocks at once on device") &&
               strstr(ncclGetLastError(comm), "132 processors: set maxCTAs"), "%s", ncclGetLastError(comm));
        ncclCommDestroy(third);
        ncclConfig_t few = NCCL_CONFIG_INITIALIZER, wrong = NCCL_CONFIG_INITIALIZER, other = few;
        few.maxCTAs = 4, wrong.maxCTAs = 0, other.maxCTAs = 1 + r;
        EXPECT(ncclCommSplit(comm, 0, r, &fourth, &few) == ncclSuccess);
        EXPECT(ncclCommSplit(comm, 0, r, &fifth, &wrong) == ncclInvalidArgument);
        EXPECT(ncclCommSplit(comm, 0, r, &fifth, &other) == ncclInvalidUsage && !fifth);
        for (ncclComm_t c : {second, fourth}) ncclCommDestroy(c);
    });
    settings.processors = 2;
}

// Memory registered by a single rank, and memory at different offsets; in place is fine.
TEST(registered_memory_lies_alike_on_all_ranks) {
    for (const int offset : {0, 64, -1})
        as_two_ranks([offset](int r, ncclComm_t comm) {
            Device<float> x(256), y(256);
            void* handle = nullptr;
            if (offset >= 0 || r == 0)
                EXPECT(ncclCommRegister(comm, x.p, x.count * sizeof(float), &handle) == ncclSuccess);
            cudaStream_t stream;
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
            EXPECT(ncclAllGather(x.p + 32 * r, x.p, 32, ncclFloat32, comm, stream) == ncclSuccess);
            EXPECT(ncclAllReduce(y.p, y.p, 32, ncclFloat32, ncclSum, comm, stream) == ncclSuccess);
            float* const place = x.p + std::max(0, offset) * r;
            EXPECT(ncclAllReduce(place, place, 32, ncclFloat32, ncclSum, comm, stream) == ncclSuccess);
            cudaStreamSynchronize(stream);
            ncclResult_t error = ncclSuccess;
            ncclCommGetAsyncError(comm, &error);
            EXPECT(error == (offset == 0 ? ncclSuccess : ncclInvalidUsage), "offset %d: %d", offset, error);
            EXPECT(offset == 0 || strstr(ncclGetLastError(comm), "different offsets of the ranks' registered "
                                         "memory: "), "%s", ncclGetLastError(comm));
            if (handle) EXPECT(ncclCommDeregister(comm, handle) == ncclSuccess);
            EXPECT(ncclCommDeregister(comm, y.p) == ncclInvalidArgument);
            cudaStreamDestroy(stream);
        });
}
