// layernorm -- residual add and LayerNorm in one pass (Ba, Kiros, Hinton 2016, arXiv 1607.06450).
//
//     x1 = x + (r + bias)
//     y  = (x1 - mean) * rstd * w + b     mean and rstd = 1 / sqrt(var + 1e-5) over the C channels of a token

struct Layernorm {
    floatX*       x1;      // (N, C)  out: the residual stream, rounded; may be x
    floatX*       y;       // (N, C)  out
    real*         mean;    // (N)     out, kept for backward
    real*         rstd;    // (N)     out, kept for backward
    const floatX* x;       // (N, C)
    const floatX* r;       // (N, C)  output of the last matmul; null: x1 is not written, y is the norm of x
    const floatX* bias;    // (C)     of that matmul, added after tensor parallelism's sum; null with r
    const floatX* w;       // (C)     gain
    const floatX* b;       // (C)     shift
};

// Statistics of the rounded x1, variance from differences to the mean. So a second call with x = x1, r = null
// gives the same bits.
void layernorm_forward(const Layernorm& t, int N, int C);
inline Cost layernorm_forward_cost(const Target&, const Layernorm& t, int N, int C) {
    const size_t row = size_t(C) * sizeof(floatX), n = size_t(N);
    return {.name = t.r ? "layernorm_forward with residual" : "layernorm_forward",
            .read = (t.r ? 2 : 1) * n * row + (t.r ? 3 : 2) * row,
            .written = (t.r ? 2 : 1) * n * row + 2 * n * sizeof(real)};
}

// dx += the gradient of x1 through y;  dw += and db +=.
void layernorm_backward(floatX* dx, real* dw, real* db, const floatX* dy, const floatX* x1, const floatX* w,
                        const real* mean, const real* rstd, int N, int C);
inline Cost layernorm_backward_cost(const Target& on, int N, int C) {
    const size_t row = size_t(C) * sizeof(floatX), n = size_t(N), sums = 2 * size_t(C) * sizeof(real);
    return {.name = "layernorm_backward", .read = 3 * n * row + row + 2 * n * sizeof(real) + sums,
            .written = n * row + sums, .needs = needs::layernorm_backward(on, N, C)};
}

// out = x + (r + bias): the bits of layernorm_forward's x1. out may be x.
void add_residual(floatX* out, const floatX* x, const floatX* r, const floatX* bias, int N, int C);
inline Cost add_residual_cost(const Target&, int N, int C) {
    const size_t row = size_t(C) * sizeof(floatX), n = size_t(N);
    return {.name = "add_residual", .read = 2 * n * row + row, .written = n * row};
}
