// rotary -- norms of queries and keys, and their rotation by the position (RoPE: Su et al. 2021, arXiv
// 2104.09864), in one pass over packed rows of q, k and v, in place. v stays as it is.
//
//     norm      y = x rstd g                       rstd = 1 / sqrt(mean of x^2 + eps), over a head
//     rotation  y1 = x1 c - x2 s, y2 = x2 c + x1 s     x1, x2: the halves of a head;  c, s: of the position
//
// The norm comes before the rotation or after; either may be absent. Position of token n: t0 + n % T, or
// positions[n].

constexpr int kCpuRotaryChunk = 256;          // tokens, whose sums wait in scratch
constexpr int kGpuRotaryUnit = int(2 * 16 / sizeof(floatX));      // each half of a head has whole packs

struct Rotary {
    floatX* qkv;            // (N, stride)     in and out: NH heads of queries, then KV of keys, D each
    floatX* before;         // (N, (NH+KV) D)  out: q and k as they came, for backward; null: not kept
    const real* table;      // (maxT, 2, D/2)  cos/sin table of positions; null: no rotation
    const floatX *q_gain, *k_gain;      // (D) g; both null: 1
    QkNorm norm;
    real eps;
    int N, T, NH, KV, D;    // D is even, on GPUs a multiple of kGpuRotaryUnit, at most kGpuHeadMost
    size_t stride;
    int t0;
    const int32_t* positions = nullptr;     // (N)

    constexpr int position(int n) const { return positions ? positions[n] : t0 + n % T; }
    constexpr size_t heads() const { return size_t(NH) + size_t(KV); }
};
void rotary_forward(const Rotary& t);

// dqkv: on entry the gradients of forward's outputs q and k, on return the gradients of forward's inputs.
// `before`: as forward left it, read if there is a norm. dq_gain, dk_gain (D) +=, where not null.
void rotary_backward(floatX* dqkv, real* dq_gain, real* dk_gain, const Rotary& t);

// With gains.
inline size_t rotary_scratch(int D) { return size_t(kCpuRotaryChunk) * 2 * size_t(D) * sizeof(real); }
inline Needs rotary_needs(const Target& on, int N, int D) {
    if (on.gpu()) return norm_needs(on, N, 2 * size_t(D));
    return {.scratch = rotary_scratch(D), .library = 0};
}
// Bytes of the cos/sin table and of the gains.
inline size_t rotary_tables(const Rotary& t) {
    const size_t positions = size_t(t.T < t.N ? t.T : t.N), D = size_t(t.D);
    return (t.table ? positions * D * sizeof(real) : 0) + (t.q_gain ? 2 * D * sizeof(floatX) : 0);
}
inline Cost rotary_forward_cost(const Target&, const Rotary& t) {
    const size_t bytes = size_t(t.N) * t.heads() * size_t(t.D) * sizeof(floatX);
    return {.name = "rotary_forward", .read = bytes + rotary_tables(t),
            .written = bytes * (t.before ? 2 : 1)};
}
inline Cost rotary_backward_cost(const Target& on, const Rotary& t) {
    const size_t bytes = size_t(t.N) * t.heads() * size_t(t.D) * sizeof(floatX);
    const size_t gains = t.q_gain ? 2 * size_t(t.D) * sizeof(real) : 0;
    return {.name = "rotary_backward",
            .read = bytes * (t.norm != QkNorm::None ? 2 : 1) + rotary_tables(t) + gains,
            .written = bytes + gains,
            .needs = t.q_gain ? rotary_needs(on, t.N, t.D) : Needs{}};
}
