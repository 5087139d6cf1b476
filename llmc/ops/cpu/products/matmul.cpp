// Products go to oneDNN where it is the fastest on this CPU, else to the blocked loops of gemm_plain.h, which
// convert BF16 to FP32 as they pack. An activation and its derivative follow panel by panel.
#include <algorithm>

#include "llmc/ops/cpu/products/activate.h"
#include "llmc/ops/cpu/products/dnnl.h"
#include "llmc/ops/cpu/products/gemm_plain.h"
#include "llmc/ops/ops.h"

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
// f(first column, columns). Returns false if f does.
// In BF16 whole rows of C are faster (AMX, 3072 columns: 9.0 against 11.5 ms), but where C is weights.
template <class F> static bool in_columns(int C, bool weights, F f) {
    const int panels = kRounds && !weights ? 1 : (C + 1023) / 1024, width = (C / panels + 63) / 64 * 64;
    for (int j = 0; j < C; j += width)
        if (!f(j, std::min(width, C - j))) return false;
    return true;
}

// Long sums are slow as well (the head's 50304, FP32: 120 of 155 GFLOP/s, in sixths 160; BF16: 400 and 590).
// They are cut by terms: f(first term, terms).
static constexpr int kTerms = 8192;
template <class F> static bool in_terms(int OC, F f) {
    const int cuts = std::max(1, OC / kTerms), terms = (OC / cuts + 63) / 64 * 64;
    for (int k = 0; k < OC; k += terms)
        if (!f(k, std::min(terms, OC - k))) return false;
    return true;
}

// Computes the product by oneDNN, which takes no empty matrix, and returns true; false where the plain loops
// have to. `used`: scratch of the caller.
static bool by_dnnl(const Product& p, const ProductTensors& t, size_t used = 0) {
    if (p.m == 0 || (p.k == 0 && p.accumulate)) return true;
    if (!dnnl_computes(p.in)) return false;
    use_scratch("matmul", used + dnnl_scratch(p, context.threads));
    dnnl_product(p, t, context.scratch + used, context.threads);
    return true;
}

// Most rows of a panel with the columns of in_columns(): oneDNN computes such a panel at full speed, and
// caches still hold the panel when the activation reads.
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

// Columns [first, first + width) of out, of OC in a row. An activation f, where act is not null, follows in
// the cache: width is F, and the other half of out is complete.
static void plain_forward(floatX* out, const floatX* x, const floatX* w, const floatX* bias, int N, int C,
                          int OC, int first, int width, floatX* act = nullptr, Activation f = {}) {
    gemm(N, width, C, {x, size_t(C), 1}, {w + size_t(first) * C, 1, size_t(C)}, from_zero(),
         [=](int i, int j, real* sum, int n) {
             floatX* to = out + size_t(i) * OC + first + j;
             if (bias)
                 for (int k = 0; k < n; k++) to[k] = floatX(sum[k] + real(bias[first + j + k]));
             else
                 for (int k = 0; k < n; k++) to[k] = floatX(sum[k]);
             if (act) activate(act + size_t(i) * width + j, to, f, size_t(n), width);
         });
}

void matmul_forward(floatX* out, const floatX* x, const floatX* w, const floatX* bias, int N, int C, int OC) {
    if (walked(matmul_forward_cost, N, C, OC, bias != nullptr)) return;
    const Product p = forward_product(N, C, OC, OC, bias != nullptr);
    if (by_dnnl(p, {.c = out, .a = x, .b = w, .bias = bias})) return;
    plain_forward(out, x, w, bias, N, C, OC, 0, OC);
}

static void plain_activation_forward(floatX* act, floatX* pre, const floatX* x, const floatX* w,
                                     const floatX* bias, Activation f, int N, int C, int F) {
    const int P = pre_width(f, F);
    if (P > F) plain_forward(pre, x, w, bias, N, C, P, F, F);
    plain_forward(pre, x, w, bias, N, C, P, 0, F, act, f);
}

// The products of a panel of `width` features: calls product(first column of pre, columns) for each. A panel
// of all features is one product, else each half of pre has its own.
template <class F> static bool for_each_half(int j, int width, int features, int P, F product) {
    if (width == features) return product(0, P);
    for (int at = j; at < P; at += features)
        if (!product(at, width)) return false;
    return true;
}

