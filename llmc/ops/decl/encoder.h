// encoder -- token and position embedding.
//
//     out[n] = wte[tokens[n]] + wpe[position]          without wpe (null): out[n] = wte[tokens[n]]
//     position = t0 + n % T, or positions[n]
//
// This rank's slice of wte has rows v0 .. v0 + V - 1. Tokens of other slices give an all-zero row, without
// wpe, so that summing over slices yields each embedding once.

struct Encoder {
    const int32_t* tokens;    // (N)
    int v0, V;                // first row of wte here, number of rows here
    int N, T, C;              // tokens, tokens of a sequence, channels
    int t0;                   // position of a sequence's first token
    const int32_t* positions = nullptr;     // (N), below T

    constexpr int position(int n) const { return positions ? positions[n] : t0 + n % T; }
};

void encoder_forward(floatX* out,           // (N, C)
                     const floatX* wte,     // (V, C)
                     const floatX* wpe,     // (maxT, C), or null
                     const Encoder& e);
// Positions are read once for all sequences.
inline Cost encoder_forward_cost(const Target&, const Encoder& e, bool has_wpe) {
    const size_t N = size_t(e.N), row = size_t(e.C) * sizeof(floatX);
    const int positions = e.T < e.N ? e.T : e.N;
    const size_t T = has_wpe ? size_t(positions) : 0;
    return {.name = "encoder_forward", .read = (N + T) * row + N * sizeof(int32_t), .written = N * row};
}

// dwte += and dwpe +=, in the order of the tokens: deterministic, without atomics.
void encoder_backward(real* dwte,           // (V, C)
                      real* dwpe,           // (maxT, C), or null
                      const floatX* dout,   // (N, C)
                      const Encoder& e);
// GPUs radix-sort (token, place) pairs in two alternating buffers of N pairs. Each bucket of kEncoderBucket
// sorted tokens leaves one partial row.
inline constexpr int kEncoderTile = 1024, kEncoderDigits = 256, kEncoderBucket = 32;
inline size_t encoder_sums(int N, int C) {
    const size_t tiles = size_t((N + kEncoderTile - 1) / kEncoderTile);
    const size_t buckets = size_t((N + kEncoderBucket - 1) / kEncoderBucket);
    return 4 * scratch_size(size_t(N) * sizeof(int32_t)) +
           scratch_size(size_t(kEncoderDigits) * tiles * sizeof(int32_t)) +
           scratch_size(buckets * size_t(C) * sizeof(float));
}
// An upper bound: every token has another row of wte.
inline Cost encoder_backward_cost(const Target& on, const Encoder& e, bool has_wpe) {
    const size_t N = size_t(e.N), V = size_t(e.V), C = size_t(e.C);
    const int positions = e.T < e.N ? e.T : e.N;
    const size_t T = has_wpe ? size_t(positions) : 0;
    const size_t rows = (N < V ? N : V) + T;
    return {.name = "encoder_backward",
            .read = N * C * sizeof(floatX) + rows * C * sizeof(real) + N * sizeof(int32_t),
            .written = rows * C * sizeof(real),
            .needs = on.gpu() ? gpu_scratch(encoder_sums(e.N, e.C)) : Needs{}};
}
