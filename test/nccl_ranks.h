// Ranks over NCCL on threads, and their meshes.
#pragma once
#include "test/emulator/testing.h"
#include "test/ranks.h"
#include "test/test.h"

using emulator::Device;

inline Config over(const char* transport, int ranks, const char* reduce = "ordered",
                   bool pipeline = false) {
    Config c = config_of(ranks, 1, pipeline ? ranks : 1);
    c.parallel.transport = transport;
    c.parallel.reduce = reduce;
    if (pipeline) c.parallel.schedule = "interleaved", c.parallel.virtual_stages = 2;
    return c;
}

// Sums of these depend on their order.
template <class T> T value(int rank, size_t i) {
    uint64_t h = (i * 64 + uint64_t(rank) + 1) * 0x9e3779b97f4a7c15;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9;
    if constexpr (std::is_integral_v<T>) return T(h >> 32);
    else return T(float(h >> 40) * 0x1p-23f - 1);
}

template <class T> std::vector<T> values(int rank, size_t count) {
    std::vector<T> v(count);
    for (size_t i = 0; i < count; i++) v[i] = value<T>(rank, i);
    return v;
}
