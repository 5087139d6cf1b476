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
    uint64_t memory_bytes = 0;      // between L2 and memory, where settings.l2_blocks
    double floor_bytes = 0, floor_flops = 0;       // what the launches declared
    bool at_most = false;                          // one of them: no more than that
    bool scattered = false;                        // one of them: not in whole sectors
};
KernelCount& count_of(const void* kernel);
std::map<std::string, KernelCount> counts();       // by the kernel's name
void reset_counts();

// What is not as declared, a line each. The floor's bytes at most 1.1 times, in whole 32-byte sectors but for
// a few; its tensor-core operations exactly; shared memory at most 1.4 times the passes as without bank
// conflicts. Where every access is checked, every one is counted too, and the floor is no more than the
// truth: a kernel that goes around the helpers of kernel.h cannot pass as a fast one.
std::vector<std::string> off_floor(const KernelCount& count);
void tell_of_counts();      // adds the names of what was counted to settings.floors_file, where there is one

// Accesses of one block, until it ends.
struct Logged { Site site; uintptr_t address; uint16_t thread; uint8_t bytes; bool shared, cached; };
struct AccessLog {
    std::vector<Logged> accesses;
    std::vector<uintptr_t> cached;                 // sectors and bytes of the launch, to be made unique
};
void count_block(AccessLog& log, KernelCount& count);
void count_launch(AccessLog& log, KernelCount& count);

}  // namespace emulator
