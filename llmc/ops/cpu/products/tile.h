// Products and transposes of small dense tiles in `real`, padded with zeros: what attention is made of.
#pragma once
#include <utility>

#include "llmc/base/numbers/simd.h"

namespace PRECISION {
namespace cpu {

// Rows of C that one kernel call keeps in registers, by two vectors: 16 of AVX-512's 32, 8 of AVX2's 16.
inline constexpr int kTileRows = simd::kVectorBytes == 64 ? 8 : 4;
// Tiles have multiples of this many rows and columns.
inline constexpr int kTileStep = simd::width<real> > 8 ? simd::width<real> : 8;

// A matrix in `real`: element (i, j) is at p[i * row + j * column].
struct Strided { const real* p; int row, column; };

inline Strided transposed(const Strided& a) { return {a.p, a.column, a.row}; }

template <bool Add, int V>
[[gnu::always_inline]] inline void tile_kernel(real* c, int ldc, const Strided& a, const real* b, int ldb,
                                               int K) {
    constexpr int W = simd::width<real>, R = kTileRows;
    simd::Vector<real> acc[R][V];
    #pragma GCC unroll 8
    for (int i = 0; i < R; i++)
        #pragma GCC unroll 2
        for (int j = 0; j < V; j++) acc[i][j] = Add ? simd::load(c + i * ldc + j * W) : simd::Vector<real>{};
    for (int k = 0; k < K; k++) {
        simd::Vector<real> bk[V];
        #pragma GCC unroll 2
        for (int j = 0; j < V; j++) bk[j] = simd::load(b + k * ldb + j * W);
        #pragma GCC unroll 8
        for (int i = 0; i < R; i++)
            #pragma GCC unroll 2
            for (int j = 0; j < V; j++) acc[i][j] += a.p[i * a.row + k * a.column] * bk[j];
    }
    #pragma GCC unroll 8
    for (int i = 0; i < R; i++)
        #pragma GCC unroll 2
        for (int j = 0; j < V; j++) simd::store(c + i * ldc + j * W, acc[i][j]);
}

// C += A B, or C = A B: (M, N) (M, K) (K, N). M in multiples of kTileRows, N of W. Every element sums over k
// in order.
template <bool Add = true>
void multiply_add(real* c, int ldc, const Strided& a, const real* b, int ldb, int M, int N, int K) {
    constexpr int W = simd::width<real>;
    for (int j = 0; j < N; j += 2 * W)
        for (int i = 0; i < M; i += kTileRows) {
            const Strided rows = {a.p + i * a.row, a.row, a.column};
            if (N - j >= 2 * W) tile_kernel<Add, 2>(c + i * ldc + j, ldc, rows, b + j, ldb, K);
            else tile_kernel<Add, 1>(c + i * ldc + j, ldc, rows, b + j, ldb, K);
        }
}

// One step of a transpose in registers: swaps blocks of S x S off the diagonal of each block of 2S x 2S.
template <int S, int... L>
[[gnu::always_inline]] inline void swap_blocks(simd::Vector<real>* v, std::integer_sequence<int, L...>) {
    constexpr int W = sizeof...(L);
    typedef std::conditional_t<sizeof(real) == 8, int64_t, int32_t> Index;
    typedef typename simd::VectorOf<Index>::type Order;
    const Order even = {Index(L & S ? W + L - S : L)...}, odd = {Index(L & S ? W + L : L + S)...};
    #pragma GCC unroll 16
    for (int i = 0; i < W; i++) {
        if (i & S) continue;
        const auto a = v[i], b = v[i + S];
        v[i] = __builtin_shuffle(a, b, even);
        v[i + S] = __builtin_shuffle(a, b, odd);
    }
}

[[gnu::always_inline]] inline void transpose_block(simd::Vector<real>* v) {
    constexpr int W = simd::width<real>;
    constexpr auto lanes = std::make_integer_sequence<int, W>();
    swap_blocks<1>(v, lanes);
    if constexpr (W > 2) swap_blocks<2>(v, lanes);
    if constexpr (W > 4) swap_blocks<4>(v, lanes);
    if constexpr (W > 8) swap_blocks<8>(v, lanes);
}

// out[j][i] = in[i][j] * scale, for (rows, columns) of `in`. Into a tile (ToTile) the rows of `out` are
// filled up to whole vectors with zeros.
template <bool ToTile, class Out, class In>
void transpose(Out* out, size_t out_stride, const In* in, size_t in_stride, int rows, int columns,
               real scale) {
    constexpr int W = simd::width<real>;
    for (int i = 0; i < rows; i += W)
        for (int j = 0; j < columns; j += W) {
            simd::Vector<real> v[W];
            #pragma GCC unroll 16
            for (int k = 0; k < W; k++)
                v[k] = i + k < rows ? simd::load(in + (i + k) * in_stride + j, columns - j) * scale
                                    : simd::Vector<real>{};
            transpose_block(v);
            #pragma GCC unroll 16
            for (int k = 0; k < W; k++)
                if (j + k < columns) simd::store(out + (j + k) * out_stride + i, v[k], ToTile ? W : rows - i);
        }
}

// out[i][j] = in[i][j] * scale, with zeros in columns up to `padded` and in rows up to `padded_rows`.
inline void copy_tile(real* out, int padded, const floatX* in, size_t stride, int rows, int columns,
                      int padded_rows, real scale) {
    constexpr int W = simd::width<real>;
    for (int i = 0; i < padded_rows; i++)
        for (int j = 0; j < padded; j += W)
            simd::store(out + i * padded + j, i < rows && j < columns
                                                  ? simd::load(in + i * stride + j, columns - j) * scale
                                                  : simd::Vector<real>{});
}

// out (columns) += the sums of N rows, `stride` elements apart, in their order: matmul.cpp.
void add_rows(real* out, const floatX* rows, int N, int columns, size_t stride);

}  // namespace cpu
}  // namespace PRECISION
