// What kernels move and compute, per kernel.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "test/emulator/thread.h"

namespace emulator {

struct KernelCount {
    uint64_t launches = 0;
    // counted where settings.count
    uint64_t bytes = 0;             // of global memory: per access of a warp, the bytes it touches; of cached
                                    // loads, per launch
    uint64_t sectors = 0;           // of 32 bytes, likewise
    uint64_t shared_waves = 0;      // passes that shared memory needed for all accesses
    uint64_t shared_ideal = 0;      // those it needs without bank conflicts
    uint64_t mma_flops = 0;
    double floor_bytes = 0, floor_flops = 0;       // what the launches declared
    bool at_most = false;                          // one of them: no more than that
};
KernelCount& count_of(const void* kernel);
std::map<std::string, KernelCount> counts();       // by the kernel's name
void reset_counts();

// Accesses of one block, until it ends.
struct Logged { Site site; uintptr_t address; uint16_t thread; uint8_t bytes; bool shared, cached; };
struct AccessLog {
    std::vector<Logged> accesses;
    std::vector<uintptr_t> cached;                 // sectors and bytes of the launch, to be made unique
};
void count_block(AccessLog& log, KernelCount& count);
void count_launch(AccessLog& log, KernelCount& count);

}  // namespace emulator