void matmul_activation_forward(floatX* act, floatX* pre, const floatX* x, const floatX* w, const floatX* bias,
                               Activation f, int N, int C, int F) {
    if (walked(matmul_activation_forward_cost, f, N, C, F, bias != nullptr)) return;
    if (!fused_by_dnnl()) return plain_activation_forward(act, pre, x, w, bias, f, N, C, F);
    const int P = pre_width(f, F);
    for (int n = 0; n < N; n += kPanelRows) {
        const int rows = std::min(kPanelRows, N - n);
        const floatX* from = x + size_t(n) * C;
        floatX *to = pre + size_t(n) * P, *out = act + size_t(n) * F;
        const bool done = in_columns(F, false, [=](int j, int width) {
            const bool computed = for_each_half(j, width, F, P, [=](int at, int columns) {
                return by_dnnl(forward_product(rows, C, P, columns, bias != nullptr),
                               {.c = to + at, .a = from, .b = w + size_t(at) * C,
                                .bias = bias ? bias + at : nullptr});
            });
            if (!computed) return false;
            #pragma omp parallel for schedule(static) num_threads(context.threads)
            for (int i = 0; i < rows; i++)
                activate(out + size_t(i) * F + j, to + size_t(i) * P + j, f, size_t(width), F);
            return true;
        });
        if (!done) plain_activation_forward(out, to, from, w, bias, f, rows, C, F);
    }
}

// ---------------------------------------------------------------------------------------------------------
// backward

// use(i, j, sum, n): takes elements j to j + n - 1 of row i of dout w.
template <class Use>
static void plain_backward_input(const floatX* dout, const floatX* w, int N, int C, int OC, Use use) {
    gemm(N, C, OC, {dout, size_t(OC), 1}, {w, size_t(C), 1}, from_zero(), use);
}

// A sum that is cut adds up in a panel, and is rounded once.
static bool sums_in_panel(int OC) { return kRounds && OC >= 2 * kTerms; }

static Product input_panel(int N, int C, int OC, int width, int k, int terms) {
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
            return by_dnnl(input_panel(N, C, OC, width, k, terms),
                           {.c = sum, .a = dout + k, .b = w + size_t(k) * C + j, .bias = nullptr},
                           apart ? panel_bytes(N, width) : 0);
        });
        if (!apart || !computed) return computed;
        const Unrecorded rounding;
        round_to(dx, panel, size_t(N) * size_t(C));         // in BF16 the columns are all of them
        return true;
    });
    if (done) return;
    plain_backward_input(dout, w, N, C, OC, [=](int i, int j, real* sum, int n) {
        floatX* to = dx + size_t(i) * C + j;
        for (int k = 0; k < n; k++) to[k] = floatX(sum[k]);
    });
}

// Of the panels of matmul_activation_backward_input(), which are rounded after the product with f'.
static size_t widest_panel_bytes(int rows, int C) {
    int widest = 0;
    in_columns(C, false, [&](int, int width) { return widest = std::max(widest, width); });
    return panel_bytes(rows, widest);
}

static void plain_activation_backward_input(floatX* dpre, const floatX* dout, const floatX* w,
                                            const floatX* pre, Activation f, int N, int F, int OC) {
    const size_t P = size_t(pre_width(f, F));
    plain_backward_input(dout, w, N, F, OC, [=](int i, int j, real* sum, int n) {
        const size_t at = size_t(i) * P + size_t(j);
        activate_backward(dpre + at, sum, pre + at, f, size_t(n), F);
    });
}

static void fused_activation_backward_input(floatX* dpre, const floatX* dout, const floatX* w,
                                            const floatX* pre, Activation f, int N, int F, int OC) {
    const size_t P = size_t(pre_width(f, F));
    real* panel = reinterpret_cast<real*>(context.scratch);
    for (int n = 0; n < N; n += kPanelRows) {
        const int rows = std::min(kPanelRows, N - n);
        const size_t at = size_t(n) * P, used = widest_panel_bytes(rows, F);
        const floatX* from = dout + size_t(n) * OC;
        const bool done = in_columns(F, false, [=](int j, int width) {
            const Product p = input_product(rows, F, OC, width, OC, true, dtype_of<real>, width);
            if (!by_dnnl(p, {.c = panel, .a = from, .b = w + j, .bias = nullptr}, used)) return false;
            #pragma omp parallel for schedule(static) num_threads(context.threads)
            for (int i = 0; i < rows; i++) {
                const size_t row = at + size_t(i) * P + size_t(j);
                activate_backward(dpre + row, panel + size_t(i) * width, pre + row, f, size_t(width), F);
            }
            return true;
        });
        if (!done) plain_activation_backward_input(dpre + at, from, w, pre + at, f, rows, F, OC);
    }
}

