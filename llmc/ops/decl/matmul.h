// matmul -- the linear layer, and the linear layer followed by an activation.
//
//     out = x w^T + bias                      weights are (OC, C): a row per output feature
//     act = f(pre), pre = x w^T + bias        f: base/numbers/activations.h. pre (N, P) has P = F features;
//                                             with a gate P = 2F, act = f(pre[:, :F]) pre[:, F:]
//
// The activation reads the stored, rounded pre, on CPUs panel by panel while in cache; activation_forward,
// which recomputation calls, therefore gives the same bits.
//
// REQUIRES: C, OC and F are multiples of the device's product_unit().
//
// Needs: on GPUs cuBLASLt's workspace; on CPUs oneDNN tells (needs.h).

inline int pre_width(Activation f, int F) { return has_gate(f) ? 2 * F : F; }

void matmul_forward(floatX* out,            // (N, OC)
                    const floatX* x,        // (N, C)
                    const floatX* w,        // (OC, C)
                    const floatX* bias,     // (OC), or null
                    int N, int C, int OC);

void matmul_activation_forward(floatX* act,           // (N, F)
                               floatX* pre,           // (N, P)
                               const floatX* x,       // (N, C)
                               const floatX* w,       // (P, C)
                               const floatX* bias,    // (P), or null
                               Activation f, int N, int C, int F);

// amaxes (kFp8Parts), or null: of act.
void activation_forward(floatX* act, const floatX* pre, Activation f, int N, int F, float* amaxes = nullptr);

// dpre (N, P): gradient of pre, given the gradient dact (N, F) of act. Without a gate, dpre may be dact.
// amaxes (kFp8Parts), or null: of dpre.
void activation_backward(floatX* dpre, const floatX* dact, const floatX* pre, Activation f, int N, int F,
                         float* amaxes = nullptr);

// dx = dout w
void matmul_backward_input(floatX* dx,              // (N, C)
                           const floatX* dout,      // (N, OC)
                           const floatX* w,         // (OC, C)
                           int N, int C, int OC);

// Backward through the next linear layer, then the activation: dact = dout w, dpre = gradient of pre given
// dact.
void matmul_activation_backward_input(floatX* dpre,           // (N, P)
                                      floatX* dact,           // (N, F)  workspace: on return undefined
                                      const floatX* dout,     // (N, OC)
                                      const floatX* w,        // (OC, F)
                                      const floatX* pre,      // (N, P)
                                      Activation f, int N, int F, int OC,
                                      real* dbias = nullptr); // (P) += column sums of dpre, or null

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

// ---- `count` products of equal shapes. The matrices of a tensor follow one another in memory.

void matmul_forward_batch(floatX* out,              // (count, N, OC)
                          const floatX* x,          // (count, N, C)
                          const floatX* w,          // (count, OC, C)
                          int N, int C, int OC, int count);

void matmul_backward_input_batch(floatX* dx,            // (count, N, C)
                                 const floatX* dout,    // (count, N, OC)
                                 const floatX* w,       // (count, OC, C)
                                 int N, int C, int OC, int count);

void matmul_backward_weight_batch(real* dw,             // (count, OC, C)
                                  const floatX* dout,   // (count, N, OC)
                                  const floatX* x,      // (count, N, C)
                                  int N, int C, int OC, int count);

// ---- costs. A product (m, n) = (m, k) (k, n) has 2 m n k FLOPs.

inline Cost product_cost(const char* name, const ProductShape& p) {
    return {.name = name, .kind = Kind::Product, .product = p, .flops = 2.0 * p.m * p.n * p.k};
}
// Bytes of partial sums of a bias's gradient on GPUs.
inline size_t bias_sums(int N, int OC) { return group_sums(N, kBiasGroups, size_t(OC)); }
// The same of a kernel that sums its tiles of a product: a row for kTileSumRows rows.
inline constexpr int kTileSumRows = 64;
inline int tile_sum_rows(int N) { return (N + 2 * kTileSumRows - 1) / (2 * kTileSumRows) * 2; }
inline size_t tile_sums(int N, size_t OC) { return size_t(tile_sum_rows(N)) * OC * sizeof(float); }
inline Cost matmul_forward_cost(const Target& on, int N, int C, int OC, bool bias) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    Cost cost = product_cost("matmul_forward", {.m = N, .n = OC, .k = C, .bias = bias});
    cost.read = (n * c + oc * c + (bias ? oc : 0)) * sizeof(floatX);
    cost.written = n * oc * sizeof(floatX);
    cost.needs = on.gpu() ? gpu_scratch(kGemmWorkspace) : needs::product_forward(on.threads, N, C, OC, bias);
    return cost;
}

// Of the ops with an activation, by Activation.
struct ActivationNames { const char *alone, *backward, *product, *product_backward; };
#define NAMES(value, word, formula, gate) \
    {word "_forward", word "_backward", "matmul_" word "_forward", "matmul_" word "_backward_input"},
