// muon -- the update of a matrix by its orthogonalized momentum (Jordan et al. 2024,
// kellerjordan.github.io/posts/muon).
//
//     g = grad * scale;   m = mu m + (1 - mu) g;   u = (1 - mu) g + mu m
//     x = u / (1.01 |u| + 1e-7)                    |u|: the Frobenius norm of the whole matrix
//     x = a x + (b A + c A^2) x,  A = x x^T        a few times, by the products below
//     master -= lr (stretch x + decay master)      cautious: decay only where x * master >= 0
//     param   = master, rounded as by adamw.h
//
// The optimizer calls the ops in this order. In memory x is floatX, and its sides are muon_side() of rows and
// cols, with zeros beyond the matrix, which stay zero.

inline int muon_side(const Target& on, int n) {
    const int unit = on.product_unit();
    return (n + unit - 1) / unit * unit;
}

// Matrices of equal shape whose products run as a batch, at most. On GPUs a product of small matrices leaves
// most multiprocessors idle; kMuonBatch elements fill them. On CPUs one product fills the cores.
constexpr size_t kMuonBatch = size_t(1) << 23;
inline int muon_batch(const Target& on, int rows, int cols) {
    const size_t each = size_t(muon_side(on, rows)) * size_t(muon_side(on, cols));
    return on.gpu() && each < kMuonBatch ? int(kMuonBatch / each) : 1;
}

// u and m: (count). A step that is not finite leaves m as it is and sets u = 0.
void muon_momentum(real* u, real* m, const real* grad, const GradientState* state, real mu, size_t count);
inline Cost muon_momentum_cost(const Target&, size_t count) {
    return {.name = "muon_momentum", .read = 2 * count * sizeof(real), .written = 2 * count * sizeof(real)};
}

// The same of rows and columns of a matrix, with the momentum in bf16, rounded as AdamW's m.
struct RoundedMomentum {
    real* u;                    // (rows, cols)
    bfloat16* m;                // (rows, cols)
    const real* grad;           // (rows, cols)
    const GradientState* state;
    real mu;
    int rows, cols;
    int64_t step;               // as in Adamw
    uint64_t seed;
    uint64_t global;            // element (i, j) is global + i stride + j of the whole model
    size_t stride;
};
void muon_rounded_momentum(const RoundedMomentum& m);
inline Cost muon_rounded_momentum_cost(const Target&, const RoundedMomentum& m) {
    const size_t bytes = size_t(m.rows) * size_t(m.cols) * (sizeof(real) + sizeof(bfloat16));
    return {.name = "muon_rounded_momentum", .read = bytes, .written = bytes};
}

void muon_normalize(floatX* x,                  // (muon_side(rows), muon_side(cols))
                    const real* u,              // (slices, rows, cols / slices): columns, slice by slice
                    const double* squares,      // |u|^2
                    int rows, int cols, int slices);
inline Cost muon_normalize_cost(const Target& on, int rows, int cols) {
    const size_t count = size_t(rows) * size_t(cols);
    const size_t written = size_t(muon_side(on, rows)) * size_t(muon_side(on, cols));
    return {.name = "muon_normalize", .read = count * sizeof(real), .written = written * sizeof(floatX)};
}

// out = x x^T where rows <= cols, else x^T x: (side, side), side the smaller. Equal to its transpose in bits.
// On CPUs only the blocks on the diagonal and below are products, on GPUs all are: cuBLASLt has no symmetric
// product, and blocks of a small matrix would leave multiprocessors idle. Of each of `count` matrices, which
// follow one another.
void gram(floatX* out, real* sums,              // workspace of gram_sums() elements for each matrix
          const floatX* x, int rows, int cols, int count);

// out = a x where rows <= cols, else x a, with a of gram()'s shape. Of each of `count` matrices.
inline void muon_product(floatX* out, const floatX* a, const floatX* x, int rows, int cols, int count) {
    if (rows <= cols) matmul_backward_input_batch(out, a, x, rows, cols, rows, count);  // a is symmetric
    else matmul_forward_batch(out, x, a, rows, cols, cols, count);
}

constexpr int kGramRows = 64, kGramWide = 512;      // rows of a block; twice as many from side kGramWide on
inline size_t gram_sums(const Target& on, int rows, int cols) {
    return on.gpu() && rows > cols ? size_t(cols) * size_t(cols) : 0;
}
// Calls f(first row, rows) of each block.
template <class F> void for_each_gram_block(int side, F f) {
    const int most = side < kGramWide ? kGramRows : 2 * kGramRows;
    for (int i = 0; i < side; i += most) f(i, side - i < most ? side - i : most);
}
inline Cost gram_cost(const Target& on, int rows, int cols, int count) {
    const int side = rows < cols ? rows : cols, terms = rows < cols ? cols : rows;
    const size_t s = size_t(side), all = s * size_t(terms);
    double elements = 0;                                // of the blocks
    for_each_gram_block(side, [&](int i, int n) { elements += double(n) * (i + n); });
    if (on.gpu()) elements = double(s * s);
    const Cost one = {.name = "gram", .kind = Kind::Product,
                      .product = {.op = ProductShape::Gram, .m = side, .n = side, .k = terms},
                      .flops = 2 * terms * elements, .read = all * sizeof(floatX),
                      .written = s * s * sizeof(floatX), .needs = on.gpu() ? gpu_scratch(kGemmWorkspace)
                                         : needs::gram(on.threads, rows, cols)};
    return batch_cost(one, count);
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
    real* master;               // (rows, cols)  null: there is none, as in Adamw
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
    const size_t master = m.master ? sizeof(real) : 0, param = m.param ? sizeof(floatX) : 0;
    return {.name = "muon_update", .read = count * ((m.master ? master : param) + sizeof(floatX)),
            .written = count * (master + param)};
}
