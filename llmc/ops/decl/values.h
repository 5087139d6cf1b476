// values -- value embeddings (ResFormer: Zhou et al. 2024, arXiv 2410.17897; the gate is nanochat's).
//
//     gate = 3 sigmoid(gatew h)           for each head of keys and values; h: first kGateInputs channels
//     v   += gate table[token]
//
// The table has the columns of this rank's heads, for the whole vocabulary.

struct ValueRows {
    floatX* v;              // (N, KV D) in rows of `stride`
    const floatX* h;        // (N, C)    normed input of attention
    const floatX* gatew;    // (KV, kGateInputs)
    const floatX* table;    // (V, KV D)
    const int32_t* tokens;  // (N)       below V
    int N, C, V, KV, D;     // on GPUs heads have whole packs
    size_t stride;

    constexpr size_t width() const { return size_t(KV) * size_t(D); }
    constexpr size_t table_elements() const { return size_t(N < V ? N : V) * width(); }     // read, at most
};

// v in place.
void values_forward(const ValueRows& t);
inline size_t values_tables(const ValueRows& t) {
    return t.table_elements() * sizeof(floatX) + size_t(t.N + t.KV) * kGateInputs * sizeof(floatX) +
           size_t(t.N) * sizeof(int32_t);
}
inline Cost values_forward_cost(const Target&, const ValueRows& t) {
    const size_t rows = size_t(t.N) * t.width() * sizeof(floatX);
    return {.name = "values_forward", .read = rows + values_tables(t), .written = rows};
}

// drows receives the gradient of the table's row of each token; encoder_backward() adds up equal tokens. t.v
// is the gradient of v, and is not written.
struct ValueRowsGrads {
    floatX* drows;          // (N, KV D) out
    real* dgates;           // (N, KV)   out: of gatew h
    floatX* dh;             // (N, C)    +=, the first kGateInputs channels
    real* dgatew;           // (KV, kGateInputs)  +=, in the order of the tokens
};
void values_backward(const ValueRowsGrads& g, const ValueRows& t);
inline Cost values_backward_cost(const Target& on, const ValueRows& t) {
    const size_t rows = size_t(t.N) * t.width() * sizeof(floatX);
    const size_t gates = size_t(t.N) * size_t(t.KV) * sizeof(real);
    const size_t few = size_t(t.N) * kGateInputs * sizeof(floatX);
    const size_t sums = size_t(t.KV) * kGateInputs * sizeof(real);
    return {.name = "values_backward",
            .read = rows + values_tables(t) + gates + few + sums, .written = rows + gates + few + sums,
            .needs = norm_needs(on, t.N, size_t(t.KV) * kGateInputs)};
}
