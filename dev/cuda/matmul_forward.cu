// Matrix product, forward:  out[n][o] = bias[o] + sum over c of x[n][c] w[o][c]
//
// 2 N C OC operations on N C + OC C + N OC numbers: each number is needed hundreds of times. The number of
// fetches and their distance decide: global memory, shared memory, registers. At the end, the multiplier
// decides: a multiprocessor's tensor cores are sixteen times as fast as its FP32 lanes, or more.
#include "dev/cuda/graded.h"
#include "llmc/ops/cuda/kernel.h"

namespace graded {

using namespace bf16::cuda;

static Floor floor_of(const Matrices& t, bool tensor_cores) {
    const double N = t.N, C = t.C, OC = t.OC;
    return {.bytes = 2 * (N * C + OC * C + N * OC + OC), .mma_flops = tensor_cores ? 2 * N * C * OC : 0};
}

static dim3 grid_of(const Matrices& t, int side) { return dim3(t.OC / side, t.N / side); }

// ---------------------------------------------------------------------------------------------------------
// 1. A thread per output. Lanes are neighbours in o: with each step of c the lanes read a common x and 32
// numbers of w, C apart: 32 sectors for 64 bytes. Every use of a number fetches from global memory.
__global__ void matmul_output_per_thread(Matrices t) {
    const int o = blockIdx.x * blockDim.x + threadIdx.x, n = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = float(t.bias[o]);
    for (int c = 0; c < t.C; c++)
        sum += float(t.x[size_t(n) * t.C + c]) * float(t.w[size_t(o) * t.C + c]);
    t.out[size_t(n) * t.OC + o] = bfloat16(sum);
}

// ---------------------------------------------------------------------------------------------------------
// 2. and 3. A block computes 32 x 32 outputs, fetches tiles of 32 x 32 of x and w into shared memory, in
// rows, so in whole sectors, and uses each number 32 times. Shared memory has 32 banks of four bytes; lanes
// with different words of the same bank wait for each other. With rows of 32 floats, the lanes' column of w's
// tile lies in a single bank: 32 passes in place of 1 (version 2). With rows of 33 floats, the column spreads
// over the banks (version 3).
template <int pitch> __global__ void matmul_shared_tiles(Matrices t) {
    SMEM(float[32][32], x);
    SMEM(float[32][pitch], w);
    const int tx = threadIdx.x, ty = threadIdx.y, n = blockIdx.y * 32 + ty, o = blockIdx.x * 32;
    float sum = float(t.bias[o + tx]);
    for (int c = 0; c < t.C; c += 32) {
        x[ty][tx] = float(t.x[size_t(n) * t.C + c + tx]);
        w[ty][tx] = float(t.w[size_t(o + ty) * t.C + c + tx]);
        __syncthreads();                // the tiles are there
        for (int i = 0; i < 32; i++) sum += x[ty][i] * w[tx][i];
        __syncthreads();                // and no thread reads the tiles any more
    }
    t.out[size_t(n) * t.OC + o + tx] = bfloat16(sum);
}

// ---------------------------------------------------------------------------------------------------------
// 4. Now threads wait for shared memory: two reads for a multiplication. So a thread computes 4 x 4 outputs:
// 16 products from 4 + 4 numbers. Tiles lie with c first: a thread's four numbers are 16 adjacent bytes, a
// single access. A block of 16 x 16 threads computes 64 x 64 outputs.
static constexpr int kSide = 64, kDepth = 16, kSidePitch = kSide + 4;

struct alignas(8) Four { bfloat16 v[4]; };

static __device__ __forceinline__ void fetch_transposed(float* to, const bfloat16* from, int C) {
    const int row = threadIdx.x / 4, c = threadIdx.x % 4 * 4;           // four numbers of a thread
    const Four four = load_streaming(reinterpret_cast<const Four*>(from + size_t(row) * C + c));
    for (int i = 0; i < 4; i++) to[(c + i) * kSidePitch + row] = float(four.v[i]);
}

__global__ void __launch_bounds__(256) matmul_registers(Matrices t) {
    DYN_SHARED(float, tiles);           // x (kDepth, kSidePitch), then w
    float *x = tiles, *w = tiles + kDepth * kSidePitch, sum[4][4] = {};
    const int n = blockIdx.y * kSide, o = blockIdx.x * kSide;
    const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    for (int c = 0; c < t.C; c += kDepth) {
        fetch_transposed(x, t.x + size_t(n) * t.C + c, t.C);
        fetch_transposed(w, t.w + size_t(o) * t.C + c, t.C);
        __syncthreads();
        for (int i = 0; i < kDepth; i++) {
            const PackF a = PackF::load(x + i * kSidePitch + row);
            const PackF b = PackF::load(w + i * kSidePitch + column);
            for (int r = 0; r < 4; r++)
                for (int s = 0; s < 4; s++) sum[r][s] += a[r] * b[s];
        }
        __syncthreads();
    }
    const Four bias = load_cached(reinterpret_cast<const Four*>(t.bias + o + column));
    for (int r = 0; r < 4; r++) {
        Four four;
        for (int s = 0; s < 4; s++) four.v[s] = bfloat16(sum[r][s] + float(bias.v[s]));
        store_streaming(reinterpret_cast<Four*>(t.out + size_t(n + row + r) * t.OC + o + column), four);
    }
}

// ---------------------------------------------------------------------------------------------------------
// 5. Tensor cores: mma_bf16 multiplies (16, 16) by (16, 8) in a single instruction of the warp. ldmatrix
// loads the operands from shared memory into the lanes' registers in the instruction's order (ptx.h); the
// tiles stay in BF16. A block of four warps computes 64 x 64 outputs, a warp 32 x 32. Rows of a tile are
// padded by 8 numbers: the eight rows of an ldmatrix lie in different banks. (Stores into a tile meet by
// twos; a permutation of each row in place of the padding would avoid the conflicts.)
static constexpr int kStep = 32, kPitch = kStep + 8;    // channels at a time; of a row in shared memory

// sum (16 M, 8 K) += x's rows times w's rows, over kStep channels; x and w: the warp's first rows
template <int M, int K>
static __device__ __forceinline__ void multiply(float (&sum)[M][K][4], const bfloat16* x, const bfloat16* w) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int c = 0; c < kStep; c += 16) {
        uint32_t a[M][4], b[K / 2][4];
        #pragma unroll
        for (int m = 0; m < M; m++)
            ptx::ldmatrix_x4(a[m], x + (16 * m + lane % 16) * kPitch + c + lane / 16 * 8);
        #pragma unroll
        for (int k = 0; k < K / 2; k++)     // two times eight rows of w, each in two halves of eight channels
            ptx::ldmatrix_x4(b[k], w + (16 * k + lane / 16 * 8 + lane % 8) * kPitch + c + lane / 8 % 2 * 8);
        #pragma unroll
        for (int m = 0; m < M; m++)
            #pragma unroll
            for (int k = 0; k < K; k++)
                ptx::mma_bf16(sum[m][k], a[m], {b[k / 2][k % 2 * 2], b[k / 2][k % 2 * 2 + 1]});
    }
}

