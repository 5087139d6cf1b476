// The transport over NCCL against the one between threads, on emulated GPUs.
#include <cmath>
#include <cstring>

#include "llmc/base/context.h"
#include "llmc/base/guard/wait.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/train/log/traffic.h"
#include "test/emulator/settings.h"
#include "test/nccl_ranks.h"

using emulator::settings;

// Bytes that a rank saw.
struct Seen {
    std::vector<std::byte> bytes;
    template <class T> void add(const T* p, size_t count) {
        const auto* b = reinterpret_cast<const std::byte*>(p);
        bytes.insert(bytes.end(), b, b + count * sizeof(T));
    }
    template <class T> void add(const Device<T>& d) {
        cudaStreamSynchronize(cuda_device().compute);
        const std::vector<T> v = d.host();
        add(v.data(), v.size());
    }
};

template <class T> static void on_devices(const Axis& a, size_t count, Seen& seen) {
    const size_t all = count * size_t(a.size), own = count * size_t(a.index);
    Device<std::byte> staging(std::max(size_t(1), 2 * (all + size_t(a.size)) * sizeof(T)));
    a.lend_staging(staging.p, staging.count);
    const Device<T> src(values<T>(a.index, all));
    {
        Device<T> dst(all), in_place(values<T>(a.index, all));
        a.all_gather(dst.p, src.p, count);
        a.all_gather(in_place.p, in_place.p + own, count);
        seen.add(dst), seen.add(in_place);
    }
    {
        Device<T> dst(count), in_place(values<T>(a.index, all)), whole(values<T>(a.index, all));
        a.reduce_scatter(dst.p, src.p, count);
        a.reduce_scatter(in_place.p + own, in_place.p, count);
        a.all_reduce(whole.p, all - (all > 1));            // slices of different sizes
        seen.add(dst), seen.add(whole);
        cudaStreamSynchronize(cuda_device().compute);
        seen.add(in_place.host().data() + own, count);
    }
    {
        const auto to = [&](int k) { return k % 2 ? count / 2 : count; };       // elements; none of one
        std::vector<size_t> sent, received(size_t(a.size), to(a.index));
        for (int k = 0; k < a.size; k++) sent.push_back(to(k));
        Device<T> dst(std::vector<T>(size_t(a.size) * count));
        Pending p = a.start_all_to_all(dst.p, src.p, sent.data(), received.data());
        a.wait(p);
        seen.add(dst);
    }
    Device<T> message(values<T>(a.index, count));
    a.broadcast(message.p, count, a.size - 1);
    seen.add(message);
    a.lend_staging(nullptr, 0);
}

// Around the ring and back, by rendezvous: rank 0 sends first.
static void messages(const Axis& pp, size_t count, Seen& seen) {
    const Device<float> src(values<float>(pp.index, count));
    Device<float> got(count);
    for (const int step : {1, pp.size - 1}) {
        const int next = (pp.index + step) % pp.size, before = (pp.index + pp.size - step) % pp.size;
        if (pp.index == 0) pp.send(src.p, count, next);
        pp.recv(got.p, count, before);
        if (pp.index != 0) pp.send(src.p, count, next);
        seen.add(got);
    }
}

// Memory of the host, also more than goes at once.
static void on_hosts(const Axis& a, Seen& seen) {
    for (const size_t count : {size_t(0), size_t(1), size_t(3001), size_t(400001)}) {
        std::vector<double> own = values<double>(a.index, count), all(count * size_t(a.size));
        a.all_gather(all.data(), own.data(), count);
        a.broadcast(own.data(), count, 0);
        std::vector<int32_t> integers = values<int32_t>(a.index, count);
        a.all_reduce(integers.data(), count);
        seen.add(all.data(), all.size()), seen.add(own.data(), count), seen.add(integers.data(), count);
    }
    std::vector<float> few = values<float>(a.index, 1000);
    a.all_reduce(few.data(), few.size());
    seen.add(few.data(), few.size());
    a.barrier();
}

static std::vector<Seen> what_ranks_see(const Config& c, bool hosts, bool bf16_wire = false) {
    std::vector<Seen> seen(size_t(c.parallel.ranks));
    run_threads(c, [&](Config, const Mesh& mesh) {
        if (bf16_wire) mesh.shard.group->bf16_wire = true;
        Seen& mine = seen[size_t(mesh.rank)];
        if (hosts) on_hosts(mesh.world, mine);
        for (const size_t count : {1, 7, 1000, 5001}) {
            if (mesh.pp.size > 1) messages(mesh.pp, count, mine);
            if (mesh.shard.size == 1) continue;
            on_devices<float>(mesh.shard, count, mine);
            on_devices<bfloat16>(mesh.shard, count, mine);
        }
        return 0;
    });
    return seen;
}

