// Matrix product by blocks, in `real`: for FP64, for BF16 on CPUs with slow BF16 products, and for builds
// without oneDNN.
//
// A tile of the result stays in scratch in `real` while k runs over it in panels; operands are converted to
// `real` while being packed. Every element is a chain of FMAs over k in order, in padded edge tiles as in
// full tiles, beginning with the tile's start value: the element depends on a row of A and a column of B
// alone.
#pragma once
#include <omp.h>

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/ops/cpu/products/tile.h"

namespace PRECISION {
namespace cpu {

inline constexpr int kGemmW = simd::width<real>;
inline constexpr int kGemmRows =
    simd::kVectorBytes == 64 ? 12 : 6;  // by two vectors: the registers hold one such block
inline constexpr int kGemmColumns = 2 * kGemmW;
inline constexpr int kTileM = 384, kTileN = sizeof(real) == 8 ? 192 : 256, kTileK = 192;
// Rows in scratch are a cache line longer than a power of two: rows of a power of two would share a few sets
// of the cache.
inline constexpr int kPad = 64 / int(sizeof(real));
inline constexpr int kStrideA = kTileK + kPad, kStrideAT = kTileM + kPad, kStrideB = kTileN + kPad,
                     kStrideC = kTileN + kPad;
inline constexpr size_t kPackedA = std::max(size_t(kTileM) * kStrideA, size_t(kTileK) * kStrideAT);
inline constexpr size_t kPackedB = size_t(kTileK) * kStrideB, kTileC = size_t(kTileM) * kStrideC;
static_assert(kTileM % kGemmRows == 0 && kTileN % kGemmColumns == 0 && kTileK % kGemmW == 0);

inline size_t gemm_scratch(int threads) {
    return size_t(threads) * (kPackedA + kPackedB + kTileC) * sizeof(real);
}

// Element (i, j) at p[i * row + j * column]; one of the strides is 1.
struct Operand {
    const floatX* p;
    size_t row, column;
};

template <int Row, int Column>
[[gnu::always_inline]] inline void gemm_kernel(real* __restrict c, const real* __restrict a,
                                               const real* __restrict b, int K) {
    constexpr int W = kGemmW, R = kGemmRows;
    simd::Vector<real> acc[R][2];
    #pragma GCC unroll 12
    for (int i = 0; i < R; i++)
        for (int j = 0; j < 2; j++) acc[i][j] = simd::load(c + i * kStrideC + j * W);
    for (int k = 0; k < K; k++) {
        const auto b0 = simd::load(b), b1 = simd::load(b + W);
        #pragma GCC unroll 12
        for (int i = 0; i < R; i++) {
            acc[i][0] += a[i * Row] * b0;
            acc[i][1] += a[i * Row] * b1;
        }
        a += Column;
        b += kStrideB;
    }
    #pragma GCC unroll 12
    for (int i = 0; i < R; i++)
        for (int j = 0; j < 2; j++) simd::store(c + i * kStrideC + j * W, acc[i][j]);
}

// C += A B over packed panels, M and N padded to whole blocks of registers
template <int Row, int Column>
[[gnu::noinline]] void gemm_panel(real* c, const real* a, const real* b, int M, int N, int K) {
    for (int j = 0; j < N; j += kGemmColumns)
        for (int i = 0; i < M; i += kGemmRows)
            gemm_kernel<Row, Column>(c + i * kStrideC + j, a + size_t(i) * Row, b + j, K);
}

inline int padded_to(int n, int step) { return (n + step - 1) / step * step; }

// The rows of a (rows, columns) matrix in `real`, columns in order, zeros where padded.
[[gnu::noinline]] inline void pack_rows(real* out, int out_stride, const floatX* in, size_t stride, int rows,
                                        int columns, int padded_rows, int padded_columns) {
    constexpr int W = kGemmW;
    for (int i = 0; i < padded_rows; i++) {
        real* to = out + size_t(i) * out_stride;
        const floatX* from = in + size_t(i) * stride;
        int j = 0;
        if (i < rows) {
            for (; j + W <= columns; j += W) simd::store(to + j, simd::load(from + j));
            if (j < columns) simd::store(to + j, simd::load_part(from + j, columns - j)), j += W;
        }
        for (; j < padded_columns; j += W) simd::store(to + j, simd::Vector<real>{});
    }
}

struct GemmTile {
    int i, j, M, N;
};  // rows i.. and columns j.. of C

// start and finish: as for gemm() below
template <class Start, class Finish>
void gemm_tile(const GemmTile& t, int K, const Operand& A, const Operand& B, std::byte* scratch, Start start,
               Finish finish) {
    real* a = reinterpret_cast<real*>(scratch);
    real *b = a + kPackedA, *c = b + kPackedB;
    const int M = padded_to(t.M, kGemmRows), N = padded_to(t.N, kGemmColumns);
    for (int i = 0; i < M; i++) {
        std::fill(c + i * kStrideC, c + i * kStrideC + N, real(0));
        if (i < t.M) start(t.i + i, t.j, c + i * kStrideC, t.N);
    }
    const int panels = std::max(1, (K + kTileK - 1) / kTileK);
    const int even = padded_to((K + panels - 1) / panels, kGemmW);
    for (int k = 0; k < K; k += even) {
        const int depth = std::min(even, K - k);
        const floatX* from_b = B.p + k * B.row + t.j * B.column;
        if (B.column == 1)
            pack_rows(b, kStrideB, from_b, B.row, depth, t.N, depth, N);
        else {
            if (t.N < N)
                for (int i = 0; i < depth; i++) std::fill(b + i * kStrideB, b + i * kStrideB + N, real(0));
            transpose<true>(b, kStrideB, from_b, B.column, t.N, depth, real(1));
        }
        const floatX* from_a = A.p + t.i * A.row + k * A.column;
        if (A.column == 1) {
            pack_rows(a, kStrideA, from_a, A.row, t.M, depth, M, padded_to(depth, kGemmW));
            gemm_panel<kStrideA, 1>(c, a, b, M, N, depth);
        } else {
            pack_rows(a, kStrideAT, from_a, A.column, depth, t.M, depth, padded_to(M, kGemmW));
            gemm_panel<1, kStrideAT>(c, a, b, M, N, depth);
        }
    }
    for (int i = 0; i < t.M; i++) finish(t.i + i, t.j, c + i * kStrideC, t.N);
}

// C = A B of (M, N) = (M, K) (K, N). start(i, j, tile, n) may set initial values of C[i, j .. j + n) in
// scratch; without start() they are zeros. finish(i, j, tile, n) receives the sums and must store them. Both
// run in parallel, for rows of disjoint tiles.
template <class Start, class Finish>
void gemm(int M, int N, int K, const Operand& A, const Operand& B, Start start, Finish finish) {
    if (M == 0 || N == 0) return;
    const int threads = context.threads;
    std::byte* scratch = context.scratch;
    use_scratch("matmul", gemm_scratch(threads));
    const int rows = (M + kTileM - 1) / kTileM;
    int columns = (N + kTileN - 1) / kTileN;
    while (rows * columns % threads && N / (columns + 1) >= 2 * kGemmColumns && rows * columns < 4 * threads)
        columns++;
    const int m = padded_to((M + rows - 1) / rows, kGemmRows),
              n = padded_to((N + columns - 1) / columns, kGemmColumns);
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int tile = 0; tile < rows * columns; tile++) {
        const int i = tile % rows * m, j = tile / rows * n;
        if (i >= M || j >= N) continue;
        gemm_tile({i, j, std::min(m, M - i), std::min(n, N - j)}, K, A, B,
                  scratch + gemm_scratch(1) * omp_get_thread_num(), start, finish);
    }
}

}  // namespace cpu
}  // namespace PRECISION