// A lane has two neighbours in each row of an accumulator: 4 bytes.
template <int M, int K>
static __device__ __forceinline__ void write_out(const Matrices& t, const float (&sum)[M][K][4], int n,
                                                 int o) {
    const int g = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++)
            for (int half = 0; half < 2; half++) {
                const int at = o + 8 * k + column;
                const float low = sum[m][k][2 * half] + float(load_cached(t.bias + at));
                const float high = sum[m][k][2 * half + 1] + float(load_cached(t.bias + at + 1));
                store_streaming(
                    reinterpret_cast<uint32_t*>(t.out + size_t(n + 16 * m + 8 * half + g) * t.OC + at),
                    ptx::pack_bf16(low, high));
            }
}

__global__ void __launch_bounds__(128) matmul_tensor_cores(Matrices t) {
    DYN_SHARED(bfloat16, tiles);        // x (kSide, kPitch), then w
    bfloat16 *x = tiles, *w = tiles + kSide * kPitch;
    const int n = blockIdx.y * kSide, o = blockIdx.x * kSide, warp = threadIdx.x / 32;
    const int row = warp / 2 * 32, column = warp % 2 * 32;
    float sum[2][4][4] = {};
    for (int c = 0; c < t.C; c += kStep) {
        for (int i = threadIdx.x; i < kSide * kStep / Pack::size; i += 128) {
            const int r = i / (kStep / Pack::size), at = i % (kStep / Pack::size) * Pack::size;
            Pack::load(t.x + size_t(n + r) * t.C + c + at).store(x + r * kPitch + at);
            Pack::load(t.w + size_t(o + r) * t.C + c + at).store(w + r * kPitch + at);
        }
        __syncthreads();
        multiply(sum, x + row * kPitch, w + column * kPitch);
        __syncthreads();
    }
    write_out(t, sum, n + row, o + column);
}

