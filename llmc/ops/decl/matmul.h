// matmul -- the linear layer, and the linear layer followed by GELU.
//
//     out = x w^T + bias                      weights are (OC, C): a row per output feature
//     act = gelu(pre), pre = x w^T + bias     gelu(v) = v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)))
//
// GELU reads the stored, rounded pre-activation, panel by panel while it is in cache; gelu_forward, which
// recomputation calls, therefore gives the same bits.

void matmul_forward(floatX* out,            // (N, OC)
                    const floatX* x,        // (N, C)
                    const floatX* w,        // (OC, C)
                    const floatX* bias,     // (OC), or null
                    int N, int C, int OC);

void matmul_gelu_forward(floatX* act,           // (N, OC)
                         floatX* pre,           // (N, OC)
                         const floatX* x,       // (N, C)
                         const floatX* w,       // (OC, C)
                         const floatX* bias,    // (OC), or null
                         int N, int C, int OC);

void gelu_forward(floatX* act, const floatX* pre, size_t count);

// dx = dout w
void matmul_backward_input(floatX* dx,              // (N, C)
                           const floatX* dout,      // (N, OC)
                           const floatX* w,         // (OC, C)
                           int N, int C, int OC);

// dpre = (dout w) * gelu'(pre): through the matmul whose input was gelu(pre)
void matmul_gelu_backward_input(floatX* dpre,           // (N, C)
                                const floatX* dout,     // (N, OC)
                                const floatX* w,        // (OC, C)
                                const floatX* pre,      // (N, C)
                                int N, int C, int OC);

// dw += dout^T x, accumulated in real
void matmul_backward_weight(real* dw,               // (OC, C)
                            const floatX* dout,     // (N, OC)
                            const floatX* x,        // (N, C)
                            int N, int C, int OC);

// db += column sums of dout
void bias_backward(real* db,                // (OC), or null: nothing is done
                   const floatX* dout,      // (N, OC)
                   int N, int OC);

// both at once
void matmul_backward_weight_bias(real* dw,               // (OC, C)
                                 real* db,               // (OC), or null: as matmul_backward_weight()
                                 const floatX* dout,     // (N, OC)
                                 const floatX* x,        // (N, C)
                                 int N, int C, int OC);

// ---- costs. A product (m, n) = (m, k) (k, n) has 2 m n k FLOPs.

inline Cost product_cost(const char* name, int m, int n, int k, bool bias = false) {
    return {.name = name, .kind = Kind::Product, .dims = {m, n, k, bias}, .flops = 2.0 * m * n * k};
}
inline Cost matmul_forward_cost(const Target& on, int N, int C, int OC, bool bias) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    Cost cost = product_cost("matmul_forward", N, OC, C, bias);
    cost.read = (n * c + oc * c + (bias ? oc : 0)) * sizeof(floatX), cost.written = n * oc * sizeof(floatX);
    cost.needs = needs::product_forward(on, N, C, OC, bias);
    return cost;
}
inline Cost matmul_gelu_forward_cost(const Target& on, int N, int C, int OC, bool bias) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    Cost cost = product_cost("matmul_gelu_forward", N, OC, C, bias);
    cost.read = (n * c + oc * c + (bias ? oc : 0)) * sizeof(floatX);
    cost.written = 2 * n * oc * sizeof(floatX);
    cost.needs = needs::product_gelu_forward(on, N, C, OC, bias);
    return cost;
}
inline Cost gelu_forward_cost(const Target&, size_t count) {
    return {.name = "gelu_forward", .read = count * sizeof(floatX), .written = count * sizeof(floatX)};
}
inline Cost matmul_backward_input_cost(const Target& on, int N, int C, int OC) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    Cost cost = product_cost("matmul_backward_input", N, C, OC);
    cost.read = (n * oc + oc * c) * sizeof(floatX), cost.written = n * c * sizeof(floatX);
    cost.needs = needs::product_backward_input(on, N, C, OC);
    return cost;
}
inline Cost matmul_gelu_backward_input_cost(const Target& on, int N, int C, int OC) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    Cost cost = product_cost("matmul_gelu_backward_input", N, C, OC);
    cost.read = (n * oc + oc * c + n * c) * sizeof(floatX), cost.written = n * c * sizeof(floatX);
    cost.needs = needs::product_gelu_backward_input(on, N, C, OC);
    return cost;
}
inline Cost matmul_backward_weight_cost(const Target& on, int N, int C, int OC) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    Cost cost = product_cost("matmul_backward_weight", OC, C, N);
    cost.read = n * (oc + c) * sizeof(floatX) + oc * c * sizeof(real), cost.written = oc * c * sizeof(real);
    cost.needs = needs::product_backward_weight(on, N, C, OC, false);
    return cost;
}
inline Cost matmul_backward_weight_bias_cost(const Target& on, int N, int C, int OC) {
    Cost cost = matmul_backward_weight_cost(on, N, C, OC);
    cost.name = "matmul_backward_weight_bias", cost.dims[3] = true;
    cost.read += size_t(OC) * sizeof(real), cost.written += size_t(OC) * sizeof(real);
    cost.needs = needs::product_backward_weight(on, N, C, OC, true);
    return cost;
}
inline Cost bias_backward_cost(const Target& on, int N, int OC) {
    const size_t n = size_t(N), oc = size_t(OC);
    return {.name = "bias_backward", .read = n * oc * sizeof(floatX) + oc * sizeof(real),
            .written = oc * sizeof(real), .needs = needs::bias_backward(on, N, OC)};
}
