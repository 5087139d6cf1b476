// classifier -- softmax cross-entropy over a chunk of rows of logits, in place.
//
//     losses[n] = logsumexp(logits[n, :V]) - logits[n, targets[n]]
//     logits[n] becomes its gradient, (softmax(logits[n]) - onehot(targets[n])) * dloss
//
// Columns V..Vp-1, the padding, become 0. One read and one write of a row. With a cap c, the logits of the
// formulas are y = cap(l) of those in memory:
//
//     tanh    y = c tanh(l / c)              dy/dl = 1 - (y / c)^2
//     sqrt    y = c l / sqrt(l^2 + c^2)      dy/dl = (1 - (y / c)^2)^(3/2)
//
// A vocabulary may be cut into `slices` of Vp columns each, of which `logits` has the one that starts at v0.
// With one slice, classifier_forward() and classifier_forward_backward() do everything. With more they write
// the statistics of their slice alone: of each row its maximum (on a GPU times log2(e)), its sum of
// exp(logit - maximum), and the target's logit if in this slice. classifier_merge() and
// classifier_merge_backward() read the statistics of all slices and complete losses and gradients; with one
// slice both return at once. Every slice computes the same losses.

struct Classifier {
    real* losses;               // (N)       out
    floatX* logits;             // (N, Vp)   in, and out where there is a dloss
    real* stats;                // (N, 3)    out; slices > 1
    const int32_t* targets;     // (N)       of the whole vocabulary
    int N, V, Vp;               // V: used columns here, 0 or more
    int v0, slices;
    real cap = 0;               // 0: none
    SoftcapKind cap_kind = SoftcapKind::Tanh;
};

// Recommended rows of logits per chunk: enough that the head's products, which read wte twice and read and
// write its gradient once per chunk, are compute-bound.
int logit_rows();
inline constexpr int kLogitRowsOfGpu = 4096;

void classifier_forward(const Classifier& t);                               // losses only
void classifier_forward_backward(const Classifier& t, real dloss);
// One slice writes a loss per row; several slices write three statistics per row instead.
inline Cost classifier_forward_cost(const Target&, const Classifier& t) {
    const size_t N = size_t(t.N), result = (t.slices > 1 ? 3 : 1) * sizeof(real);
    return {.name = "classifier_forward", .read = N * (size_t(t.V) * sizeof(floatX) + sizeof(int32_t)),
            .written = N * result};
}
inline Cost classifier_forward_backward_cost(const Target& on, const Classifier& t) {
    Cost c = classifier_forward_cost(on, t);
    c.name = "classifier_forward_backward";
    if (t.slices > 1) return c;
    c.written += size_t(t.N) * size_t(t.Vp) * sizeof(floatX);
    if (!on.gpu()) c.needs = needs::classifier(on.threads, t.V);
    return c;
}

// The likeliest token, whatever the cap: values[n] = the largest of logits[n, :V], columns[n] = v0 + the
// first column with this value. Without a column here: the lowest finite number, and -1.
void classifier_largest(real* values, int32_t* columns, const Classifier& t);         // (N) each
inline Cost classifier_largest_cost(const Target&, const Classifier& t) {
    const size_t N = size_t(t.N);
    return {.name = "classifier_largest", .read = N * size_t(t.V) * sizeof(floatX),
            .written = N * (sizeof(real) + sizeof(int32_t))};
}

// stats: (slices, N, 3), in the order of the slices
void classifier_merge(const Classifier& t, const real* stats);              // losses only
void classifier_merge_backward(const Classifier& t, const real* stats, real dloss);
inline Cost classifier_merge_cost(const Target&, const Classifier& t) {
    const size_t N = t.slices > 1 ? size_t(t.N) : 0;
    const size_t of_row = (2 * size_t(t.slices) + 1) * sizeof(real);     // the target's logit of one slice
    return {.name = "classifier_merge", .read = N * (of_row + sizeof(int32_t)), .written = N * sizeof(real)};
}
inline Cost classifier_merge_backward_cost(const Target& on, const Classifier& t) {
    Cost c = classifier_merge_cost(on, t);
    const size_t N = t.slices > 1 ? size_t(t.N) : 0;
    c.name = "classifier_merge_backward";
    c.read += N * size_t(t.V) * sizeof(floatX);
    c.written += N * size_t(t.Vp) * sizeof(floatX);
    return c;
}
