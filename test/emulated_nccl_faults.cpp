// Ranks over NCCL that do what they should not, and an emulation of NCCL that has to find it.
#include <nccl.h>

#include <cstring>
#include <thread>

#include "llmc/comm/launch.h"
#include "llmc/comm/seats.h"
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
                mesh.dp.barrier();
                CHECK_INPUT(mesh.rank != failing, "rank %d has enough", failing);
                for (;;) {
                    mesh.dp.broadcast(x.p, 100, 0);
                    mesh.dp.barrier();
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

TEST(calls_that_do_not_fit_are_told) {
    const Fatal e = ends(over("nccl", 2), [](const Mesh& mesh) {
        Device<float> x(64);
        mesh.rank ? mesh.dp.broadcast(x.p, 32, 0) : void(mesh.dp.all_gather(x.p, x.p, 32));
        mesh.dp.barrier();
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
    std::vector<Seat> seats(2, own_seat(true));
    const auto refused = [&] { return test::fatal_of([&] { check_devices(seats); }); };
    EXPECT(refused().code == 0 && device_of(seats, 1) == 1);
    seats[0].gpus = seats[1].gpus = 1;
    const Fatal same = refused();
    EXPECT(same.code == kExitConfig && strstr(same.what(), "ranks 0 and 1 are both on the GPU ffff:01:00.0"),
           "%s", same.what());
    strcpy(seats[1].address[0], "0000:99:00.0");            // as Slurm shows each task a GPU of its own
    EXPECT(refused().code == 0 && device_of(seats, 1) == 0);
    strcpy(seats[1].host, "elsewhere");
    strcpy(seats[1].address[0], seats[0].address[0]);
    EXPECT(refused().code == 0);
    seats[1].gpus = 0;
    EXPECT(strstr(refused().what(), "rank 1 finds no GPU on elsewhere"));
}

// Two ranks add up what a kernel makes, on a stream of its own, and another kernel goes on with the sum.
static __global__ void add_one(float* p) { *p += 1; }
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
