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
    uint64_t shared_waves = 0;      // passes of shared memory
    uint64_t shared_ideal = 0;      // passes without bank conflicts
    uint64_t mma_flops = 0;
    uint64_t memory_bytes = 0;      // between L2 and memory, where settings.l2_blocks
    double floor_bytes = 0, floor_flops = 0;       // declared by the launches
    bool at_most = false;                          // some launch declares a bound
    bool scattered = false;                        // some launch declares partial sectors
};
KernelCount& count_of(const void* kernel);
std::map<std::string, KernelCount> counts();       // by the kernel's name
void reset_counts();

// Violations of the declared floor, a line each: bytes at most 1.1 times the floor, in whole 32-byte sectors
// but for a few; tensor-core operations exactly; shared memory at most 1.4 times the passes without bank
// conflicts. Builds that check every access also count every access, and the floor is at most the count: a
// kernel cannot look fast by avoiding the helpers of kernel.h.
std::vector<std::string> off_floor(const KernelCount& count);
void tell_of_counts();      // adds the names of counted kernels to settings.floors_file, if set

// Accesses of a running block.
struct Logged { Site site; uintptr_t address; uint16_t thread; uint8_t bytes; bool shared, cached; };
struct AccessLog {
    std::vector<Logged> accesses;
    std::vector<uintptr_t> cached;                 // sectors and bytes of the launch, to be made unique
};
void count_block(AccessLog& log, KernelCount& count);
void count_launch(AccessLog& log, KernelCount& count);

}  // namespace emulator
