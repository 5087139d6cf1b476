// classifier -- softmax cross-entropy over a chunk of rows of logits, in place.
//
//     losses[n] = logsumexp(logits[n, :V]) - logits[n, targets[n]]
//     logits[n] becomes its gradient, (softmax(logits[n]) - onehot(targets[n])) * dloss
//
// Columns V..Vp-1, the padding, become 0. One read and one write of a row.
//
// A vocabulary may be cut into `parts` of Vp columns each, of which `logits` has the one that starts at v0.
// With one part, classifier_forward() and classifier_forward_backward() do everything. With more they write
// the statistics of their part alone: of each row its maximum, its sum of exp(logit - maximum), and the
// target's logit if it lies here. classifier_merge() and classifier_merge_backward() take the statistics of
// all parts and do the rest; with one part they do nothing. All parts come to the same losses.

struct Classifier {
    real* losses;               // (N)       out
    floatX* logits;             // (N, Vp)   in, and out where there is a dloss
    real* stats;                // (N, 3)    out; parts > 1
    const int32_t* targets;     // (N)       of the whole vocabulary
    int N, V, Vp;               // V: columns here that are in use, which may be none
    int v0, parts;
};

// Rows of logits that a model should have at once: enough that the head's products, which read wte twice and
// read and write its gradient once per chunk, do not wait for memory.
int logit_rows();

void classifier_forward(const Classifier& t);                               // losses only
void classifier_forward_backward(const Classifier& t, real dloss);

// stats: (parts, N, 3), in the order of the parts
void classifier_merge(const Classifier& t, const real* stats);              // losses only
void classifier_merge_backward(const Classifier& t, const real* stats, real dloss);
