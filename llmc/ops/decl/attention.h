// attention -- causal softmax attention, blocked with an online softmax: no (T, T) matrix ever in memory
// (Dao et al. 2022, arXiv 2205.14135; backward recomputes the probabilities from lse).
//
//     s[t, u] = q[t] . k[u] * scale            query t sees keys u <= t; with a window w, t - w < u <= t;
//                                              the default scale is 1 / sqrt(D)
//     out[t]  = sum_u exp(s[t, u] - lse[t]) v[u],    lse[t] = log sum_u exp(s[t, u])
//
// Rows of q, k and v are read in place: a packed matrix, a cache of past keys. Query row t has position
// q_offset + t, key row u has position k_offset + u. Several heads of queries may share a head of keys and
// values (GQA: Ainslie et al. 2023, arXiv 2305.13245): query head h reads key head h / group().
//
// If sequences pack documents, a query sees only keys of its own document.
//
// REQUIRES: on GPUs D is a multiple of kGpuHeadUnit, at most kGpuHeadMost.

constexpr int kGpuHeadUnit = 8, kGpuHeadMost = 256;

// Documents in B sequences. positions: index of each row of queries within its document; ends: of each row of
// keys the row index, in the sequence of keys, one past the document. Null: one document per sequence.
struct Documents {
    const int32_t* positions = nullptr;     // (B Tq)
    const int32_t* ends = nullptr;          // (B Tk)
};

struct AttentionDims {
    int B, Tq, Tk;                   // sequences; rows of queries and of keys in each: those of sequence b
                                     // begin at rows b Tq and b Tk
    int NH, D;                       // heads, channels of a head; head h is at channels [hD, hD + D) of a row
    size_t q_stride, kv_stride;      // elements from row to row of q, and of k and v
    int q_offset, k_offset;          // REQUIRES: every query sees at least one key
    double scale = 0;                // 0: D^-1/2
    int key_heads = 0;               // a divisor of NH; 0: NH
    int window = 0;                  // tokens that a query sees, itself the last; 0: all before it
    Documents documents = {};        // REQUIRES: both tables, or none

    constexpr int KV() const { return key_heads ? key_heads : NH; }
    constexpr int group() const { return key_heads ? NH / key_heads : 1; }
    constexpr int apart() const { return q_offset - k_offset; }

    constexpr bool fits_documents() const { return !documents.positions == !documents.ends; }
    // windowed(): the window hides a key from some query. bounded(): a window or documents may hide keys
    // before a query.
    constexpr bool windowed() const { return window > 0 && window < apart() + Tq; }
    constexpr bool bounded() const { return windowed() || documents.positions; }
    // first_key(t): first key row visible to query row t. end_query(u): one past the last query row that sees
    // key row u. Both ignore documents.
    constexpr int first_key(int t) const {
        const int first = apart() + t - window + 1;
        return window > 0 && first > 0 ? first : 0;
    }
    constexpr int end_query(int u) const {
        const int end = u - apart() + window;
        if (window == 0 || end > Tq) return Tq;
        return end > 0 ? end : 0;
    }
    // The same in sequence b, with its documents.
    constexpr int first_key(int t, int b) const {
        const int first = first_key(t), row = b * Tq + t;
        const int own = documents.positions ? apart() + t - documents.positions[row] : 0;
        return first > own ? first : own;
    }
    constexpr int end_query(int u, int b) const {
        const int end = end_query(u), own = documents.ends ? documents.ends[b * Tk + u] - apart() : Tq;
        if (own < 0) return 0;
        return end < own ? end : own;
    }
};

void attention_forward(floatX* out,                              // (B Tq, NH D)
                       real* lse,                                // (B, NH, Tq)
                       const floatX* q, const floatX* k, const floatX* v, const AttentionDims& d);

