// Products go to oneDNN where it is the fastest on this CPU, else to the blocked loops of gemm_plain.h, which
// convert BF16 to FP32 as they pack. GELU and its derivative follow panel by panel.
#include "llmc/ops/cpu/matmul.h"

#include <algorithm>

#include "llmc/base/math.h"
#include "llmc/ops/cpu/dnnl.h"
#include "llmc/ops/cpu/gemm_plain.h"

namespace PRECISION {
namespace cpu {

// ---------------------------------------------------------------------------------------------------------
// the three products of a linear layer

// in columns [j, j + width) of the OC there are
static Product forward_product(int N, int C, int OC, int width, bool bias) {
    return {.m = N, .n = width, .k = C, .in = dtype_of<floatX>, .out = dtype_of<floatX>,
            .a_transposed = false, .b_transposed = true, .bias = bias, .accumulate = false, .c_stride = OC};
}
// The next two products cover columns [j, j + width) of C; the first covers `sum` of the OC terms, with the
// result's c_stride.
static Product input_product(int N, int C, int OC, int width, int sum, bool first, DType out, int c_stride) {
    return {.m = N, .n = width, .k = sum, .in = dtype_of<floatX>, .out = out, .a_transposed = false,
            .b_transposed = false, .bias = false, .accumulate = !first, .a_stride = OC, .b_stride = C,
            .c_stride = c_stride};
}
static Product weight_product(int N, int C, int OC, int width) {
    return {.m = OC, .n = width, .k = N, .in = dtype_of<floatX>, .out = dtype_of<real>, .a_transposed = true,
            .b_transposed = false, .bias = false, .accumulate = true, .b_stride = C, .c_stride = C};
}

static constexpr bool kRounds = dtype_of<floatX> != dtype_of<real>;

// oneDNN reads a row-major B at half speed of 3072 columns (2.6.3, FP32, one core: 77 of 159
// GFLOP/s) and somewhat below its best at other widths above 1024. Wide products are cut by columns:
// f(first column, columns). Returns false if f does, at the first call or never.
// In BF16 whole rows of C are faster (AMX, 3072 columns: 9.0 against 11.5 ms), but where C is weights.
template <class F> static bool in_columns(int C, bool weights, F f) {
    const int pieces = kRounds && !weights ? 1 : (C + 1023) / 1024, width = (C / pieces + 63) / 64 * 64;
    for (int j = 0; j < C; j += width)
        if (!f(j, std::min(width, C - j))) {
            CHECK(j == 0, "matmul: columns {}.. of {} take more scratch than those before", j, C);
            return false;
        }
    return true;
}

// Long sums are slow as well (the head's 50304, FP32: 120 of 155 GFLOP/s, in sixths 160; BF16: 400 and 590).
// They go in pieces: f(first term, terms).
static constexpr int kTerms = 8192;
template <class F> static bool in_terms(int OC, F f) {
    const int pieces = std::max(1, OC / kTerms), terms = (OC / pieces + 63) / 64 * 64;
    for (int k = 0; k < OC; k += terms)
        if (!f(k, std::min(terms, OC - k))) {
            CHECK(k == 0, "matmul: terms {}.. of {} take more scratch than those before", k, OC);
            return false;
        }
    return true;
}

// Computes the product by oneDNN, which takes no empty matrix, and returns true; false where the plain loops
// have to, also where oneDNN wants more scratch than was lent. `used`: scratch of the caller.
static bool by_dnnl(const Product& p, const ProductTensors& t, size_t used = 0) {
    if (p.m == 0 || (p.k == 0 && p.accumulate)) return true;
    if (!dnnl_computes(p.in) || used + dnnl_scratch(p, context.threads) > context.scratch_bytes) return false;
    dnnl_product(p, t, context.scratch + used, context.threads);
    return true;
}

// ---------------------------------------------------------------------------------------------------------
// GELU in blocks of fixed length: the last block is padded, so every value passes the same instructions

static constexpr int kBlock = 64;

// block(to, from) computes kBlock values of `out` from kBlock of `in`, both in `real`.
template <class Block>
[[gnu::always_inline]] inline void in_blocks(floatX* out, const floatX* in, size_t count, Block block) {
    constexpr int W = simd::width<real>;
    for (size_t i = 0; i < count; i += kBlock) {
        const int n = int(std::min(count - i, size_t(kBlock)));
        alignas(64) real from[kBlock], to[kBlock];
        if (n == kBlock)
            for (int k = 0; k < kBlock; k += W) simd::store(from + k, simd::load(in + i + k));
        else
            for (int k = 0; k < kBlock; k++) from[k] = k < n ? real(in[i + k]) : real(0);
        block(to, from, i, n);
        if (n == kBlock)
            for (int k = 0; k < kBlock; k += W) simd::store(out + i + k, simd::load(to + k));
        else
            for (int k = 0; k < n; k++) out[i + k] = floatX(to[k]);
    }
}

[[gnu::noinline]] static void gelu_blocks(floatX* act, const floatX* pre, size_t count) {
    in_blocks(act, pre, count, [](real* to, const real* from, size_t, int) {
        #pragma omp simd
        for (int k = 0; k < kBlock; k++) to[k] = simd::gelu(from[k]);
    });
}

// dpre = dact * gelu'(pre), rounded once
[[gnu::noinline]] static void gelu_backward_blocks(floatX* dpre, const real* dact, const floatX* pre,
                                                   size_t count) {
    in_blocks(dpre, pre, count, [dact](real* to, const real* from, size_t i, int n) {
        #pragma omp simd
        for (int k = 0; k < kBlock; k++) to[k] = simd::gelu_grad(from[k]);
        for (int k = 0; k < n; k++) to[k] *= dact[i + k];
    });
}

// f(start, count) over `count` elements, divided among the threads in whole blocks
template <class F>
static void in_parallel(size_t count, F f) {
    constexpr size_t piece = 32 * kBlock;
    const int64_t pieces = int64_t((count + piece - 1) / piece);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int64_t i = 0; i < pieces; i++) f(i * piece, std::min(piece, count - i * piece));
}

void gelu_forward(floatX* act, const floatX* pre, size_t count) {
    if (walked(gelu_forward_cost, count)) return;
    in_parallel(count, [=](size_t start, size_t n) { gelu_blocks(act + start, pre + start, n); });
}

// Most rows of a panel with the columns of in_columns(): oneDNN computes such a panel at full speed, and
// caches still hold the panel when GELU reads.
static constexpr int kPanelRows = 1024;

// In `real`, in scratch.
static size_t panel_bytes(int rows, int width) {
    return (size_t(rows) * size_t(width) * sizeof(real) + 63) / 64 * 64;
}

static bool fused_by_dnnl() { return dnnl_computes(dtype_of<floatX>); }

// ---------------------------------------------------------------------------------------------------------
// forward

static auto from_zero() {
    return [](int, int, real*, int) {};
}

static void plain_forward(floatX* act, floatX* out, const floatX* x, const floatX* w, const floatX* bias,
                          int N, int C, int OC) {
    gemm(N, OC, C, {x, size_t(C), 1}, {w, 1, size_t(C)}, from_zero(), [=](int i, int j, real* sum, int n) {
        floatX* to = out + size_t(i) * OC + j;
        if (bias)
            for (int k = 0; k < n; k++) to[k] = floatX(sum[k] + real(bias[j + k]));
        else
            for (int k = 0; k < n; k++) to[k] = floatX(sum[k]);
        if (act) gelu_blocks(act + size_t(i) * OC + j, to, size_t(n));
    });
}

void matmul_forward(floatX* out, const floatX* x, const floatX* w, const floatX* bias, int N, int C, int OC) {
    if (walked(matmul_forward_cost, N, C, OC, bias != nullptr)) return;
    const Product p = forward_product(N, C, OC, OC, bias != nullptr);
    if (by_dnnl(p, {.c = out, .a = x, .b = w, .bias = bias})) return;
    plain_forward(nullptr, out, x, w, bias, N, C, OC);
}

void matmul_gelu_forward(floatX* act, floatX* pre, const floatX* x, const floatX* w, const floatX* bias,
                         int N, int C, int OC) {
    if (walked(matmul_gelu_forward_cost, N, C, OC, bias != nullptr)) return;
    if (!fused_by_dnnl()) return plain_forward(act, pre, x, w, bias, N, C, OC);
    for (int n = 0; n < N; n += kPanelRows) {
        const int rows = std::min(kPanelRows, N - n);
        const size_t at = size_t(n) * OC;
        const floatX* from = x + size_t(n) * C;
        const bool done = in_columns(OC, false, [=](int j, int width) {
            const Product p = forward_product(rows, C, OC, width, bias != nullptr);
            const ProductTensors t = {.c = pre + at + j, .a = from, .b = w + size_t(j) * C,
                                      .bias = bias ? bias + j : nullptr};
            if (!by_dnnl(p, t)) return false;
            #pragma omp parallel for schedule(static) num_threads(context.threads)
            for (int i = 0; i < rows; i++) {
                const size_t row = at + size_t(i) * OC + j;
                gelu_blocks(act + row, pre + row, size_t(width));
            }
            return true;
        });
        if (!done) plain_forward(act + at, pre + at, from, w, bias, rows, C, OC);
    }
}

// ---------------------------------------------------------------------------------------------------------
// backward

static void plain_backward_input(floatX* dx, const floatX* dout, const floatX* w, const floatX* pre, int N,
                                 int C, int OC) {
    gemm(N, C, OC, {dout, size_t(OC), 1}, {w, size_t(C), 1}, from_zero(),
         [=](int i, int j, real* sum, int n) {
             const size_t at = size_t(i) * C + j;
             if (pre)
                 gelu_backward_blocks(dx + at, sum, pre + at, size_t(n));
             else
                 for (int k = 0; k < n; k++) dx[at + k] = floatX(sum[k]);
         });
}

// A sum that goes in pieces adds up in a panel, and is rounded once.
static bool sums_in_panel(int OC) { return kRounds && OC >= 2 * kTerms; }

static Product input_piece(int N, int C, int OC, int width, int k, int terms) {
    return sums_in_panel(OC) ? input_product(N, C, OC, width, terms, k == 0, dtype_of<real>, width)
                             : input_product(N, C, OC, width, terms, k == 0, dtype_of<floatX>, C);
}

void matmul_backward_input(floatX* dx, const floatX* dout, const floatX* w, int N, int C, int OC) {
    if (walked(matmul_backward_input_cost, N, C, OC)) return;
    real* panel = reinterpret_cast<real*>(context.scratch);
    const bool apart = sums_in_panel(OC);
    const bool done = in_columns(C, false, [=](int j, int width) {
        void* sum = apart ? static_cast<void*>(panel) : dx + j;
        const bool computed = in_terms(OC, [=](int k, int terms) {
            return by_dnnl(input_piece(N, C, OC, width, k, terms),
                           {.c = sum, .a = dout + k, .b = w + size_t(k) * C + j, .bias = nullptr},
                           apart ? panel_bytes(N, width) : 0);
        });
        if (!apart || !computed) return computed;
        const Unrecorded part_of_this;
        round_to(dx, panel, size_t(N) * size_t(C));         // in BF16 the columns are all of them
        return true;
    });
    if (!done) plain_backward_input(dx, dout, w, nullptr, N, C, OC);
}

// Of the panels of matmul_gelu_backward_input(), which are rounded after the product with gelu'.
static size_t widest_panel_bytes(int rows, int C) {
    int widest = 0;
    in_columns(C, false, [&](int, int width) { return widest = std::max(widest, width); });
    return panel_bytes(rows, widest);
}

void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* w, const floatX* pre, int N,
                                int C, int OC) {
    if (walked(matmul_gelu_backward_input_cost, N, C, OC)) return;
    if (!fused_by_dnnl()) return plain_backward_input(dpre, dout, w, pre, N, C, OC);
    real* panel = reinterpret_cast<real*>(context.scratch);
    for (int n = 0; n < N; n += kPanelRows) {
        const int rows = std::min(kPanelRows, N - n);
        const size_t at = size_t(n) * C, used = widest_panel_bytes(rows, C);
        const floatX* from = dout + size_t(n) * OC;
        const bool done = in_columns(C, false, [=](int j, int width) {
            const Product p = input_product(rows, C, OC, width, OC, true, dtype_of<real>, width);
            if (!by_dnnl(p, {.c = panel, .a = from, .b = w + j, .bias = nullptr}, used)) return false;
            #pragma omp parallel for schedule(static) num_threads(context.threads)
            for (int i = 0; i < rows; i++) {
                const size_t row = at + size_t(i) * C + j;
                gelu_backward_blocks(dpre + row, panel + size_t(i) * width, pre + row, size_t(width));
            }
            return true;
        });
        if (!done) plain_backward_input(dpre + at, from, w, pre + at, rows, C, OC);
    }
}