static void expect_same(const std::vector<Seen>& a, const std::vector<Seen>& b, const char* what) {
    for (size_t r = 0; r < a.size(); r++)
        EXPECT(a[r].bytes.size() > 1000 && a[r].bytes == b[r].bytes, "%s: rank %zu of %zu", what, r,
               a.size());
}

TEST(verbs_equal_those_between_threads) {
    for (const int ranks : {2, 3})
        expect_same(what_ranks_see(over("nccl", ranks), true), what_ranks_see(over("threads", ranks), true),
                    "ordered");
    expect_same(what_ranks_see(over("nccl", 4), false, true), what_ranks_see(over("threads", 4), false, true),
                "rounded on the wire");
}

// A wait in the idle barrier has a name, and ends where a rank fails.
TEST(a_failing_rank_ends_idle_barriers) {
    static RankProgress progress;
    int code = 0;
    const Fatal e = test::fatal_of([&] {
        run_threads(over("nccl", 2), [&](Config, const Mesh& mesh) {
            mesh.shard.barrier();
            const auto waits = [] { return progress.wait.text == std::string("idle_barrier"); };
            while (mesh.rank == 1 && !waits()) std::this_thread::yield();
            CHECK_INPUT(mesh.rank == 0, "rank 1 has enough");
            context.progress = &progress;
            const Fatal lost = test::fatal_of([] { comm::idle_barrier(); });
            context.progress = nullptr;
            code = lost.code;
            throw lost;
            return 0;
        });
    });
    EXPECT(e.code == kExitConfig && code == kExitRestart, "%d: %s; %d", e.code, e.what(), code);
    EXPECT(!progress.wait.text[0], "in '%s'", progress.wait.text);
}

// A gather on the host copies to the device and back, however many ranks there are.
TEST(gathers_on_the_host_copy_once) {
    for (const int ranks : {2, 8}) {
        run_threads(over("nccl", ranks), [ranks](Config, const Mesh& mesh) {
            const Axis& a = mesh.world;
            std::vector<double> own = values<double>(a.index, 3), all(3 * size_t(a.size));
            a.barrier();
            comm::idle_barrier();
            const uint64_t before = emulator::copy_calls;
            comm::idle_barrier();
            a.all_gather(all.data(), own.data(), 3);
            comm::idle_barrier();
            const uint64_t calls = emulator::copy_calls - before;
            EXPECT(calls == uint64_t(2 * ranks), "%d ranks: %lu copies", ranks, calls);
            return 0;
        });
    }
}

TEST(verbs_wait_for_all_that_they_need) {
    for (const bool pipeline : {false, true}) {
        const Config c = over("nccl", 3, "ordered", pipeline);
        const std::vector<Seen> eager = what_ranks_see(c, false);
        settings.lazy_streams = true;
        expect_same(what_ranks_see(c, false), eager, "as late as possible");
        settings.early_messages = true;
        expect_same(what_ranks_see(c, false), eager, "as soon as possible");
        settings.lazy_streams = settings.early_messages = false;
    }
}

TEST(native_sums_are_near) {
    run_threads(over("nccl", 3, "auto"), [](Config, const Mesh& mesh) {
        const Axis& a = mesh.shard;
        EXPECT(a.group->native && !mesh.world.group->native && a.reduce_staging(100) == 0);
        Device<float> data(values<float>(a.index, 1000)), scattered(values<float>(a.index, 3000));
        Device<float> slice(1000);
        a.all_reduce(data.p, 1000);
        a.reduce_scatter(slice.p, scattered.p, 1000);
        cudaStreamSynchronize(cuda_device().compute);
        const std::vector<float> sum = data.host(), own = slice.host();
        double worst = 0;
        for (size_t i = 0; i < 1000; i++) {
            const size_t j = size_t(a.index) * 1000 + i;
            double want = 0, want_own = 0;
            for (int r = 0; r < 3; r++) want += value<float>(r, i), want_own += value<float>(r, j);
            for (const double d : {sum[i] - want, own[i] - want_own})
                worst = test::larger_difference(worst, std::fabs(d));
        }
        EXPECT(worst > 0 && worst < 1e-6, "%.3g apart", worst);
        return 0;
    });
}

// A gather and a reduction in flight together, the next one's input made meanwhile.
static __global__ void add_one(float* p, int count) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) p[i] += 1;
}

