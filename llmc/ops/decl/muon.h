// muon -- the update of a matrix by its orthogonalized momentum (Jordan et al. 2024,
// kellerjordan.github.io/posts/muon).
//
//     g = grad * scale;   m = mu m + (1 - mu) g;   u = (1 - mu) g + mu m
//     x = u / (1.01 |u| + 1e-7)                    |u|: the Frobenius norm of the whole matrix
//     x = a x + (b A + c A^2) x,  A = x x^T        a few times, by products of matmul.h
//     master -= lr (stretch x + decay master)      cautious: decay only where x * master >= 0
//     param   = master, rounded as by adamw.h
//
// The optimizer calls these in order; x is floatX, as the products are.

// u and m: (count). A step that is not finite leaves m as it is and sets u = 0.
void muon_momentum(real* u, real* m, const real* grad, const GradientState* state, real mu, size_t count);
inline Cost muon_momentum_cost(const Target&, size_t count) {
    return {.name = "muon_momentum", .read = 2 * count * sizeof(real), .written = 2 * count * sizeof(real)};
}

void muon_normalize(floatX* x,                  // (rows, cols)
                    const real* u,              // (parts, rows, cols / parts): columns, part after part
                    const double* squares,      // |u|^2
                    int rows, int cols, int parts);
inline Cost muon_normalize_cost(const Target&, int rows, int cols) {
    const size_t count = size_t(rows) * size_t(cols);
    return {.name = "muon_normalize", .read = count * sizeof(real), .written = count * sizeof(floatX)};
}

// out = a x + b y, rounded once; out may be x or y
void linear_combination(floatX* out, real a, const floatX* x, real b, const floatX* y, size_t count);
inline Cost linear_combination_cost(const Target&, size_t count) {
    return {.name = "linear_combination", .read = 2 * count * sizeof(floatX),
            .written = count * sizeof(floatX)};
}

// A rank's rows and columns of a matrix.
struct MuonUpdate {
    floatX* param;              // (rows, cols)  null if param is master itself (floatX == real)
    real* master;               // (rows, cols)
    const floatX* x;            // (rows, cols)  in rows of x_stride
    size_t x_stride;
    const GradientState* state;
    int rows, cols;
    real lr, stretch, decay;
    int64_t step;               // as in Adamw
    bool stochastic, cautious;
    uint64_t seed;
    uint64_t global;            // element (i, j) is global + i stride + j of the whole model
    size_t stride;
};
void muon_update(const MuonUpdate& m);
inline Cost muon_update_cost(const Target&, const MuonUpdate& m) {
    const size_t count = size_t(m.rows) * size_t(m.cols);
    return {.name = "muon_update", .read = count * (sizeof(real) + sizeof(floatX)),
            .written = count * (sizeof(real) + (m.param ? sizeof(floatX) : 0))};
}
