// The emulated twin of llmc/ops/cuda/ptx_hopper.h: the same names, as the PTX ISA defines.
#pragma once
#include <cuda.h>

#include "test/emulator/device.h"

namespace emulator {

void init_mbarrier(uint64_t* b, int arrivals);
void fence_mbarriers();
void arrive(uint64_t* b, unsigned bytes);
void wait_for_phase(uint64_t* b, unsigned parity);

void load_tile(void* to, const CUtensorMap* map, uint64_t* b, int rank, const int* at);

// A wgmma as one thread issues it. fragment: the registers of a; null where a is a descriptor.
struct WgmmaForm {
    short columns;              // N
    bool a_transposed, b_transposed, accumulate;
    bool operator==(const WgmmaForm&) const = default;
};
uint64_t descriptor_of(const void* tile, unsigned leading_bytes, unsigned stride_bytes);
void issue_wgmma(float* d, const uint32_t* fragment, uint64_t a, uint64_t b, WgmmaForm form);
void fence_wgmma();
void commit_wgmma();
void wait_for_wgmma(int groups_left, float* const* named, int count);
void fence_proxy();

void change_registers(int registers, bool more);
void named_barrier(int id, int threads, bool waits);

}  // namespace emulator

namespace ptx {

EMULATOR_DEVICE void mbarrier_init(uint64_t* b, int arrivals) { emulator::init_mbarrier(b, arrivals); }
EMULATOR_DEVICE void mbarrier_fence_init() { emulator::fence_mbarriers(); }
EMULATOR_DEVICE void mbarrier_arrive(uint64_t* b) { emulator::arrive(b, 0); }
EMULATOR_DEVICE void mbarrier_arrive_expect(uint64_t* b, unsigned bytes) { emulator::arrive(b, bytes); }
EMULATOR_DEVICE void mbarrier_wait(uint64_t* b, unsigned parity) { emulator::wait_for_phase(b, parity); }

EMULATOR_DEVICE void tma_load_4d(void* to, const CUtensorMap* map, uint64_t* b, int c0, int c1, int c2,
                                 int c3) {
    const int at[4] = {c0, c1, c2, c3};
    emulator::load_tile(to, map, b, 4, at);
}
EMULATOR_DEVICE void tma_load_2d(void* to, const CUtensorMap* map, uint64_t* b, int c0, int c1) {
    const int at[2] = {c0, c1};
    emulator::load_tile(to, map, b, 2, at);
}

EMULATOR_DEVICE uint64_t wgmma_descriptor(const void* tile, unsigned leading_bytes, unsigned stride_bytes) {
    return emulator::descriptor_of(tile, leading_bytes, stride_bytes);
}
template <Major A, Major B, int R>
EMULATOR_DEVICE void wgmma(float (&d)[R], uint64_t a, uint64_t b, bool accumulate) {
    static_assert(R == 32 || R == 64 || R == 96 || R == 128);
    emulator::issue_wgmma(d, nullptr, a, b, {2 * R, A == Major::MN, B == Major::MN, accumulate});
}
template <Major B, int R>
EMULATOR_DEVICE void wgmma(float (&d)[R], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
    static_assert(R == 32 || R == 64 || R == 96 || R == 128);
    emulator::issue_wgmma(d, a, 0, b, {2 * R, false, B == Major::MN, accumulate});
}
// The array has its words of the stack from here on, which it may have shared with others before.
template <class Registers> EMULATOR_DEVICE void tie(Registers& r) { asm volatile("" :: "r"(r) : "memory"); }
template <class... Registers> EMULATOR_DEVICE void wgmma_fence(Registers&... registers) {
    (tie(registers), ...);
    emulator::fence_wgmma();
}
EMULATOR_DEVICE void wgmma_commit() { emulator::commit_wgmma(); }
template <int N, int... R> EMULATOR_DEVICE void wgmma_wait(float (&...d)[R]) {
    float* const named[] = {d..., nullptr};
    emulator::wait_for_wgmma(N, named, int(sizeof...(d)));
}
EMULATOR_DEVICE void fence_proxy_async() { emulator::fence_proxy(); }

template <int N> EMULATOR_DEVICE void registers_less() { emulator::change_registers(N, false); }
template <int N> EMULATOR_DEVICE void registers_more() { emulator::change_registers(N, true); }
template <int Id, int Threads> EMULATOR_DEVICE void barrier_sync() {
    emulator::named_barrier(Id, Threads, true);
}
template <int Id, int Threads> EMULATOR_DEVICE void barrier_arrive() {
    emulator::named_barrier(Id, Threads, false);
}

}  // namespace ptx