// ---------------------------------------------------------------------------------------------------------
// 6. In version 5 every warp waits for memory, then multiplies. cp.async copies from global to shared memory
// while the thread multiplies: of three pairs of tiles, two arrive while the third is used. And a block
// computes 128 x 128 outputs, which halves the fetches; eight warps, each 64 x 32.
static constexpr int kLarge = 128, kStages = 3, kPair = 2 * kLarge * kPitch;

__global__ void __launch_bounds__(256) matmul_pipelined(Matrices t) {
    DYN_SHARED(bfloat16, tiles);        // (kStages, 2, kLarge, kPitch)
    const int n = blockIdx.y * kLarge, o = blockIdx.x * kLarge, warp = threadIdx.x / 32;
    const int row = warp / 4 * 64, column = warp % 4 * 32, steps = t.C / kStep;
    const auto fetch = [&](int step) {
        bfloat16* to = tiles + step % kStages * kPair;
        for (int i = threadIdx.x; i < kLarge * kStep / Pack::size; i += 256) {
            const int r = i / (kStep / Pack::size), at = i % (kStep / Pack::size) * Pack::size;
            const size_t c = size_t(step) * kStep + at;
            ptx::cp_async16(to + r * kPitch + at, t.x + size_t(n + r) * t.C + c, true);
            ptx::cp_async16(to + (kLarge + r) * kPitch + at, t.w + size_t(o + r) * t.C + c, true);
        }
    };
    float sum[4][4][4] = {};
    for (int step = 0; step < kStages - 1; step++) {
        if (step < steps) fetch(step);
        ptx::cp_async_commit();         // also an empty group, to keep the count simple
    }
    for (int step = 0; step < steps; step++) {
        ptx::cp_async_wait<kStages - 2>();      // this thread's groups except the newest
        __syncthreads();                        // every thread's; no thread uses the previous pair
        if (step + kStages - 1 < steps) fetch(step + kStages - 1);      // into the previous pair
        ptx::cp_async_commit();
        const bfloat16* x = tiles + step % kStages * kPair;
        multiply(sum, x + row * kPitch, x + (kLarge + column) * kPitch);
    }
    write_out(t, sum, n + row, o + column);
}

// Left to do: outputs leave in 16 bytes, half a sector; neighbouring blocks should share reads in L2; on
// Hopper, wgmma and TMA replace mma, ldmatrix and cp.async. llmc/ops/cuda/products/matmul.cu calls cuBLASLt;
// attention_mma.h uses these same instructions.

// ---------------------------------------------------------------------------------------------------------

std::span<const Version<Matrices>> matmul_versions() {
    static const Version<Matrices> versions[] = {
        {"an output per thread", [](const Matrices& t) {
             const dim3 grid(t.OC / 32, t.N / 8);
             launch(matmul_output_per_thread, grid, dim3(32, 8), 0, floor_of(t, false), t);
         }},
        {"tiles in shared memory", [](const Matrices& t) {
             launch(matmul_shared_tiles<32>, grid_of(t, 32), dim3(32, 32), 0, floor_of(t, false), t);
         }},
        {"... without bank conflicts", [](const Matrices& t) {
             launch(matmul_shared_tiles<33>, grid_of(t, 32), dim3(32, 32), 0, floor_of(t, false), t);
         }},
        {"4 x 4 outputs in registers", [](const Matrices& t) {
             const size_t tiles = 2 * kDepth * kSidePitch * sizeof(float);
             launch(matmul_registers, grid_of(t, kSide), dim3(256), tiles, floor_of(t, false), t);
         }},
        {"tensor cores", [](const Matrices& t) {
             const size_t tiles = 2 * kSide * kPitch * sizeof(bfloat16);
             launch(matmul_tensor_cores, grid_of(t, kSide), dim3(128), tiles, floor_of(t, true), t);
         }},
        {"copies beside products", [](const Matrices& t) {
             const size_t tiles = kStages * kPair * sizeof(bfloat16);
             launch(matmul_pipelined, grid_of(t, kLarge), dim3(256), tiles, floor_of(t, true), t);
         }},
    };
    return versions;
}

}  // namespace graded
