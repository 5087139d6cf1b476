// CUDA C++ as the emulation gives it to g++: qualifiers, built-in variables, barriers, warp operations.
#pragma once
#include <bit>
#include <cstring>
#include <type_traits>

#include "test/emulator/thread.h"

#ifndef CUDA_EMU
#error "the emulation is compiled with -DCUDA_EMU"
#endif

// Device code is inlined: a reported address lies in the kernel. The launch bounds, in warps, are encoded as
// no-operations at the kernel's entry, which launch() counts.
#define __global__
#define __device__ __attribute__((always_inline))
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define EMULATOR_FIRST(first, ...) first
#define __launch_bounds__(...) \
    __attribute__((patchable_function_entry(((EMULATOR_FIRST(__VA_ARGS__, 0)) + 31) / 32)))

#define threadIdx (emulator::current->index)
#define blockIdx (emulator::current->block->index)
#define blockDim (emulator::current->block->dimensions)
#define gridDim (emulator::current->block->grid)
inline constexpr int warpSize = 32;

#define DYN_SHARED(T, name) T* const name = reinterpret_cast<T*>(emulator::current->block->shared)
#define SMEM(T, name)                                                                              \
    static char name##_key_;                                                                       \
    auto& name = *static_cast<std::type_identity_t<T>*>(emulator::static_shared(&name##_key_,      \
                                                        sizeof(std::type_identity_t<T>)))

#define EMULATOR_PLACE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define EMULATOR_HERE emulator::Place{file_, line_}
#define EMULATOR_DEVICE [[gnu::always_inline]] inline

EMULATOR_DEVICE void __syncthreads(EMULATOR_PLACE) { emulator::barrier(0, 0, EMULATOR_HERE); }
EMULATOR_DEVICE int __syncthreads_or(int p, EMULATOR_PLACE) { return emulator::barrier(p, 0, EMULATOR_HERE); }
EMULATOR_DEVICE int __syncthreads_and(int p, EMULATOR_PLACE) {
    return emulator::barrier(p, 1, EMULATOR_HERE);
}
EMULATOR_DEVICE int __syncthreads_count(int p, EMULATOR_PLACE) {
    return emulator::barrier(p, 2, EMULATOR_HERE);
}
EMULATOR_DEVICE void __syncwarp(unsigned mask = ~0u, EMULATOR_PLACE) {
    emulator::sync_warp(mask, EMULATOR_HERE);
}
void __threadfence();
EMULATOR_DEVICE void __threadfence_block() {}
EMULATOR_DEVICE void __nanosleep(unsigned) { emulator::yield(); }

namespace emulator {

// A lane's input and output of a shuffle.
struct Shuffled { unsigned char value[16], result[16]; int lane_or_delta, width; };
void shuffle_index(void** lanes, uint32_t mask);
void shuffle_up(void** lanes, uint32_t mask);
void shuffle_down(void** lanes, uint32_t mask);
void shuffle_xor(void** lanes, uint32_t mask);

template <class T>
EMULATOR_DEVICE T shuffle(unsigned mask, T v, int lane_or_delta, int width, Operation operation,
                          Place place) {
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
    Shuffled lane;
    std::memcpy(lane.value, &v, sizeof v);
    lane.lane_or_delta = lane_or_delta;
    lane.width = width;
    collective("a shuffle", mask, &lane, operation, place);
    std::memcpy(&v, lane.result, sizeof v);
    return v;
}

// Votes and reductions: each lane brings a word and all take the result.
void vote_ballot(void** lanes, uint32_t mask);
void vote_any(void** lanes, uint32_t mask);
void vote_all(void** lanes, uint32_t mask);
void reduce_add(void** lanes, uint32_t mask);
void reduce_max(void** lanes, uint32_t mask);
void reduce_min(void** lanes, uint32_t mask);
EMULATOR_DEVICE unsigned vote(unsigned mask, unsigned v, Operation operation, Place place) {
    collective("a vote", mask, &v, operation, place);
    return v;
}

}  // namespace emulator

template <class T>
EMULATOR_DEVICE T __shfl_sync(unsigned mask, T v, int lane, int width = 32, EMULATOR_PLACE) {
    return emulator::shuffle(mask, v, lane, width, emulator::shuffle_index, EMULATOR_HERE);
}
template <class T>
EMULATOR_DEVICE T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, EMULATOR_PLACE) {
    return emulator::shuffle(mask, v, int(delta), width, emulator::shuffle_up, EMULATOR_HERE);
}
template <class T>
EMULATOR_DEVICE T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, EMULATOR_PLACE) {
    return emulator::shuffle(mask, v, int(delta), width, emulator::shuffle_down, EMULATOR_HERE);
}
template <class T>
EMULATOR_DEVICE T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, EMULATOR_PLACE) {
    return emulator::shuffle(mask, v, lanes, width, emulator::shuffle_xor, EMULATOR_HERE);
}
EMULATOR_DEVICE unsigned __ballot_sync(unsigned mask, int p, EMULATOR_PLACE) {
    return emulator::vote(mask, p != 0, emulator::vote_ballot, EMULATOR_HERE);
}
EMULATOR_DEVICE int __any_sync(unsigned mask, int p, EMULATOR_PLACE) {
    return int(emulator::vote(mask, p != 0, emulator::vote_any, EMULATOR_HERE));
}
EMULATOR_DEVICE int __all_sync(unsigned mask, int p, EMULATOR_PLACE) {
    return int(emulator::vote(mask, p != 0, emulator::vote_all, EMULATOR_HERE));
}
EMULATOR_DEVICE unsigned __reduce_add_sync(unsigned mask, unsigned v, EMULATOR_PLACE) {
    return emulator::vote(mask, v, emulator::reduce_add, EMULATOR_HERE);
}
EMULATOR_DEVICE unsigned __reduce_max_sync(unsigned mask, unsigned v, EMULATOR_PLACE) {
    return emulator::vote(mask, v, emulator::reduce_max, EMULATOR_HERE);
}
EMULATOR_DEVICE unsigned __reduce_min_sync(unsigned mask, unsigned v, EMULATOR_PLACE) {
    return emulator::vote(mask, v, emulator::reduce_min, EMULATOR_HERE);
}
