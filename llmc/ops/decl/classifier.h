// classifier -- softmax cross-entropy over a chunk of rows of logits, in place.
//
//     losses[n] = logsumexp(logits[n, :V]) - logits[n, targets[n]]
//     logits[n] becomes its gradient, (softmax(logits[n]) - onehot(targets[n])) * dloss;   columns V..Vp-1, the padding, become 0
//
// One read and one write of a row.

// losses only
void classifier_forward(real* losses, const floatX* logits, const int32_t* targets, int N, int V, int Vp);    // (N) (N, Vp) (N)

void classifier_forward_backward(real* losses, floatX* logits, const int32_t* targets, real dloss, int N, int V, int Vp);
