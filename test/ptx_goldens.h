// What the wrappers of ptx.h give for inputs that never change: computed by a GPU for scripts/gpu_check.sh,
// and by the emulation, which is held to what the GPU gave.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

struct Golden {
    std::string name;                   // of the wrapper; "..., rounded" and "..., relative": floats
                                        // whose last bits may differ
    std::vector<uint32_t> words;        // lane by lane
};
std::vector<Golden> ptx_goldens();
