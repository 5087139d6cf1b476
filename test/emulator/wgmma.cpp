// Products of a warp group: 128 threads issue each, in any order; its sums are held here until a wait names
// the threads' arrays. Meanwhile the arrays hold NaN.
#include <algorithm>
#include <bit>
#include <cstring>

#include "llmc/base/check.h"
#include "test/emulator/hopper.h"
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
static void check_tile(uint64_t descriptor, int rows, bool transposed, Site site) {
    const Tile t = tile_of(descriptor, transposed);
    if (descriptor >> 62 != 1 || descriptor >> 49 & 7)
        fail(site, "a descriptor of wgmma, %016lx, of another swizzle than that of 128 bytes",
             static_cast<unsigned long>(descriptor));
    if (t.start % 1024 >= (transposed ? 1 : 128))
        fail(site, "misaligned: a swizzled tile of wgmma at byte %zu of shared memory, no multiple of 1,024",
             t.start);
    if (t.stride % 1024 || (transposed && rows > 64 && t.leading % 1024))
        fail(site, "misaligned: eight rows of a swizzled tile of wgmma lie %zu bytes from the next, columns "
             "%zu: multiples of 1,024", t.stride, t.leading);
    for (int row = 0; row < rows; row += transposed ? 8 : 1)
        for (int k = 0; k < kK; k += transposed ? 1 : 8)
            if (t.chunk(row, k) + 16 > current->block->dynamic_bytes)
                fail(site, "out of bounds: wgmma reads byte %zu of shared memory, of which the block has %zu",
                     t.chunk(row, k), current->block->dynamic_bytes);
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
    if (!c.accumulate)
        for (Sums* s : p.sums) std::fill(s->values.begin(), s->values.end(), 0.f);
    const std::byte* shared = current->block->shared;
    float a[kK][64], row_sums[256];
    static thread_local float b[kK * 256];
    if (c.fragment) read_fragments(p, a);
    else read_tile(tile_of(c.a, c.a_transposed), 64, shared, a[0], 64);
    read_tile(tile_of(c.b, c.b_transposed), c.columns, shared, b, c.columns);
    for (int row = 0; row < 64; row++) {
        for (int column = 0; column < c.columns; column += 16) {
            Columns sum{};
            for (int k = 0; k < kK; k++) {
                Columns of_b;
                memcpy(&of_b, b + k * c.columns + column, sizeof of_b);
                sum += a[k][row] * of_b;
            }
            memcpy(row_sums + column, &sum, sizeof sum);
        }
        for (int t = 0; t < 4; t++) {
            float* d = p.sums[size_t(row / 16 * 32 + row % 8 * 4 + t)]->values.data() + row / 8 % 2 * 2;
            for (int i = 0; i < c.columns / 8; i++) {
                d[4 * i] += row_sums[8 * i + 2 * t];
                d[4 * i + 1] += row_sums[8 * i + 2 * t + 1];
            }
        }
    }
    machine->count->mma_flops += uint64_t(2) * 64 * uint64_t(c.columns) * kK;
}

static Sums& sums_of(Issued& mine, const WgmmaCall& call, Site site) {
    const int count = call.columns / 2;
    for (const auto& s : mine.sums) {
        if (call.d + count <= s->d || s->d + s->count <= call.d) continue;
        if (s->d != call.d || s->count != count)
            fail(site, "wgmma writes a part of sums that no wait has named since another wgmma wrote them");
        return *s;
    }
    mine.sums.push_back(std::make_unique<Sums>(call.d, count, 0, std::vector(call.d, call.d + count)));
    return *mine.sums.back();
}

static bool alike(const WgmmaCall& a, const WgmmaCall& b) {
    return a.columns == b.columns && a.a == b.a && a.b == b.b && !a.fragment == !b.fragment &&
           a.a_transposed == b.a_transposed && a.b_transposed == b.b_transposed &&
           a.accumulate == b.accumulate;
}

// Those before number `end`, which every thread has issued.
static void compute_until(WarpGroup& g, uint64_t end) {
    for (; g.first < end; g.first++) {
        compute(g.products.front());
        g.products.pop_front();
    }
}

void issue_wgmma(const WgmmaCall& call) {
    const Site site = __builtin_return_address(0);
    const Thread* t = current;
    Hopper& h = hopper();
    if (t->number / 128 * 128 + 128 > h.issued.size())
        fail(site, "wgmma by fewer than the 128 threads of a warp group");
    WarpGroup& g = h.groups[t->number / 128];
    Issued& mine = h.issued[t->number];
    if (!mine.fenced) fail(site, "wgmma, and no wgmma_fence before it");
    const uint64_t number = mine.products++;
    if (number == g.first + g.products.size()) g.products.push_back({call, site, 0, {}, {}});
    Product& p = g.products[number - g.first];
    if (!alike(p.call, call))
        fail(site, "wgmma with other operands than other threads of the warp group have given at %s",
             place_of(p.site).c_str());
    Sums& sums = sums_of(mine, call, site);
    sums.last = number;
    p.sums[t->number % 128] = &sums;
    if (call.fragment) std::copy_n(call.fragment, 4, p.fragments[t->number % 128].begin());
    std::fill_n(call.d, sums.count, kPoison);
    if (++p.came < 128) return;
    if (!call.fragment) check_tile(call.a, 64, call.a_transposed, site);
    check_tile(call.b, call.columns, call.b_transposed, site);
    if (!settings.late_copies) compute_until(g, number + 1);
    wake(g.waiting, false);
}

void fence_wgmma() { hopper().issued[current->number].fenced = true; }

// Nothing: here stores arrive at once.
void fence_proxy() {}

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

static void end_of_products(const Thread& t, const Issued& mine) {
    if (mine.awaited != mine.products)
        fail_at(&t, t.site, "a thread ends without having waited for its wgmma");
}

void hopper_thread_ends(const Thread& t) {
    const Hopper& h = *t.block->hopper;
    end_of_products(t, h.issued[t.number]);
    if (t.block->live > 0 || h.loads.empty()) return;
    fail_at(h.loads[0].thread, h.loads[0].site, "the block ends without having waited for this load");
}

}  // namespace emulator