void matmul_activation_backward_input(floatX* dpre, floatX*, const floatX* dout, const floatX* w,
                                      const floatX* pre, Activation f, int N, int F, int OC, real* dbias) {
    if (walked(matmul_activation_backward_input_cost, f, N, F, OC, dbias != nullptr)) return;
    if (fused_by_dnnl()) fused_activation_backward_input(dpre, dout, w, pre, f, N, F, OC);
    else plain_activation_backward_input(dpre, dout, w, pre, f, N, F, OC);
    const Unrecorded sums;
    bias_backward(dbias, dpre, N, pre_width(f, F));
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

void add_rows(real* out, const floatX* rows, int N, int columns, size_t stride) {
    const int threads = context.threads, width = std::clamp((columns / threads + 63) / 64 * 64, 64, 512);
    #pragma omp parallel for schedule(static) num_threads(threads)
    for (int j = 0; j < columns; j += width) {
        const int end = std::min(columns, j + width);
        for (int n = 0; n < N; n++) {
            const floatX* row = rows + size_t(n) * stride;
            #pragma omp simd
            for (int c = j; c < end; c++) out[c] += real(row[c]);
        }
    }
}

void matmul_backward_weight(real* dw, const floatX* dout, const floatX* x, int N, int C, int OC) {
    if (walked(matmul_backward_weight_cost, N, C, OC)) return;
    add_weight_gradient(dw, dout, x, N, C, OC);
}

void bias_backward(real* db, const floatX* dout, int N, int OC) {
    if (!db || walked(bias_backward_cost, N, OC)) return;
    add_rows(db, dout, N, OC, size_t(OC));
}

void matmul_backward_weight_bias(real* dw, real* db, const floatX* dout, const floatX* x, int N, int C,
                                 int OC) {
    if (!db) return matmul_backward_weight(dw, dout, x, N, C, OC);
    if (walked(matmul_backward_weight_bias_cost, N, C, OC)) return;
    add_weight_gradient(dw, dout, x, N, C, OC);
    add_rows(db, dout, N, OC, size_t(OC));
}

// ---------------------------------------------------------------------------------------------------------
// x x^T or x^T x

// Rows i to i + n - 1, up to the diagonal.
static Product gram_product(int i, int n, int rows, int cols) {
    const bool tall = rows > cols;
    return {.m = n, .n = i + n, .k = std::max(rows, cols), .in = dtype_of<floatX>, .out = dtype_of<floatX>,
            .a_transposed = tall, .b_transposed = !tall, .bias = false, .accumulate = false,
            .a_stride = cols, .b_stride = cols, .c_stride = std::min(rows, cols)};
}

static void mirror(floatX* out, int side) {
    constexpr int kTile = 32;
    #pragma omp parallel for schedule(dynamic) num_threads(context.threads)
    for (int i = 0; i < side; i += kTile)
        for (int j = i; j < side; j += kTile)
            for (int row = i; row < std::min(side, i + kTile); row++)
                for (int col = std::max(j, row + 1); col < std::min(side, j + kTile); col++)
                    out[size_t(row) * size_t(side) + col] = out[size_t(col) * size_t(side) + row];
}

static void gram_of_one(floatX* out, const floatX* x, int rows, int cols) {
    const bool tall = rows > cols;
    const int side = std::min(rows, cols), terms = std::max(rows, cols);
    const size_t down = tall ? 1 : size_t(cols), along = tall ? size_t(cols) : 1;   // x, as (side, terms)
    for_each_gram_block(side, [=](int first, int n) {
        floatX* to = out + size_t(first) * size_t(side);
        const floatX* from = x + size_t(first) * down;
        const Product p = gram_product(first, n, rows, cols);
        if (by_dnnl(p, {.c = to, .a = from, .b = x, .bias = nullptr})) return;
        gemm(n, first + n, terms, {from, down, along}, {x, along, down}, from_zero(),
             [=](int i, int j, real* sum, int count) {
                 for (int k = 0; k < count; k++) to[size_t(i) * size_t(side) + j + k] = floatX(sum[k]);
             });
    });
    mirror(out, side);
}

// ---------------------------------------------------------------------------------------------------------
// batches: one after another, as one product fills the cores

void gram(floatX* out, real*, const floatX* x, int rows, int cols, int count) {
    if (walked(gram_cost, rows, cols, count)) return;
    const size_t side = size_t(std::min(rows, cols)), all = size_t(rows) * size_t(cols);
    for (size_t i = 0; i < size_t(count); i++) gram_of_one(out + i * side * side, x + i * all, rows, cols);
}

void matmul_forward_batch(floatX* out, const floatX* x, const floatX* w, int N, int C, int OC, int count) {
    if (walked(matmul_forward_batch_cost, N, C, OC, count)) return;
    const Unrecorded each;
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    for (size_t i = 0; i < size_t(count); i++)
        matmul_forward(out + i * n * oc, x + i * n * c, w + i * oc * c, nullptr, N, C, OC);
}

void matmul_backward_input_batch(floatX* dx, const floatX* dout, const floatX* w, int N, int C, int OC,
                                 int count) {
    if (walked(matmul_backward_input_batch_cost, N, C, OC, count)) return;
    const Unrecorded each;
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    for (size_t i = 0; i < size_t(count); i++)
        matmul_backward_input(dx + i * n * c, dout + i * n * oc, w + i * oc * c, N, C, OC);
}

void matmul_backward_weight_batch(real* dw, const floatX* dout, const floatX* x, int N, int C, int OC,
                                  int count) {
    if (walked(matmul_backward_weight_batch_cost, N, C, OC, count)) return;
    const Unrecorded each;
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    for (size_t i = 0; i < size_t(count); i++)
        matmul_backward_weight(dw + i * oc * c, dout + i * n * oc, x + i * n * c, N, C, OC);
}

// ---------------------------------------------------------------------------------------------------------
// needs of the products: each function names the products of the op above

}  // namespace cpu

