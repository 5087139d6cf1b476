// Prints the layouts in CuTe's traits of the instructions in ptx.h, a table a line: the place in the matrix
// of each value of each lane. Compiled by test/emulated/emulator_cute.cpp against nvidia-cutlass.
#define __CUDACC_VER_MAJOR__ 0
#include <cstdio>

#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>

template <class Layout> static void print(const char* name, Layout layout, int values, int first_stride) {
    printf("%s", name);
    for (int lane = 0; lane < 32; lane++)
        for (int v = 0; v < values; v++) printf(" %d", int(layout(lane, v * first_stride)));
    printf("\n");
}

int main() {
    using Mma = cute::MMA_Traits<cute::SM80_16x8x16_F32BF16BF16F32_TN>;
    print("a", Mma::ALayout{}, 8, 1);                          // m + 16 k
    print("b", Mma::BLayout{}, 4, 1);                          // n + 8 k
    print("c", Mma::CLayout{}, 4, 1);                          // m + 16 n
    // in bits, of rows of 128 in the order of the lanes with the addresses
    print("x4", cute::Copy_Traits<cute::SM75_U32x4_LDSM_N>::DstLayout{}, 8, 16);
    print("x2", cute::Copy_Traits<cute::SM75_U32x2_LDSM_N>::DstLayout{}, 4, 16);
    print("x4_trans", cute::Copy_Traits<cute::SM75_U16x8_LDSM_T>::DstLayout{}, 8, 16);
    print("x2_trans", cute::Copy_Traits<cute::SM75_U16x4_LDSM_T>::DstLayout{}, 4, 16);
}
