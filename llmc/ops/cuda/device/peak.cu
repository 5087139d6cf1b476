// From NVIDIA's datasheets and architecture papers. Most state rates of sparse products, twice those of dense
// ones; the figures here are dense.
#include "llmc/ops/cuda/device/peak.h"

inline namespace gpu {

namespace {

// Data centre and workstation: as stated, whatever clock the power limit leaves.
struct Stated { const char* name; double tflops; };
constexpr Stated kStated[] = {
    {"A100-SXM4-40GB", 312}, {"A100-SXM4-80GB", 312}, {"A100-SXM-80GB", 312},
    {"A100-PCIE-40GB", 312}, {"A100 80GB PCIe", 312}, {"A100-PCIE-80GB", 312},
    {"H100 80GB HBM3", 989.4}, {"H100 PCIe", 756.5}, {"H100 NVL", 835.5},
    {"H200", 989.4}, {"H200 NVL", 835.5},
    {"GH200 120GB", 989.4}, {"GH200 480GB", 989.4}, {"GH200 144G HBM3e", 989.4},
    {"B200", 2250}, {"GB200", 2500},
    {"L4", 121}, {"L40S", 362.1},
    {"RTX PRO 6000 Blackwell Workstation Edition", 503.8},
    {"RTX PRO 6000 Blackwell Server Edition", 503.8},               // of the same chip and highest clock
    {"RTX PRO 6000 Blackwell Max-Q Workstation Edition", 438.9},
};

// GeForce: tensor cores accumulate in FP32 at half their rate, 512 FLOP per clock and multiprocessor in all
// three generations, at the boost clock that NVIDIA states for the model (there are cards with higher ones).
// A name may stand for cards with different numbers of processors (RTX 3080, 3050): the device's counts.
constexpr double kGeForceFlop = 512;
struct GeForce { const char* name; int boost_mhz; };
constexpr GeForce kGeForce[] = {
    {"RTX 3050", 1777}, {"RTX 3060", 1777}, {"RTX 3060 Ti", 1665}, {"RTX 3070", 1725},
    {"RTX 3070 Ti", 1770}, {"RTX 3080", 1710}, {"RTX 3080 Ti", 1665}, {"RTX 3090", 1695},
    {"RTX 3090 Ti", 1860},
    {"RTX 4060", 2460}, {"RTX 4060 Ti", 2535}, {"RTX 4070", 2475}, {"RTX 4070 SUPER", 2475},
    {"RTX 4070 Ti", 2610}, {"RTX 4070 Ti SUPER", 2610}, {"RTX 4080", 2505}, {"RTX 4080 SUPER", 2550},
    {"RTX 4090", 2520},
    {"RTX 5050", 2572}, {"RTX 5060", 2497}, {"RTX 5060 Ti", 2572}, {"RTX 5070", 2512},
    {"RTX 5070 Ti", 2452}, {"RTX 5080", 2617}, {"RTX 5090", 2407},
};

}  // namespace

static bool take(std::string_view& name, std::string_view start) {
    const bool there = name.starts_with(start);
    if (there) name.remove_prefix(start.size());
    return there;
}

double peak_tflops(std::string_view name, int processors) {
    take(name, "NVIDIA ");                          // which older drivers leave out
    if (take(name, "GeForce ")) {
        for (const GeForce& gpu : kGeForce)
            if (name == gpu.name) return kGeForceFlop * processors * gpu.boost_mhz * 1e-6;
    } else {
        for (const Stated& gpu : kStated)
            if (name == gpu.name) return gpu.tflops;
    }
    return 0;
}

}  // namespace gpu
