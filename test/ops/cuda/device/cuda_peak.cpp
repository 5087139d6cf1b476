// The table of peak rates: each name, in cudaDeviceProp's spelling, against figures from another source.
#include "llmc/ops/cuda/device/peak.h"

#include <string>

#include "test/test.h"

TEST(data_centre_gpus) {
    struct { const char* name; int processors; double tflops; } gpus[] = {
        {"NVIDIA A100-SXM4-40GB", 108, 312}, {"NVIDIA A100-SXM4-80GB", 108, 312},
        {"NVIDIA A100-SXM-80GB", 108, 312}, {"A100-SXM4-40GB", 108, 312}, {"A100-PCIE-40GB", 108, 312},
        {"NVIDIA A100-PCIE-40GB", 108, 312}, {"NVIDIA A100-PCIE-80GB", 108, 312},
        {"NVIDIA A100 80GB PCIe", 108, 312}, {"NVIDIA H100 80GB HBM3", 132, 1979 / 2.},
        {"NVIDIA H100 PCIe", 114, 1513 / 2.}, {"NVIDIA H100 NVL", 132, 1671 / 2.},
        {"NVIDIA H200", 132, 1979 / 2.}, {"NVIDIA H200 NVL", 132, 1671 / 2.},
        {"NVIDIA GH200 120GB", 132, 1979 / 2.}, {"NVIDIA GH200 480GB", 132, 1979 / 2.},
        {"NVIDIA GH200 144G HBM3e", 132, 1979 / 2.}, {"NVIDIA B200", 148, 4500 / 2.},
        {"NVIDIA GB200", 152, 5000 / 2.}, {"NVIDIA L4", 58, 242 / 2.}, {"NVIDIA L40S", 142, 724.2 / 2}};
    for (const auto& [name, processors, tflops] : gpus)     // half of the stated rate of sparse products
        EXPECT_NEAR(peak_tflops(name, processors), tflops, 1e-3 * tflops);
}

// FP32 lanes do 256 FLOP per clock and processor: a GeForce's tensor cores twice that, a workstation's four
// times. FP32's rates are from NVIDIA's tables.
TEST(cards_by_their_rate_in_fp32) {
    struct { const char* name; int processors; double fp32, factor; } gpus[] = {
        {"GeForce RTX 3050", 20, 9.1, 2}, {"GeForce RTX 3060", 28, 12.7, 2},
        {"GeForce RTX 3060 Ti", 38, 16.2, 2}, {"GeForce RTX 3070", 46, 20.3, 2},
        {"GeForce RTX 3070 Ti", 48, 21.7, 2}, {"GeForce RTX 3080", 68, 29.8, 2},
        {"GeForce RTX 3080", 70, 30.6, 2}, {"GeForce RTX 3080 Ti", 80, 34.1, 2},
        {"GeForce RTX 3090", 82, 35.6, 2}, {"GeForce RTX 3090 Ti", 84, 40.0, 2},
        {"GeForce RTX 4060", 24, 15.1, 2}, {"GeForce RTX 4060 Ti", 34, 22.1, 2},
        {"GeForce RTX 4070", 46, 29.1, 2}, {"GeForce RTX 4070 SUPER", 56, 35.5, 2},
        {"GeForce RTX 4070 Ti", 60, 40.1, 2}, {"GeForce RTX 4070 Ti SUPER", 66, 44.1, 2},
        {"GeForce RTX 4080", 76, 48.7, 2}, {"GeForce RTX 4080 SUPER", 80, 52.2, 2},
        {"GeForce RTX 4090", 128, 82.6, 2}, {"GeForce RTX 5050", 20, 13.2, 2},
        {"GeForce RTX 5060", 30, 19.2, 2}, {"GeForce RTX 5060 Ti", 36, 23.7, 2},
        {"GeForce RTX 5070", 48, 30.9, 2}, {"GeForce RTX 5070 Ti", 70, 43.9, 2},
        {"GeForce RTX 5080", 84, 56.3, 2}, {"GeForce RTX 5090", 170, 104.8, 2},
        {"RTX PRO 6000 Blackwell Workstation Edition", 188, 126.0, 4},
        {"RTX PRO 6000 Blackwell Server Edition", 188, 126.0, 4},
        {"RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, 109.7, 4}};
    for (const auto& [name, processors, fp32, factor] : gpus)
        for (const std::string maker : {"NVIDIA ", ""})
            EXPECT_NEAR(peak_tflops(maker + name, processors), factor * fp32, 5e-3 * factor * fp32);
}

// Similar names, and others: no published rate.
TEST(unknown_gpus_have_none) {
    for (const char* name :
         {"NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3080 Ti Laptop GPU", "GeForce RTX 5090 D",
          "NVIDIA GeForce GTX 1080", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
          "NVIDIA L40", "NVIDIA H2000", "NVIDIA H20", "RTX 4090", "NVIDIA", "NVIDIA ", "", "emulated sm_90"})
        EXPECT(peak_tflops(name, 100) == 0, "%s: %g", name, peak_tflops(name, 100));
}
