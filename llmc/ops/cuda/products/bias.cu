// A block takes a group of rows and 32 packs of columns; warp s of 8 adds up rows s, s + 8, ..., then
// thread by thread the warps are added in order. The groups' sums are added by sums.cu.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

static constexpr int kWarps = 8, kColumns = 32 * Pack::size;

// In shared memory the lanes' first four columns lie side by side, then their next four, 16 banks further on:
// writing and reading both need every bank once.
static constexpr int kApart = 32 * PackF::size + 16, kRow = Pack::size / PackF::size * kApart;
static __device__ __forceinline__ int place_of(int column) {
    const int k = column % Pack::size;
    return k / PackF::size * kApart + column / Pack::size * PackF::size + k % PackF::size;
}

// FLOOR bytes = N OC sizeof(floatX) + 4 groups OC
__global__ void __launch_bounds__(32 * kWarps)
bias_backward_kernel(float* partial, const floatX* dout, int N, int OC, size_t stride, int rows) {
    SMEM(float[kWarps][kRow], sums);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, start = blockIdx.x * kColumns;
    const int column = start + lane * Pack::size;
    const int first = blockIdx.y * rows, end = first + rows < N ? first + rows : N;
    float sum[Pack::size] = {};
    if (column < OC)
        for_loaded<8>(first + warp, end, kWarps,
                      [=](int n) { return Pack::load_streaming(dout + n * stride + column); },
                      [&](const Pack& g, int) { add_pack(sum, g); });
    store_floats(sums[warp] + lane * PackF::size, sum, kApart);
    __syncthreads();
    const int c = threadIdx.x;                          // kColumns columns, 256 threads
    if (c >= kColumns || start + c >= OC) return;
    float total = 0;
    #pragma unroll
    for (int w = 0; w < kWarps; w++) total += sums[w][place_of(c)];
    store_streaming(partial + size_t(blockIdx.y) * OC + start + c, total);
}

void add_rows(float* out, float* partial, const floatX* rows, int N, int columns, size_t stride) {
    const RowGroups groups = row_groups_of(N, kBiasGroups);
    launch(bias_backward_kernel, dim3(div_up(columns, kColumns), groups.count), dim3(32 * kWarps), 0,
           {.bytes = double(N) * columns * sizeof(floatX) + 4. * groups.count * columns}, partial, rows, N,
           columns, stride, groups.rows);
    add_columns({.out = {out}, .partial = partial, .rows = groups.count, .columns = columns});
}

void bias_backward(real* db, const floatX* dout, int N, int OC) {
    if (!db || walked(bias_backward_cost, N, OC)) return;
    check_packs("bias: OC", OC);
    add_rows(db, scratch<float>(size_t(row_groups_of(N, kBiasGroups).count) * OC), dout, N, OC, size_t(OC));
}

}  // namespace cuda
}  // namespace PRECISION
