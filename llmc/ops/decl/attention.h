// attention -- causal softmax attention, blocked with an online softmax: no (T, T) matrix ever in memory
// (Dao et al. 2022, arXiv 2205.14135; backward recomputes the probabilities from lse).
//
//     s[t, u] = q[t] . k[u] / sqrt(D)          for positions u <= t
//     out[t]  = sum_u exp(s[t, u] - lse[t]) v[u],    lse[t] = log sum_u exp(s[t, u])
//
// Rows of q, k and v are read in place from wherever they lie: a packed (N, 3C) matrix, a cache of past keys.
// The position of query row t is q_offset + t, that of key row u is k_offset + u.

struct AttentionDims {
    int B, Tq, Tk;                   // sequences; rows of queries, of keys in each: b's start at b Tq, b Tk
    int NH, D;                       // heads, channels of a head; head h is at channels [hD, hD + D) of a row
    size_t q_stride, kv_stride;      // elements from row to row of q, and of k and v
    int q_offset, k_offset;          // REQUIRES: every query sees at least one key
};

void attention_forward(floatX* out,                              // (B Tq, NH D)
                       real* lse,                                // (B, NH, Tq)
                       const floatX* q, const floatX* k, const floatX* v, const AttentionDims& d);

// dq, dk, dv have the rows and strides of q, k, v, and are set. out, lse: as forward left them.
struct AttentionBackward {
    floatX *dq, *dk, *dv;
    const floatX *dout, *out;        // (B Tq, NH D)
    const real* lse;                 // (B, NH, Tq)
    const floatX *q, *k, *v;
};
void attention_backward(const AttentionBackward& t, const AttentionDims& d);