static void add_weight_gradient(real* dw, const floatX* dout, const floatX* x, int N, int C, int OC) {
    const bool done = in_columns(C, true, [=](int j, int width) {
        return by_dnnl(weight_product(N, C, OC, width),
                       {.c = dw + j, .a = dout, .b = x + j, .bias = nullptr});
    });
    if (done) return;
    gemm(
        OC, C, N, {dout, 1, size_t(OC)}, {x, size_t(C), 1},
        [=](int i, int j, real* sum, int n) { std::copy_n(dw + size_t(i) * C + j, n, sum); },
        [=](int i, int j, real* sum, int n) { std::copy_n(sum, n, dw + size_t(i) * C + j); });
}

static void add_bias_gradient(real* db, const floatX* dout, int N, int OC) {
    const int threads = context.threads, width = std::clamp((OC / threads + 63) / 64 * 64, 64, 512);
    #pragma omp parallel for schedule(static) num_threads(threads)
    for (int j = 0; j < OC; j += width) {
        const int end = std::min(OC, j + width);
        for (int n = 0; n < N; n++) {
            const floatX* row = dout + size_t(n) * OC;
            #pragma omp simd
            for (int c = j; c < end; c++) db[c] += real(row[c]);
        }
    }
}

void matmul_backward_weight(real* dw, const floatX* dout, const floatX* x, int N, int C, int OC) {
    if (walked(matmul_backward_weight_cost, N, C, OC)) return;
    add_weight_gradient(dw, dout, x, N, C, OC);
}

