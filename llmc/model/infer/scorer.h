// Scoring: the log probability of tokens of many sequences.
//
// Sequences may share a prefix: one pass computes the prefixes and keeps their keys and values per block,
// later passes compute the tokens behind. Logits are computed for scored tokens alone.
#pragma once
#include "llmc/model/infer/forward_only.h"
#include "llmc/model/score_pass.h"

namespace PRECISION::inline infer {

struct Scorer {
    ForwardOnly own;                   // own.rows: most tokens of a pass, so also of the kept prefixes
    int logit_rows;                    // rows of logits in memory at once
    std::vector<floatX*> kept;         // per block (rows, 2K)
    floatX* joined;                    // (joined_rows(), 2K)
    floatX* picked;                    // (logit_rows, C)    rows before scored tokens
    floatX* logits;                    // (logit_rows, Vp)
    real *stats, *losses;              // (tp, logit_rows, 3), (logit_rows)
    real* values;                      // (tp + 1, logit_rows)   the largest logits; this rank's are last
    int32_t* columns;                  // (tp + 1, logit_rows)   the columns of these logits
    int32_t* tables;                   // (5, rows)              see table()

    Scorer(const Dims& d, const Axis& tp, const Part& part);
    void add_to(ArenaOf arena);
    size_t reduction_bytes() const;    // of the largest reduction over tp, for tp's staging
    void ready();                      // after Arena::allocate(): fills tables

    // Most rows of keys, prefixes included, of the sequences of a segment. One prefix of `rows` tokens with a
    // few continuations fits.
    static constexpr int kJoined = 4;
    int joined_rows() const { return kJoined * own.rows; }

    // Runs one chunk. The chunk that ends returns the scores of the pass, on every rank of tp; others none.
    // REQUIRES: N <= own.rows; of segments behind prefixes B (t0 + T) <= joined_rows(); positions below maxT.
    // The pass of a group's prefixes has to run first, in each chunk.
    template <class W> std::vector<TokenScore> forward(W& weights, const ScorePass& p, int chunk = 0);

private:
    void check_sizes(const ScorePass& p) const;
    void bring(const ScorePass& p);        // copies the tables to the device
    // A table of the pass in memory of the device: 0 tokens, 1 from, 2 rows, 3 targets, 4 positions.
    const int32_t* table(int i) const { return tables + size_t(i) * size_t(own.rows); }
    void keep(int l, const ScorePass& p);
    template <class W> std::vector<TokenScore> score(W& weights, const ScorePass& p);
    std::vector<TokenScore> read_scores(const ScorePass& p, size_t n0, int count);
};

template <class W>
std::vector<TokenScore> Scorer::forward(W& weights, const ScorePass& p, int c) {
    const Dims& d = own.d;
    const int N = p.N();
    check_sizes(p);
    const Chunk chunk = own.part.chunks[size_t(c)];
    bring(p);
    SharedKeys shared = {.segments = p.segments, .kept = nullptr, .from = table(1), .joined = joined};
    Span span{.B = 1, .T = N, .positions = table(4), .tokens = table(0),
              .x0 = own.x0(chunk, N), .shared = &shared};
    Stream stream = own.enter(weights, chunk, {.tokens = table(0), .v0 = d.v0, .V = d.Vp, .N = N, .T = d.maxT,
                                               .C = d.C, .t0 = 0, .positions = table(4)});
    for (int l = chunk.begin; l < chunk.end; l++) {
        const Walking at(&Walk::block, own.part.layers[size_t(l)]);
        span.window = d.kind.window(own.part.layers[size_t(l)]);
        shared.kept = kept[size_t(l)];
        const auto& w = weights.block(l);
        if (p.is_prefix && chunk.ends && l + 1 == chunk.end)        // nobody reads its output
            own.block.qkv(w, own.acts, stream, own.scratch, span);
        else
            stream = own.block.forward(w, own.acts, stream, own.scratch, span);
        if (p.is_prefix) keep(l, p);
    }
    if (chunk.ends && p.rows.empty()) return {};
    own.leave(weights, chunk, stream, N);
    return chunk.ends ? score(weights, p) : std::vector<TokenScore>();
}

template <class W> std::vector<TokenScore> Scorer::score(W& weights, const ScorePass& p) {
    const Dims& d = own.d;
    const Axis& tp = own.tp;
    const int N = p.N();
    const HeadTensors<floatX> w = weights.head();
    const floatX* h = tp.all_gather(own.scratch.h, own.head.lnf, own.stream_count(N));
    std::vector<TokenScore> scores;
    for (size_t n0 = 0; n0 < p.rows.size(); n0 += size_t(logit_rows)) {
        beat();
        const int count = int(std::min(size_t(logit_rows), p.rows.size() - n0));
        ops::encoder_forward(picked, h, nullptr, {.tokens = table(2) + n0, .v0 = 0, .V = N, .N = count,
                                                  .T = count, .C = d.C, .t0 = 0});
        ops::matmul_forward(logits, picked, w.w, w.b, count, d.C, d.Vp);
        const size_t last = size_t(tp.size) * size_t(logit_rows);
        const ops::Classifier t = {.losses = losses, .logits = logits,
                                   .stats = tp.size == 1 ? nullptr : stats + size_t(tp.index * count * 3),
                                   .targets = table(3) + n0, .N = count, .V = d.vocab_here(), .Vp = d.Vp,
                                   .v0 = d.v0, .slices = tp.size, .cap = real(d.kind.softcap),
                                   .cap_kind = d.kind.softcap_kind};
        ops::classifier_forward(t);
        ops::classifier_merge(t, tp.all_gather(stats, t.stats, size_t(3 * count)));
        ops::classifier_largest(values + last, columns + last, t);
        const std::vector<TokenScore> more = read_scores(p, n0, count);
        scores.insert(scores.end(), more.begin(), more.end());
    }
    return scores;
}

}  // namespace PRECISION::infer
