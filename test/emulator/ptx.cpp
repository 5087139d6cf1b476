// The instructions of ptx.h, computed for a whole warp.
#include "test/emulator/ptx.h"

#include "llmc/base/check.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

namespace emulator {

static float low(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
static float high(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

// Products are exact in FP32. The order of a tensor core's sums is not documented: here by k, then added
// to d.
void mma_m16n8k16(void** lanes, uint32_t) {
    using Row = float __attribute__((vector_size(32)));
    float a[16][16];
    Row b[16], sums[16];
    for (int lane = 0; lane < 32; lane++) {
        const Mma& m = *static_cast<Mma*>(lanes[lane]);
        const int group = lane / 4, pair = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            a[group + i % 2 * 8][pair + i / 2 * 8] = low(m.a[i]);
            a[group + i % 2 * 8][pair + i / 2 * 8 + 1] = high(m.a[i]);
        }
        for (int i = 0; i < 2; i++) {
            b[pair + i * 8][group] = low(m.b[i]);
            b[pair + i * 8 + 1][group] = high(m.b[i]);
        }
    }
    for (int row = 0; row < 16; row++) {
        sums[row] = Row{};
        for (int k = 0; k < 16; k++) sums[row] += a[row][k] * b[k];
    }
    for (int lane = 0; lane < 32; lane++) {
        const Mma& m = *static_cast<Mma*>(lanes[lane]);
        for (int i = 0; i < 4; i++) m.d[i] += sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
    machine->count->mma_flops += 2 * 16 * 8 * 16;
}

void check_ldmatrix_row(const void* row, bool used) {
    if (!used) return;
    const Site site = __builtin_return_address(0);
    if (reinterpret_cast<uintptr_t>(row) % 16) fail(site, "misaligned: ldmatrix from %p", row);
    const Block& b = *current->block;
    if (size_t(static_cast<const std::byte*>(row) - b.shared) >= kSharedBytes)
        fail(site, "ldmatrix from %p, which is not in shared memory", row);
    note_read(row, 16, false);
    check_access(current, row, 16, Kind::Read, site);
}

template <int matrices, bool transposed> void ldmatrix(void** lanes, uint32_t) {
    uint16_t matrix[matrices][8][8];
    for (int lane = 0; lane < 8 * matrices; lane++)
        memcpy(matrix[lane / 8][lane % 8], static_cast<Ldmatrix*>(lanes[lane])->row, 16);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < matrices; i++) {
            const int row = lane / 4, column = lane % 4 * 2;
            const uint32_t first = transposed ? matrix[i][column][row] : matrix[i][row][column];
            const uint32_t second = transposed ? matrix[i][column + 1][row] : matrix[i][row][column + 1];
            static_cast<Ldmatrix*>(lanes[lane])->registers[i] = first | second << 16;
        }
}
template void ldmatrix<4, false>(void**, uint32_t);
template void ldmatrix<2, false>(void**, uint32_t);
template void ldmatrix<4, true>(void**, uint32_t);
template void ldmatrix<2, true>(void**, uint32_t);

// ---------------------------------------------------------------------------------------------------------
// asynchronous copies: at issue, or as late as the wait allows

static void carry_out(const AsyncCopy& copy) {
    if (copy.valid) memcpy(copy.to, copy.from, 16);
    else memset(copy.to, 0, 16);
}

void copy_async(void* to, const void* from, bool valid) {
    Thread* t = current;
    const AsyncCopy copy = {to, from, valid, __builtin_return_address(0)};
    if ((reinterpret_cast<uintptr_t>(to) | (valid ? reinterpret_cast<uintptr_t>(from) : 0)) % 16)
        fail(copy.site, "misaligned: cp.async from %p to %p", from, to);
    const Block& b = *t->block;
    if (size_t(static_cast<std::byte*>(to) - b.shared) + 16 > b.shared_used)
        fail(copy.site, "out of bounds: cp.async to %p, which is not in the block's shared memory", to);
    if (valid) note_read(from, 16, false);
    check_copy_issued(t, copy);
    if (!settings.late_copies) carry_out(copy);
    t->copies.push_back(copy);
}

void commit_copies() { current->groups.push_back(current->copies.size()); }

void wait_for_copies(int groups_left) {
    Thread* t = current;
    const size_t done = t->groups.size() > size_t(groups_left) ? t->groups.size() - size_t(groups_left) : 0;
    if (done == 0) return;
    const size_t copies = t->groups[done - 1];
    for (size_t i = 0; i < copies; i++) {
        if (settings.late_copies) carry_out(t->copies[i]);
        check_copy_done(t, t->copies[i]);
    }
    t->copies.erase(t->copies.begin(), t->copies.begin() + long(copies));
    t->groups.erase(t->groups.begin(), t->groups.begin() + long(done));
    for (size_t& g : t->groups) g -= copies;
}

}  // namespace emulator