void bias_backward(real* db, const floatX* dout, int N, int OC) {
    if (!db || walked(bias_backward_cost, N, OC)) return;
    add_bias_gradient(db, dout, N, OC);
}

void matmul_backward_weight_bias(real* dw, real* db, const floatX* dout, const floatX* x, int N, int C,
                                 int OC) {
    if (!db) return matmul_backward_weight(dw, dout, x, N, C, OC);
    if (walked(matmul_backward_weight_bias_cost, N, C, OC)) return;
    add_weight_gradient(dw, dout, x, N, C, OC);
    add_bias_gradient(db, dout, N, OC);
}

// ---------------------------------------------------------------------------------------------------------
// needs of the products: each function names the products of the op above

// The most over the products that `each` calls its argument with: (product, scratch of the caller).
template <class F> static Needs needs_of(int threads, F each) {
    Needs most{.scratch = gemm_scratch(threads), .library = 0};
    if (!dnnl_computes(dtype_of<floatX>)) return most;
    each([&](const Product& p, size_t used) {
        if (p.m == 0 || p.k == 0) return true;
        most.scratch = std::max(most.scratch, used + dnnl_scratch(p, threads));
        most.library = std::max(most.library, dnnl_own_bytes(p, threads));
        return true;
    });
    return most;
}

