// layernorm -- residual add and norm in one pass: LayerNorm (Ba, Kiros, Hinton 2016, arXiv 1607.06450) or
// RMSNorm (Zhang, Sennrich 2019, arXiv 1910.07467).
//
//     x1 = x + (r + bias)
//     y  = (x1 - mean) * rstd * w + b     mean and rstd = 1 / sqrt(var + eps) over the C channels of a token
//     y  = x1 * rstd * w + b              RMSNorm: rstd = 1 / sqrt(mean of x1^2 + eps)
//
// A null pointer leaves a tensor out: w is a gain of 1, b and bias are 0.
//
// On GPUs the backward pass reads rows of more than kGpuLayernormBytes (kGpuRmsnormBytes without has_mean and
// db) twice, and for dbias it reads rows of dx of more than kGpuDbiasBytes again.
// REQUIRES: on GPUs a row has at most kGpuNormBytes (ops/gpu_rows.h).

constexpr size_t kGpuDbiasBytes = 16384, kGpuLayernormBytes = 24576, kGpuRmsnormBytes = 32768;

struct Layernorm {
    NormKind      kind = NormKind::LayerNorm;
    floatX*       x1;      // (N, C)  out: the residual stream, rounded; may be x. Input of backward
    floatX*       y;       // (N, C)  out
    real*         mean;    // (N)     out, input of backward; unused without has_mean(kind)
    real*         rstd;    // (N)     out, input of backward
    const floatX* x;       // (N, C)
    const floatX* r;       // (N, C)  output of the last matmul; null: x1 is not written, y is the norm of x
    const floatX* bias;    // (C)     of that matmul, added after tensor parallelism's sum; null with r
    const floatX* w;       // (C)     gain, or null
    const floatX* b;       // (C)     shift, or null
    real          eps = real(1e-5);
    float*        amaxes = nullptr;     // (kFp8Parts)  out: of y
};

// Statistics of the rounded x1, variance from differences to the mean. So a second call with x = x1, r = null
// gives the same bits.
void layernorm_forward(const Layernorm& t, int N, int C);
inline Cost layernorm_forward_cost(const Target& on, const Layernorm& t, int N, int C) {
    const size_t row = size_t(C) * sizeof(floatX), n = size_t(N);
    const size_t vectors = (t.r && t.bias) + (t.w != nullptr) + (t.b != nullptr);
    const Cost cost = {.name = t.r ? "layernorm_forward with residual" : "layernorm_forward",
                       .read = (t.r ? 2 : 1) * n * row + vectors * row,
                       .written = (t.r ? 2 : 1) * n * row + (has_mean(t.kind) ? 2 : 1) * n * sizeof(real)};
    return with_amaxes(cost, on, t.amaxes, n * size_t(C));
}

struct NormGrads {
    floatX* dx;             // (N, C)  += the gradient of x1 through y; then dx is that of the stream
    real*   dw = nullptr;   // (C)     +=, or null
    real*   db = nullptr;   // (C)     +=, or null
    real*   dbias = nullptr;    // (C) += column sums of dx on return, as bias_backward() adds them; or null
};
// t: as in forward; y, x, r, bias, b and amaxes are not used.
void layernorm_backward(const NormGrads& g, const floatX* dy, const Layernorm& t, int N, int C);
inline Cost layernorm_backward_cost(const Target& on, const NormGrads& g, const Layernorm& t, int N, int C) {
    const size_t row = size_t(C) * sizeof(floatX), n = size_t(N);
    const size_t outputs = size_t(g.dw != nullptr) + (g.db != nullptr) + (g.dbias != nullptr);
    const size_t sums = outputs * size_t(C) * sizeof(real);
    const size_t again = on.gpu() && g.dbias && row > kGpuDbiasBytes ? n * row : 0;
    return {.name = "layernorm_backward",
            .read = 3 * n * row + again + (t.w ? row : 0) + (has_mean(t.kind) ? 2 : 1) * n * sizeof(real) +
                    sums,
            .written = n * row + sums,
            .needs = outputs ? norm_needs(on, N, outputs * size_t(C)) : Needs{}};
}

// out = x + (r + bias): the bits of layernorm_forward's x1. out may be x; bias may be null.
void add_residual(floatX* out, const floatX* x, const floatX* r, const floatX* bias, int N, int C);
inline Cost add_residual_cost(const Target&, bool bias, int N, int C) {
    const size_t row = size_t(C) * sizeof(floatX), n = size_t(N);
    return {.name = "add_residual", .read = 2 * n * row + (bias ? row : 0), .written = n * row};
}
