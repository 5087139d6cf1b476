// A launch: checks of the hardware's limits, then block after block.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include <cuda_runtime.h>

#include "llmc/base/check.h"
#include "llmc/ops/arena.h"
#include "test/emulator/l2.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"
#include "test/emulator/watch.h"

namespace emulator {

static constexpr size_t kWithoutOptIn = 48 << 10, kStaticGap = 64;

size_t shared_limit_of(int arch) {
    switch (arch) {
        case 75: return 64 << 10;
        case 80: return 163 << 10;
        case 86: case 89: case 120: return 99 << 10;
        case 90: case 100: case 103: return 227 << 10;
    }
    fatal(kExitConfig, __FILE__, __LINE__, "EMU_ARCH={}: known are 75, 80, 86, 89, 90, 100, 103, 120", arch);
}

static Settings from_environment() {
    Settings s;
    const auto variable = [](const char* name) {
        const char* value = getenv(name);
        return std::string(value ? value : "");
    };
    const auto choose = [&](const char* name, const char* off, const char* on, bool otherwise) {
        const std::string v = variable(name);
        CHECK_INPUT(v.empty() || v == off || v == on, "{}={}: known are {} and {}", name, v, off, on);
        return v.empty() ? otherwise : v == on;
    };
    const std::string order = variable("EMU_ORDER");
    if (order == "reverse") s.order = Order::Reverse;
    else if (order.starts_with("random")) s.order = Order::Random;
    else CHECK_INPUT(order.empty() || order == "forward", "EMU_ORDER={}: forward, reverse or random[:seed]",
                     order);
    if (order.starts_with("random:")) s.seed = strtoull(order.c_str() + 7, nullptr, 10);
    s.late_copies = choose("EMU_ASYNC", "issue", "wait", true);
    s.lazy_streams = choose("EMU_STREAMS", "eager", "lazy", false);
    s.early_messages = choose("EMU_NCCL", "wait", "issue", false);
    s.refuse_host = choose("EMU_HOST", "allow", "refuse", false);
    if (getenv("EMU_ARCH")) s.arch = atoi(getenv("EMU_ARCH"));
    if (getenv("EMU_DRIVER")) s.driver = atoi(getenv("EMU_DRIVER"));
    if (getenv("EMU_DEVICES")) s.devices = atoi(getenv("EMU_DEVICES"));
    s.binary = variable("EMU_BINARY");
    if (getenv("EMU_TIMEOUT")) s.timeout = atof(getenv("EMU_TIMEOUT"));
    s.name = variable("EMU_NAME");
    s.ran_file = variable("EMU_RAN");
    s.floors_file = variable("EMU_FLOORS");
    s.waits_file = variable("EMU_WAITS");
    s.times_file = variable("EMU_TIMES");
    s.comms_file = variable("EMU_COMMS");
    s.lives_file = variable("EMU_LIVES");
    s.processes = variable("EMU_PROCESSES");
    s.poison_file = variable("EMU_POISON");
    if (getenv("EMU_RED_ZONES")) Arena::red_zone = strtoull(getenv("EMU_RED_ZONES"), nullptr, 10);
    Arena::red_zone_made = [](void* p, size_t bytes) {
        cudaDeviceSynchronize();               // the arena is clear
        add_red_zone(p, bytes);
    };
    shared_limit_of(s.arch);
    return s;
}
Settings settings = from_environment();

// ---------------------------------------------------------------------------------------------------------
// limits

static std::mutex guard;
static std::map<const void*, size_t> opted_in;         // most dynamic shared memory, by kernel
struct Ran { uint64_t threads = 0; size_t least_shared = SIZE_MAX, most_shared = 0; };
static std::map<const void*, Ran> ran;

bool opt_in(const void* kernel, size_t bytes) {
    if (bytes > shared_limit_of(settings.arch)) return false;
    const std::lock_guard lock(guard);
    opted_in[kernel] = bytes;
    return true;
}

// The launch bounds in warps: no-operations at the kernel's entry, which __launch_bounds__ put there.
static int bound_in_warps(const void* kernel) {
    const unsigned char* code = static_cast<const unsigned char*>(kernel);
    if (code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e) code += 4;      // endbr64
    int n = 0;
    while (code[n] == 0x90) n++;
    return n ? n : 32;
}

// *allowed: the kernel's opt-in to dynamic shared memory, or 0.
static std::string refused(const Launch& l, size_t* allowed) {
    const uint64_t threads = uint64_t(l.block.x) * l.block.y * l.block.z;
    const int bound = 32 * bound_in_warps(l.kernel);
    if (threads == 0 || threads > 1024 || l.block.z > 64)
        return fmt::format("block of ({},{},{}) threads: from 1 to 1024", l.block.x, l.block.y, l.block.z);
    if (int64_t(threads) > bound)
        return fmt::format("{} threads, over the kernel's launch bounds of {}", int(threads), bound);
    if (!l.grid.x || !l.grid.y || !l.grid.z || l.grid.x > 0x7fffffff || l.grid.y > 65535 || l.grid.z > 65535)
        return fmt::format("grid of ({},{},{}) blocks: from 1 to (2147483647,65535,65535)", l.grid.x,
                           l.grid.y,
                           l.grid.z);
    const std::lock_guard lock(guard);
    const size_t limit = shared_limit_of(settings.arch);
    if (l.shared_bytes > limit)
        return fmt::format("{} bytes of dynamic shared memory, over the {} of sm_{}", l.shared_bytes, limit,
                           settings.arch);
    const auto opted = opted_in.find(l.kernel);
    *allowed = opted == opted_in.end() ? 0 : opted->second;
    if (!*allowed && l.shared_bytes > kWithoutOptIn)
        return fmt::format("{} bytes of dynamic shared memory without opt-in: over {} need "
                           "cudaFuncSetAttribute",
                           l.shared_bytes, kWithoutOptIn);
    if (*allowed && l.shared_bytes > *allowed)
        return fmt::format("{} bytes of dynamic shared memory: cudaFuncSetAttribute allowed {}",
                           l.shared_bytes,
                           *allowed);
    Ran& r = ran[l.kernel];
    r = {std::max(r.threads, threads), std::min(r.least_shared, l.shared_bytes),
         std::max(r.most_shared, l.shared_bytes)};
    return "";
}

// At exit, the kernels that ran.
static const struct WriteRan {
    ~WriteRan() {
        if (settings.ran_file.empty()) return;
        FILE* file = fopen(settings.ran_file.c_str(), "a");
        if (!file) return;
        for (const auto& [kernel, r] : ran)
            fprintf(file, "%s\t%d\t%zu\t%zu\n", kernel_name(kernel).c_str(), int(r.threads), r.least_shared,
                    r.most_shared);
        fclose(file);
    }
} write_ran;

// ---------------------------------------------------------------------------------------------------------
// blocks

// A static object lies behind the dynamic memory and earlier objects, with a forbidden gap in between.
void* static_shared(const void* key, size_t bytes) {
    Block& b = *current->block;
    size_t total = bytes;
    for (const Block::Static& s : b.statics) {
        if (s.key == key) return b.shared + s.at;
        total += s.bytes;
    }
    const Site site = __builtin_return_address(0);
    const size_t limit = shared_limit_of(settings.arch);
    if (total > kWithoutOptIn)
        fail(site, "%zu bytes of static shared memory, over %zu", total, kWithoutOptIn);
    const size_t dynamic = b.opted_in ? b.opted_in : b.dynamic_bytes, both = total + dynamic;
    if (!b.opted_in && both > kWithoutOptIn)
        fail(site, "%zu bytes of static and dynamic shared memory without opt-in: over %zu need "
             "cudaFuncSetAttribute", both, kWithoutOptIn);
    if (both > limit)
        fail(site, "%zu bytes of static and dynamic shared memory, over the %zu of sm_%d", both, limit,
             settings.arch);
    const size_t at = (b.shared_used + kStaticGap + 127) / 128 * 128;
    b.shared_used = at + bytes;
    b.statics.push_back({key, at, bytes});
    memset(b.shared + at, 0xff, bytes);
    shared_appears(b.shared + at, bytes);
    return b.shared + at;
}

static void start_block(Machine& m, const Launch& l, uint64_t number) {
    Block& b = m.block;
    b.index = {unsigned(number % l.grid.x), unsigned(number / l.grid.x % l.grid.y),
               unsigned(number / l.grid.x / l.grid.y)};
    b.dimensions = l.block;
    b.grid = l.grid;
    b.count = b.live = int(l.block.x * l.block.y * l.block.z);
    b.run++;
    b.epoch = 0;
    b.shared = m.shared_memory;
    b.dynamic_bytes = b.shared_used = l.shared_bytes;
    b.statics.clear();
    b.hopper.reset();
    b.barrier.arrived = b.barrier.any = b.barrier.count = 0;
    b.barrier.all = 1;
    b.barrier.waiting.clear();
    b.warps.resize(size_t(b.count + 31) / 32);
    for (Warp& w : b.warps) {
        w.exited = w.epoch = 0;
        for (Rendezvous& r : w.open) r.arrived = 0;
    }
    memset(b.shared, 0xff, l.shared_bytes);            // NaN, in each format
    shared_starts(b.shared, kSharedBytes);
    shared_appears(b.shared, l.shared_bytes);
    b.threads.resize(size_t(b.count));
    for (int i = 0; i < b.count; i++) {
        Thread& t = b.threads[size_t(i)];
        const unsigned n = unsigned(i);
        t.index = {n % l.block.x, n / l.block.x % l.block.y, n / l.block.x / l.block.y};
        t.number = n;
        t.block = &b;
        t.stack = nullptr;
        t.done = false;
        t.waits_in = "nothing";
        t.site = nullptr;
        t.noted_from = t.noted_to = 0;
        t.copies.clear();
        t.groups.clear();
    }
}

static uint64_t block_in_order(uint64_t i, uint64_t total, uint64_t stride, uint64_t start) {
    if (settings.order == Order::Forward) return i;
    if (settings.order == Order::Reverse) return total - 1 - i;
    return (i * stride + start) % total;
}

// An error that CUDA repeats until the process ends.
static bool context_is_gone() {
    static std::atomic<bool> gone = false;
    if (!settings.poison_file.empty() && unlink(settings.poison_file.c_str()) == 0) gone = true;
    return gone;
}

bool run(const Launch& l) {
    Machine& m = this_machine();
    m.report = context_is_gone() ? "an illegal memory access was encountered" : refused(l, &m.block.opted_in);
    if (!m.report.empty()) {
        m.report += fmt::format("\n    in {}", kernel_name(l.kernel));
        return false;
    }
    if (!m.shared_memory) m.shared_memory = shared_space();
    m.failed = false;
    m.launch = &l;
    m.launches++;
    m.random.seed(settings.seed * 1000003 + m.launches);
    m.count = &count_of(l.kernel);
    m.count->launches++;
    const uint64_t total = uint64_t(l.grid.x) * l.grid.y * l.grid.z;
    static std::atomic<uint32_t> blocks_ever = 0;       // over the threads, which may share memory
    m.block.run = blocks_ever.fetch_add(uint32_t(total));
    m.first_run = m.block.run + 1, m.last_run = m.block.run + uint32_t(total);
    uint64_t stride = total > 2 ? m.random() % (total - 1) + 1 : 1;
    while (std::gcd(stride, total) != 1) stride++;
    const uint64_t start = m.random() % total;
    start_launch_of_checks();
    watch_launch();
    for (uint64_t i = 0; i < total && !m.failed; i++) {
        start_block(m, l, block_in_order(i, total, stride, start));
        run_block(m);
        if (settings.count) count_block(m.log, *m.count);
        if (settings.l2_blocks) replay_block_on_l2();
    }
    if (settings.count) count_launch(m.log, *m.count);
    if (settings.l2_blocks) replay_launch_on_l2(l.kernel);
    m.launch = nullptr;
    if (!m.failed) check_red_zones(l.kernel);
    return m.report.empty();
}

}  // namespace emulator