TEST(collectives_run_beside_kernels) {
    for (const bool lazy : {false, true}) {
        settings.lazy_streams = lazy;
        std::vector<Seen> seen(2);
        run_threads(over("nccl", 2), [&](Config, const Mesh& mesh) {
            const Axis& a = mesh.shard;
            const size_t count = 100, all = 2 * count;
            Device<float> src(values<float>(a.index, all)), sum(count), gathered(all), other(all);
            Device<std::byte> staging(a.reduce_staging(all * sizeof(float)));
            a.lend_staging(staging.p, staging.count);
            for (int turn = 0; turn < 3; turn++) {
                Pending r = a.start_reduce_scatter(sum.p, src.p, count);
                Pending g = a.start_all_gather(gathered.p, src.p, count);
                launch(add_one, 1, 256, 0, {}, other.p, int(all));
                a.wait(r);
                a.wait(g);
                launch(add_one, 1, 256, 0, {}, src.p, int(all));
            }
            Seen& mine = seen[size_t(a.index)];
            mine.add(sum), mine.add(gathered), mine.add(other);
            EXPECT(other.host()[7] == 3 && gathered.host()[0] == value<float>(0, 0) + 1 + 1);
            return 0;
        });
        static std::vector<Seen> first;
        if (!lazy) first = seen;
        else expect_same(seen, first, "lazy streams");
    }
    settings.lazy_streams = false;
}

// A collective that ends before the ops wait counts as hidden, a collective awaited at once does not. Timing
// begins on request.
TEST(the_device_tells_what_it_waited_for) {
    for (const bool lazy : {false, true}) {
        settings.lazy_streams = lazy;
        run_threads(over("nccl", 2, "auto"), [&](Config, const Mesh& mesh) {
            const Axis& a = mesh.shard;
            const Device<float> src(values<float>(a.index, 20000));
            Device<float> all(40000), sum(values<float>(a.index, 20000));
            Traffic log;
            const auto times_of = [&](auto f) {
                f();
                cudaDeviceSynchronize();
                const DeviceTimes t = log.take(mesh).device;
                EXPECT(std::isnan(hidden_share(log.take(mesh).device)), "told twice");
                return t;
            };
            const auto at_once = [&] { a.all_gather(all.p, src.p, 20000), a.all_reduce(sum.p, 20000); };
            EXPECT(std::isnan(hidden_share(times_of(at_once))), "timed before it was asked for");
            for (int turn = 0; turn < 3; turn++) {
                const DeviceTimes slow = times_of(at_once), hidden = times_of([&] {
                    Pending p = a.start_all_gather(all.p, src.p, 20000);
                    cudaDeviceSynchronize();
                    a.wait(p);
                });
                // at once, the last to come may find it done
                EXPECT(slow.busy > 0 && (slow.waited > 0 || !lazy), "%g of %g s", slow.waited, slow.busy);
                EXPECT(hidden.busy > 0 && hidden.waited == 0 && hidden_share(hidden) == 1, "%g of %g s",
                       hidden.waited, hidden.busy);
            }
            return 0;
        });
    }
    settings.lazy_streams = false;
    EXPECT(hidden_share({2, 0.5}) == 0.75 && hidden_share({2, 3}) == 0);
}

// Of ranks in the middle of a pipeline, with tensor and data parallelism: on a small GPU and on an H100.
TEST(communicators_of_a_large_mesh_fit_at_once) {
    for (const int processors : {28, 132}) {
        settings.processors = processors;
        for (const int group : {0, 1}) {
            Config c = config_of(16, 2, 4);
            c.parallel.transport = "nccl", c.parallel.zero_group = group;
            const Fatal e = test::fatal_of([&] { run_threads(c, [](Config, const Mesh&) { return 0; }); });
            EXPECT(e.code == 0, "%d processors: %s", processors, e.what());
        }
    }
    settings.processors = 2;
}

TEST(memory_for_messages) {
    EXPECT(!comm::alloc(100), "one rank has no need of it");
    run_threads(over("nccl", 2), [](Config, const Mesh&) {
        float* p = static_cast<float*>(comm::alloc(400));
        std::vector<float> zeros(100, 1);
        cudaMemcpyAsync(zeros.data(), p, 400, cudaMemcpyDeviceToHost, cuda_device().compute);
        cudaStreamSynchronize(cuda_device().compute);
        EXPECT(p && zeros == std::vector<float>(100));
        EXPECT(comm::release(p) && !comm::release(p));
        return 0;
    });
}
