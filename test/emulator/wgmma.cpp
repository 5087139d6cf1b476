// Products of a warp group: 128 threads issue each, in any order; its sums are held here until a wait names
// the threads' arrays. Meanwhile the arrays hold NaN.
#include <algorithm>
#include <bit>
#include <cstring>

#include "llmc/base/check.h"
#include "test/emulator/hopper.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

namespace emulator {

static constexpr int kK = 16;                          // of a product
static constexpr float kPoison = std::bit_cast<float>(0x7fbadbad);

uint64_t descriptor_of(const void* tile, unsigned leading_bytes, unsigned stride_bytes) {
    const Site site = __builtin_return_address(0);
    const size_t at = shared_offset(tile, 16, "a tile of wgmma", site);
    if (at % 16 || leading_bytes % 16 || stride_bytes % 16 || leading_bytes >> 18 || stride_bytes >> 18)
        fail(site, "a descriptor of byte %zu, leading %u, stride %u: multiples of 16 below 262,144", at,
             leading_bytes, stride_bytes);
    return at >> 4 | uint64_t(leading_bytes >> 4) << 16 | uint64_t(stride_bytes >> 4) << 32 |
           uint64_t(1) << 62;
}

// An operand of (rows, 16) in shared memory, as a descriptor describes it. Chunks of 8 elements are whole:
// along the sum, or along the rows where transposed.
struct Tile {
    size_t start, leading, stride;
    bool transposed;
    // byte of shared memory of the chunk that holds (row, k)
    size_t chunk(int row, int k) const {
        const auto far = transposed ? size_t(row / 64) * leading + size_t(k / 8) * stride
                                    : size_t(row / 8) * stride;
        const auto near = transposed ? size_t(k % 8) * 128 + size_t(row % 64) * 2
                                     : size_t(row % 8) * 128 + size_t(k) * 2;
        const size_t at = start + far + near;
        return at ^ (at >> 3 & 0x70);
    }
};

static Tile tile_of(uint64_t descriptor, bool transposed) {
    const auto field = [&](int from) { return size_t(descriptor >> from & 0x3fff) << 4; };
    return {field(0), field(16), field(32), transposed};
}

// Refuses what the ISA's canonical layouts with the 128-byte swizzle do not have.
static void check_tile(uint64_t descriptor, int rows, bool transposed, const Agent& agent) {
    const Site site = agent.site;
    const Block& block = *current->block;
    const Tile t = tile_of(descriptor, transposed);
    if (descriptor >> 62 != 1 || descriptor >> 49 & 7)
        fail(site, "a descriptor of wgmma, %016lx, of another swizzle than that of 128 bytes",
             static_cast<unsigned long>(descriptor));
    if (t.start % 1024 > (transposed ? 0 : 128 - 2 * kK))
        fail(site, "misaligned: a swizzled tile of wgmma at byte %zu of shared memory, no multiple of 1,024",
             t.start);
    if (t.stride % 1024 || (transposed && rows > 64 && t.leading % 1024))
        fail(site, "misaligned: eight rows of a swizzled tile of wgmma lie %zu bytes from the next, columns "
             "%zu: multiples of 1,024", t.stride, t.leading);
    for (int row = 0; row < rows; row += transposed ? 8 : 1)
        for (int k = 0; k < kK; k += transposed ? 1 : 8)
            if (t.chunk(row, k) + 16 > block.dynamic_bytes)
                fail(site, "out of bounds: wgmma reads byte %zu of shared memory, of which the block has %zu",
                     t.chunk(row, k), block.dynamic_bytes);
            else check_agent(block.hopper->clocks, agent, block.shared + t.chunk(row, k), 16, false);
}

static float number(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

// to[k * columns + row]
static void read_tile(const Tile& t, int rows, const std::byte* shared, float* to, int columns) {
    uint16_t chunk[8];
    if (t.transposed) {
        for (int k = 0; k < kK; k++)
            for (int row = 0; row < rows; row += 8) {
                memcpy(chunk, shared + t.chunk(row, k), 16);
                for (int i = 0; i < 8; i++) to[k * columns + row + i] = number(chunk[i]);
            }
        return;
    }
    for (int row = 0; row < rows; row++)
        for (int k = 0; k < kK; k += 8) {
            memcpy(chunk, shared + t.chunk(row, k), 16);
            for (int i = 0; i < 8; i++) to[(k + i) * columns + row] = number(chunk[i]);
        }
}

// a[k][row], by the layout of mma_m16n8k16's fragment, a warp having 16 rows.
static void read_fragments(const Product& p, float (*a)[64]) {
    for (int thread = 0; thread < 128; thread++)
        for (int i = 0; i < 4; i++) {
            const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i % 2);
            const int k = thread % 4 * 2 + 8 * (i / 2);
            const uint32_t pair = p.fragments[size_t(thread)][size_t(i)];
            a[k][row] = number(uint16_t(pair));
            a[k + 1][row] = number(uint16_t(pair >> 16));
        }
}

// The order of a tensor core's sums is not documented: here by k, then added to d.
static void compute(Product& p) {
    using Columns = float __attribute__((vector_size(64), aligned(4)));
    const WgmmaCall& c = p.call;
    if (!c.form.accumulate)
        for (Sums* s : p.sums) std::fill(s->values.begin(), s->values.end(), 0.f);
    const std::byte* shared = current->block->shared;
    float a[kK][64], row_sums[256];
    static thread_local float b[kK * 256];
    if (c.fragment) read_fragments(p, a);
    else read_tile(tile_of(c.a, c.form.a_transposed), 64, shared, a[0], 64);
    read_tile(tile_of(c.b, c.form.b_transposed), c.form.columns, shared, b, c.form.columns);
    for (int row = 0; row < 64; row++) {
        for (int column = 0; column < c.form.columns; column += 16) {
            Columns sum{};
            for (int k = 0; k < kK; k++) {
                Columns of_b;
                memcpy(&of_b, b + k * c.form.columns + column, sizeof of_b);
                sum += a[k][row] * of_b;
            }
            memcpy(row_sums + column, &sum, sizeof sum);
        }
        for (int t = 0; t < 4; t++) {
            float* d = p.sums[size_t(row / 16 * 32 + row % 8 * 4 + t)]->values.data() + row / 8 % 2 * 2;
            for (int i = 0; i < c.form.columns / 8; i++) {
                d[4 * i] += row_sums[8 * i + 2 * t];
                d[4 * i + 1] += row_sums[8 * i + 2 * t + 1];
            }
        }
    }
    machine->count->mma_flops += uint64_t(2) * 64 * uint64_t(c.form.columns) * kK;
}

static Sums& sums_of(Issued& mine, const WgmmaCall& call, Site site) {
    const int count = call.form.columns / 2;
    for (const auto& s : mine.sums) {
        if (call.d + count <= s->d || s->d + s->count <= call.d) continue;
        if (s->d != call.d || s->count != count)
            fail(site, "wgmma writes a part of sums that no wait has named since another wgmma wrote them");
        check_untouched(*current, call, true, site);
        return *s;
    }
    check_untouched(*current, call, false, site);
    mine.sums.push_back(std::make_unique<Sums>(call.d, count, 0, std::vector(call.d, call.d + count), site));
    return *mine.sums.back();
}

static bool alike(const WgmmaCall& a, const WgmmaCall& b) {
    return a.form == b.form && a.a == b.a && a.b == b.b && !a.fragment == !b.fragment;
}

// What both have seen.
static void leave_seen(Clock& seen, const Clock& by) {
    if (seen.empty()) seen = by;
    for (size_t i = 0; i < seen.size(); i++) seen[i] = std::min(seen[i], by[i]);
}

// Those before number `end`, which every thread has issued.
static void compute_until(WarpGroup& g, uint64_t end) {
    for (; g.first < end; g.first++) {
        compute(g.products.front());
        g.products.pop_front();
    }
}

void issue_wgmma(float* d, const uint32_t* fragment, uint64_t a, uint64_t b, WgmmaForm form) {
    const WgmmaCall call = {d, fragment, a, b, form};
    const Site site = __builtin_return_address(0);
    const Thread* t = current;
    Hopper& h = hopper();
    if (t->number / 128 * 128 + 128 > h.issued.size())
        fail(site, "wgmma by fewer than the 128 threads of a warp group");
    WarpGroup& g = h.groups[t->number / 128];
    Issued& mine = h.issued[t->number];
    if (!mine.fenced) fail(site, "wgmma, and no wgmma_fence before it");
    const uint64_t number = mine.products++;
    if (number == g.first + g.products.size()) g.products.push_back({call, site, 0, {}, {}, {}});
    Product& p = g.products[number - g.first];
    if (!alike(p.call, call))
        fail(site, "wgmma with other operands than other threads of the warp group have given at %s",
             place_of(p.site).c_str());
    Sums& sums = sums_of(mine, call, site);
    sums.last = number;
    mine.last_site = site;
    p.sums[t->number % 128] = &sums;
    if (call.fragment) std::copy_n(call.fragment, 4, p.fragments[t->number % 128].begin());
    if (call.fragment) hold_fragment(call, number, site);
    std::fill_n(call.d, sums.count, kPoison);
    if (checks_compiled_in) leave_seen(p.seen, h.clocks.threads[t->number]);
    if (++p.came < 128) return;
    const Agent agent = {g.agent, uint32_t(number + 1), t, &p.seen, site};
    if (!call.fragment) check_tile(call.a, 64, call.form.a_transposed, agent);
    check_tile(call.b, call.form.columns, call.form.b_transposed, agent);
    if (!settings.late_copies) compute_until(g, number + 1);
    wake(g.waiting, false);
}

void fence_wgmma() {
    Issued& mine = hopper().issued[current->number];
    mine.fenced = true;
    mine.touched.assign(mine.touched.size(), false);
}

void fence_proxy() {
    fence_stores(hopper().clocks, current->number);
    fence_mbarriers_by(current);
}

void commit_wgmma() {
    Issued& mine = hopper().issued[current->number];
    mine.groups.push_back(mine.products);
}

static void give(Sums& s, Site site) {
    for (int i = 0; i < s.count; i++)
        if (std::bit_cast<uint32_t>(s.d[i]) != std::bit_cast<uint32_t>(kPoison))
            fail(site, "somebody has written sums of a wgmma before the wait for it");
    std::copy(s.values.begin(), s.values.end(), s.d);
}

void wait_for_wgmma(int groups_left, float* const* named, int count) {
    const Site site = __builtin_return_address(0);
    Hopper& h = hopper();
    WarpGroup& g = h.groups[current->number / 128];
    Issued& mine = h.issued[current->number];
    const long groups = std::max(long(mine.groups.size()) - groups_left, 0L);
    if (groups) mine.awaited = mine.groups[size_t(groups - 1)];
    mine.groups.erase(mine.groups.begin(), mine.groups.begin() + groups);
    while (g.first < mine.awaited && g.products[mine.awaited - 1 - g.first].came < 128)
        wait_in("wgmma_wait", site, g.waiting, [] { return "for other threads of the warp group"; });
    compute_until(g, mine.awaited);
    release_fragments(mine);
    if (checks_compiled_in) {
        uint32_t& reached = h.clocks.threads[current->number][h.issued.size() + g.agent - kFirstAgent];
        reached = std::max(reached, uint32_t(mine.awaited));
    }
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < mine.sums.size(); k++) {
            if (mine.sums[k]->d != named[i]) continue;
            if (mine.sums[k]->last >= mine.awaited)
                fail(site, "wgmma_wait<%d> names sums that a later wgmma still writes", groups_left);
            give(*mine.sums[k], site);
            mine.sums.erase(mine.sums.begin() + long(k));
            break;
        }
}

void hopper_thread_ends(const Thread& t) {
    const Hopper& h = *t.block->hopper;
    const Issued& mine = h.issued[t.number];
    if (mine.awaited != mine.products)
        fail_at(&t, mine.last_site, "a thread ends without having waited for this wgmma");
    if (t.block->live > 0) return;
    if (!h.loads.empty()) lost(h.loads[0]);
    for (const WarpGroup& g : h.groups)
        for (const WarpGroup::Change& c : g.changes)
            if (c.came < 128)
                fail_at(&t, c.site, fmt::format("{} registers a thread for {} threads of a warp group of 128",
                                                c.registers, c.came));
}

}  // namespace emulator