inline constexpr ActivationNames activation_names[] = {ACTIVATIONS(NAMES)};
#undef NAMES
inline Cost matmul_activation_forward_cost(const Target& on, Activation f, int N, int C, int F, bool bias) {
    const size_t n = size_t(N), c = size_t(C), p = size_t(pre_width(f, F));
    Cost cost = product_cost(activation_names[int(f)].product, {.m = N, .n = int(p), .k = C, .bias = bias,
                                                                .activation = f});
    cost.read = (n * c + p * c + (bias ? p : 0)) * sizeof(floatX);
    cost.written = n * (p + size_t(F)) * sizeof(floatX);
    cost.passes = n * (p + size_t(F)) * sizeof(floatX);
    cost.needs = on.gpu() ? gpu_scratch(kGemmWorkspace)
                          : needs::product_activation_forward(on.threads, f, N, C, F, bias);
    return cost;
}
inline Cost activation_forward_cost(const Target& on, Activation f, int N, int F, bool amaxes) {
    const size_t n = size_t(N), p = size_t(pre_width(f, F));
    const Cost cost = {.name = activation_names[int(f)].alone, .read = n * p * sizeof(floatX),
                       .written = n * size_t(F) * sizeof(floatX)};
    return with_amaxes(cost, on, amaxes, n * size_t(F));
}
inline Cost activation_backward_cost(const Target& on, Activation f, int N, int F, bool amaxes) {
    const size_t n = size_t(N), p = size_t(pre_width(f, F));
    const Cost cost = {.name = activation_names[int(f)].backward,
                       .read = n * (p + size_t(F)) * sizeof(floatX), .written = n * p * sizeof(floatX)};
    return with_amaxes(cost, on, amaxes, n * p);
}
inline Cost matmul_backward_input_cost(const Target& on, int N, int C, int OC) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    Cost cost = product_cost("matmul_backward_input",
                             {.op = ProductShape::Input, .m = N, .n = C, .k = OC});
    cost.read = (n * oc + oc * c) * sizeof(floatX);
    cost.written = n * c * sizeof(floatX);
    cost.needs = on.gpu() ? gpu_scratch(kGemmWorkspace) : needs::product_backward_input(on.threads, N, C, OC);
    return cost;
}
inline Cost matmul_activation_backward_input_cost(const Target& on, Activation f, int N, int F, int OC,
                                                  bool dbias = false) {
    const size_t n = size_t(N), oc = size_t(OC), p = size_t(pre_width(f, F));
    Cost cost = product_cost(activation_names[int(f)].product_backward,
                             {.op = ProductShape::Input, .m = N, .n = F, .k = OC, .activation = f});
    cost.read = (n * oc + oc * size_t(F) + n * p) * sizeof(floatX);
    cost.written = n * p * sizeof(floatX);
    // cuBLASLt's epilogue knows GELU, and reads pre beside the product
    cost.passes = n * ((f == Activation::Gelu ? p : size_t(F) + 2 * p) + (dbias ? p : 0)) * sizeof(floatX);
    cost.needs = on.gpu() ? gpu_scratch(kGemmWorkspace)
                          : needs::product_activation_backward_input(on.threads, N, F, OC);
    cost.read += dbias ? p * sizeof(real) : 0;
    cost.written += dbias ? p * sizeof(real) : 0;
    // tuning times GELU's with the sums
    if (on.gpu() && (dbias || f == Activation::Gelu))
        cost.needs = gpu_scratch(std::max({kGemmWorkspace, bias_sums(N, int(p)), tile_sums(N, p)}));
    return cost;
}
inline Cost matmul_backward_weight_cost(const Target& on, int N, int C, int OC) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    Cost cost = product_cost("matmul_backward_weight",
                             {.op = ProductShape::Weight, .m = OC, .n = C, .k = N});
    cost.read = n * (oc + c) * sizeof(floatX) + oc * c * sizeof(real);
    cost.written = oc * c * sizeof(real);
    cost.needs = on.gpu() ? gpu_scratch(kGemmWorkspace)
                          : needs::product_backward_weight(on.threads, N, C, OC);
    return cost;
}
inline Cost matmul_backward_weight_bias_cost(const Target& on, int N, int C, int OC) {
    Cost cost = matmul_backward_weight_cost(on, N, C, OC);
    cost.name = "matmul_backward_weight_bias";
    cost.product.bias = true;
    cost.read += size_t(OC) * sizeof(real);
    cost.written += size_t(OC) * sizeof(real);
    cost.passes = size_t(N) * size_t(OC) * sizeof(floatX);
    // on a GPU the bias's gradient waits in scratch for its sum, by whatever kernels
    if (on.gpu())
        cost.needs = gpu_scratch(std::max(kGemmWorkspace + scratch_size(size_t(OC) * sizeof(float)),
                                          bias_sums(N, OC)));
    return cost;
}
inline Cost batch_cost(Cost one, int count) {
    const uint64_t n = uint64_t(count);
    if (count > 1) one.product.batch = count;
    one.flops *= count;
    one.read *= n;
    one.written *= n;
    return one;
}
inline Cost matmul_forward_batch_cost(const Target& on, int N, int C, int OC, int count) {
    return batch_cost(matmul_forward_cost(on, N, C, OC, false), count);
}
inline Cost matmul_backward_input_batch_cost(const Target& on, int N, int C, int OC, int count) {
    return batch_cost(matmul_backward_input_cost(on, N, C, OC), count);
}
inline Cost matmul_backward_weight_batch_cost(const Target& on, int N, int C, int OC, int count) {
    return batch_cost(matmul_backward_weight_cost(on, N, C, OC), count);
}
inline Cost bias_backward_cost(const Target& on, int N, int OC) {
    const size_t n = size_t(N), oc = size_t(OC);
    return {.name = "bias_backward", .read = n * oc * sizeof(floatX) + oc * sizeof(real),
            .written = oc * sizeof(real), .needs = on.gpu() ? gpu_scratch(bias_sums(N, OC)) : Needs{}};
}