Needs forward_needs(int threads, int N, int C, int OC, bool bias) {
    return needs_of(threads, [=](auto f) { f(forward_product(N, C, OC, OC, bias), 0); });
}

// f(rows) of a whole panel, and of the last where it has fewer.
template <class F> static void for_each_panel(int N, F f) {
    for (const int rows : {std::min(kPanelRows, N), N % kPanelRows})
        if (rows) f(rows);
}

Needs gelu_forward_needs(int threads, int N, int C, int OC, bool bias) {
    return needs_of(threads, [=](auto f) {
        for_each_panel(N, [&](int rows) {
            in_columns(OC, false, [&](int, int width) {
                return f(forward_product(rows, C, OC, width, bias), 0);
            });
        });
    });
}

Needs backward_input_needs(int threads, int N, int C, int OC) {
    return needs_of(threads, [=](auto f) {
        in_columns(C, false, [&](int, int width) {
            const size_t used = sums_in_panel(OC) ? panel_bytes(N, width) : 0;
            return in_terms(OC, [&](int k, int terms) {
                return f(input_piece(N, C, OC, width, k, terms), used);
            });
        });
    });
}

Needs gelu_backward_input_needs(int threads, int N, int C, int OC) {
    return needs_of(threads, [=](auto f) {
        for_each_panel(N, [&](int rows) {
            const size_t used = widest_panel_bytes(rows, C);
            in_columns(C, false, [&](int, int width) {
                return f(input_product(rows, C, OC, width, OC, true, dtype_of<real>, width), used);
            });
        });
    });
}

Needs backward_weight_needs(int threads, int N, int C, int OC) {
    return needs_of(threads, [=](auto f) {
        in_columns(C, true, [&](int, int width) { return f(weight_product(N, C, OC, width), 0); });
    });
}

}  // namespace cpu
}  // namespace PRECISION
