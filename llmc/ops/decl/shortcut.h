// shortcut -- from the embedding into each block: the stream is scaled and x0 added, in one pass each way.
//
//     in = x + (r + bias)                 the stream, rounded; with r null in is x
//     out = keep in + add x0              keep, add: learned numbers of the block
//
// The gradients of keep and add are sums over tokens and channels: a sum of each token, added in the order of
// the tokens.

struct Mix {
    floatX*       out;      // (N, C)
    floatX*       in;       // (N, C)  out: kept for backward; null: not kept. Not written with r null
    const floatX* x;        // (N, C)
    const floatX* r;        // (N, C)  output of the last matmul, or null
    const floatX* bias;     // (C)     of that matmul, or null
    const floatX* x0;       // (N, C)  the embedded tokens
    const floatX* keep;     // (1)
    const floatX* add;      // (1)
};
void shortcut_forward(const Mix& t, int N, int C);
inline Cost shortcut_forward_cost(const Target&, const Mix& t, int N, int C) {
    const size_t row = size_t(C) * sizeof(floatX), n = size_t(N);
    return {.name = "shortcut_forward", .read = (t.r ? 3 : 2) * n * row + (t.r && t.bias ? row : 0),
            .written = (t.r && t.in ? 2 : 1) * n * row};
}

struct MixGrads {
    floatX* dx;             // (N, C)  on entry the gradient of out, on return of in
    floatX* dx0;            // (N, C)  +=
    real *dkeep, *dadd;     // (1)     +=
};
// in: as forward read or left it.
void shortcut_backward(const MixGrads& g, const floatX* in, const floatX* x0, const floatX* keep,
                       const floatX* add, int N, int C);
inline Cost shortcut_backward_cost(const Target& on, int N, int C) {
    const size_t row = size_t(C) * sizeof(floatX), n = size_t(N);
    return {.name = "shortcut_backward", .read = 4 * n * row, .written = 2 * n * row,
            .needs = norm_needs(on, N, 2)};
}
