// classifier -- softmax cross-entropy over a chunk of rows of logits, in place.
//
//     losses[n] = logsumexp(logits[n, :V]) - logits[n, targets[n]]
//     logits[n] becomes its gradient, (softmax(logits[n]) - onehot(targets[n])) * dloss
//
// Columns V..Vp-1, the padding, become 0. One read and one write of a row.

// losses only
void classifier_forward(real* losses,               // (N)
                        const floatX* logits,       // (N, Vp)
                        const int32_t* targets,     // (N)
                        int N, int V, int Vp);

void classifier_forward_backward(real* losses,               // (N)
                                 floatX* logits,             // (N, Vp)
                                 const int32_t* targets,     // (N)
                                 real dloss, int N, int V, int Vp);
