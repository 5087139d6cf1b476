// A block takes 32 columns: strand s of 32 adds up rows s, s + 32, ... of each, then one warp adds the
// strands in order.
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

static constexpr int kStrands = 32;

// FLOOR bytes = 4 (rows + 2) columns outputs
__global__ void __launch_bounds__(32 * kStrands) add_columns_kernel(ColumnSums s) {
    SMEM(float[32 * kStrands], sums);
    const int lane = threadIdx.x % 32, strand = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    const size_t stride = size_t(s.columns) * gridDim.y;
    const float* from = s.partial + size_t(blockIdx.y) * s.columns + column;
    float sum = 0;
    if (column < s.columns)
        for_loaded<8>(strand, s.rows, kStrands, [&](int row) { return load_streaming(from + row * stride); },
                      [&](float v, int) { sum += v; });
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (strand != 0 || column >= s.columns) return;
    float total = 0;
    #pragma unroll
    for (int i = 0; i < kStrands; i++) total += sums[i * 32 + lane];
    float* to = s.out[0];
    if (blockIdx.y == 1) to = s.out[1];
    if (blockIdx.y == 2) to = s.out[2];
    to[column] += total;
}

void add_columns(const ColumnSums& s) {
    if (s.rows == 0) return;
    const int outputs = 1 + (s.out[1] != nullptr) + (s.out[2] != nullptr);
    launch(add_columns_kernel, dim3(div_up(s.columns, 32), outputs), dim3(32 * kStrands), 0,
           {.bytes = 4. * (s.rows + 2) * s.columns * outputs}, s);
}

}  // namespace cuda
}  // namespace PRECISION
