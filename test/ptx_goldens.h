// Results of the wrappers of ptx.h for fixed inputs: computed by a GPU for scripts/gpu_check.sh, and by the
// emulation, which must equal the GPU.
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
std::vector<Golden> ptx_hopper_goldens();    // of ptx_hopper.h; none on other GPUs than Hopper
