// adamw -- gradient norm, clipping, and the AdamW update (Loshchilov, Hutter 2017, arXiv 1711.05101) of a
// flat buffer.
//
//     g = grad * scale
//     m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//     u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
//     master -= lr (u + decay * master)                   cautious: decay only where u * master >= 0
//               (Chen et al. 2025, arXiv 2510.12402)
//     param   = master, rounded to nearest, or stochastically: away from zero with the probability
//               (discarded bits) / 2^16
//     m, v      stay as they are, or lie in bf16, rounded stochastically
// Without masters param is read, updated in full precision, and rounded stochastically.

// Norm and clipping of a step's gradients, on the device: the update reads the state there, so that the
// device never waits for the host.
struct GradientState {
    real norm;       // L2 norm over all parameters, before clipping
    real scale;      // factor of the gradients: min(1, clip / norm); 1 if clip is 0
    int32_t finite;  // 0: loss or norm is NaN or infinite; the update changes nothing
};

// sums[i] = the sum of squares of block i of grad, of kNormBlock elements (the last may be shorter)
inline constexpr size_t kNormBlock = 65536;
inline size_t norm_blocks(size_t count) { return (count + kNormBlock - 1) / kNormBlock; }
void sum_of_squares(real* sums, const real* grad, size_t count);
inline Cost sum_of_squares_cost(const Target&, size_t count) {
    return {.name = "sum_of_squares", .read = count * sizeof(real),
            .written = norm_blocks(count) * sizeof(real)};
}

// norm = sqrt(*squares). The step's loss has to be finite as well.
void gradient_state(GradientState* state, const double* squares, const double* loss, real clip);
inline Cost gradient_state_cost(const Target&) {
    return {.name = "gradient_state", .read = 2 * sizeof(double), .written = sizeof(GradientState)};
}

// Elements of one tensor inside the flat buffers. Element i has model index
// global + i / cols * stride + i % cols, which keys its random numbers. cols >= count means contiguous.
struct AdamwTensor {
    size_t start, count;      // in the flat buffers
    uint64_t global;
    real lr, decay;           // weight decay, 0 for vectors
    size_t cols = SIZE_MAX, stride = 0;
};

// The stream of the random words by which a step rounds moments: m by the upper half of an element's word, v
// by the lower. Weights have the stream `step`.
HOST_DEVICE inline uint64_t moments_stream(int64_t step) { return uint64_t(1) << 63 | uint64_t(step); }

struct Adamw {
    floatX* param;            // out, rounded from master; null if param is master itself (floatX == real)
    real* master;             // null: there is none (floatX is bf16)
    void *m, *v;              // of type `moments`
    const real* grad;
    const GradientState* state;
    real beta1, beta2, eps;
    int64_t step;             // t, counted from 1; steps that were skipped count
    bool stochastic, cautious = false;
    uint64_t seed;
    DType moments = dtype_of<real>;         // or BF16
};
void adamw_update(const Adamw& a, const AdamwTensor* tensors, size_t count);
inline Cost adamw_update_cost(const Target&, const Adamw& a, const AdamwTensor* tensors, size_t count) {
    size_t elements = 0;
    for (size_t i = 0; i < count; i++) elements += tensors[i].count;
    const size_t master = a.master ? sizeof(real) : 0, param = a.param ? sizeof(floatX) : 0;
    const size_t moments = 2 * size_of(a.moments), weight = a.master ? master : param;  // of an element
    return {.name = "adamw_update", .read = elements * (sizeof(real) + weight + moments),
            .written = elements * (master + param + moments)};
}