// Number of visible (query, key) pairs over all heads and sequences, as if each sequence were one document.
inline double attention_pairs(const AttentionDims& d) {
    // first + (first + 1) + ..., n terms
    const auto series = [](double first, double n) { return n > 0 ? n * first + n * (n - 1) / 2 : 0; };
    const int rising = std::clamp(d.Tk - d.apart(), 0, d.Tq);
    const double seen = series(d.apart() + 1, rising) + double(d.Tq - rising) * d.Tk;
    // the first query with keys before its window
    const int from = d.window > d.apart() ? d.window - d.apart() : 0;
    const double hidden = d.window > 0 ? series(d.first_key(from), d.Tq - from) : 0;
    return (seen - hidden) * d.B * d.NH;
}
// Of D terms for each pair forward has two products, backward five with the recomputed scores.
inline Cost attention_cost(const char* name, const AttentionDims& d, bool backward) {
    return {.name = name, .kind = Kind::Attention,
            .attention = {.B = d.B, .Tq = d.Tq, .Tk = d.Tk, .NH = d.NH, .D = d.D, .apart = d.apart(),
                          .window = d.windowed() ? d.window : 0,
                          .documents = d.documents.positions != nullptr, .backward = backward},
            .flops = 2 * (backward ? 5 : 2) * d.D * attention_pairs(d)};
}
inline Cost attention_forward_cost(const Target& on, const AttentionDims& d) {
    const size_t head = size_t(d.D) * sizeof(floatX), B = size_t(d.B), NH = size_t(d.NH), KV = size_t(d.KV());
    Cost c = attention_cost("attention_forward", d, false);
    c.read = B * (size_t(d.Tq) * NH + size_t(2 * (d.Tk - d.first_key(0))) * KV) * head;
    c.written = B * size_t(d.Tq) * NH * (head + sizeof(real));
    if (!on.gpu()) c.needs = needs::attention(on.threads, d.Tq, d.Tk, d.D, d.group());
    return c;
}

// dq, dk, dv have the rows and strides of q, k, v, and are set. out, lse: as forward left them. dbias: the
// gradient of a bias of q, k and v, where nothing follows its addition: the column sums of dq, dk and dv.
struct AttentionBackward {
    floatX *dq, *dk, *dv;
    const floatX *dout, *out;        // (B Tq, NH D)
    const real* lse;                 // (B, NH, Tq)
    const floatX *q, *k, *v;
    real* dbias = nullptr;           // ((NH + 2 KV) D) +=, or null
};
// On GPUs a block of 128 rows leaves at most this many partial sums of each column.
constexpr int kAttentionSums = 2;
// Bytes of them: those of dq, then in the same place those of dk and dv.
inline size_t attention_sums(const AttentionDims& d) {
    const auto rows = [&](int T) { return size_t(d.B) * kAttentionSums * (size_t(T + 127) / 128); };
    return std::max(rows(d.Tq) * size_t(d.NH), rows(d.Tk) * 2 * size_t(d.KV())) * size_t(d.D) * sizeof(float);
}
void attention_backward(const AttentionBackward& t, const AttentionDims& d);
inline Cost attention_backward_cost(const Target& on, const AttentionDims& d, bool bias = false) {
    const size_t head = size_t(d.D) * sizeof(floatX), B = size_t(d.B), NH = size_t(d.NH), KV = size_t(d.KV());
    const size_t queries = size_t(d.Tq) * NH, keys = size_t(2 * d.Tk) * KV;
    Cost c = attention_cost("attention_backward", d, true);
    const size_t sums = bias ? (NH + 2 * KV) * size_t(d.D) * sizeof(real) : 0;
    c.read = B * ((3 * queries + keys) * head + queries * sizeof(real)) + sums;
    c.written = B * (queries + keys) * head + sums;
    const size_t deltas = scratch_size(B * queries * sizeof(float)), partial = bias ? attention_sums(d) : 0;
    c.needs = on.gpu() ? gpu_scratch(deltas + partial)
                       : needs::attention(on.threads, d.Tq, d.Tk, d.D, d.group());
    return c;
}