using namespace cpu;

// The most over the products that `each` calls its argument with: (product, scratch of the caller).
template <class F> static Needs needs_of(int threads, F each) {
    if (!dnnl_computes(dtype_of<floatX>)) return {.scratch = gemm_scratch(threads), .library = 0};
    Needs most;
    each([&](const Product& p, size_t used) {
        if (p.m == 0 || p.k == 0) return true;
        most.scratch = std::max(most.scratch, used + dnnl_scratch(p, threads));
        most.library = std::max(most.library, dnnl_own_bytes(p, threads));
        return true;
    });
    return most;
}

Needs needs::product_forward(int threads, int N, int C, int OC, bool bias) {
    return needs_of(threads, [=](auto f) { f(forward_product(N, C, OC, OC, bias), 0); });
}

// f(rows) of a whole panel, and of the last where it has fewer.
template <class F> static void for_each_panel(int N, F f) {
    for (const int rows : {std::min(kPanelRows, N), N % kPanelRows})
        if (rows) f(rows);
}

Needs needs::product_activation_forward(int threads, Activation f, int N, int C, int F, bool bias) {
    const int P = pre_width(f, F);
    return needs_of(threads, [=](auto add) {
        for_each_panel(N, [&](int rows) {
            in_columns(F, false, [&](int j, int width) {
                return for_each_half(j, width, F, P, [&](int, int columns) {
                    return add(forward_product(rows, C, P, columns, bias), 0);
                });
            });
        });
    });
}

Needs needs::product_backward_input(int threads, int N, int C, int OC) {
    return needs_of(threads, [=](auto f) {
        in_columns(C, false, [&](int, int width) {
            const size_t used = sums_in_panel(OC) ? panel_bytes(N, width) : 0;
            return in_terms(OC, [&](int k, int terms) {
                return f(input_panel(N, C, OC, width, k, terms), used);
            });
        });
    });
}

Needs needs::product_activation_backward_input(int threads, int N, int F, int OC) {
    return needs_of(threads, [=](auto add) {
        for_each_panel(N, [&](int rows) {
            const size_t used = widest_panel_bytes(rows, F);
            in_columns(F, false, [&](int, int width) {
                return add(input_product(rows, F, OC, width, OC, true, dtype_of<real>, width), used);
            });
        });
    });
}

Needs needs::gram(int threads, int rows, int cols) {
    return needs_of(threads, [=](auto f) {
        for_each_gram_block(std::min(rows, cols), [&](int i, int n) {
            f(gram_product(i, n, rows, cols), 0);
        });
    });
}

Needs needs::product_backward_weight(int threads, int N, int C, int OC) {
    return needs_of(threads, [=](auto f) {
        in_columns(C, true, [&](int, int width) { return f(weight_product(N, C, OC, width), 0); });
    });
}

// oneDNN's BF16 products of some numbers of rows want more than those of the most rows and of one, which are
// walked (16 threads, 256 x 4100 x 1030: 3.2 MB instead of 2.4). FP32's do not depend on the rows.
Needs needs::any_rows(const Target& t) {
    const bool varies = !t.gpu() && kRounds && dnnl_computes(dtype_of<floatX>);
    return {.scratch = varies ? gemm_scratch(t.threads) : 0, .library = 0};
}

}  // namespace PRECISION
