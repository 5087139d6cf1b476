// Scoring: the log probability of tokens of many sequences.
//
// Sequences may share a beginning: one pass computes the beginnings and keeps their keys and values per
// block, later passes compute what follows. Logits are computed for scored tokens alone.
#pragma once
#include "llmc/model/gpt.h"
#include "llmc/model/score_pass.h"

namespace PRECISION {

struct Scorer {
    Dims d;
    Axis tp;
    Part part;
    Block block;
    int rows;                          // most tokens of one pass, and of the beginnings that are kept
    int logit_rows;                    // rows of logits at once
    std::vector<floatX*> kept;         // per block (rows, 2K)
    floatX* joined;                    // (joined_rows(), 2K)
    std::vector<BlockActs> acts;       // one, shared by all blocks
    BlockScratch scratch;
    EmbedActs embedded = {};
    HeadActs head = {};
    floatX* received = nullptr;        // with the shortcut: the incoming message, or the embedded tokens
    floatX* sent;                      // the outgoing message
    floatX* picked;                    // (logit_rows, C)    rows before scored tokens
    floatX* logits;                    // (logit_rows, Vp)
    real *stats, *losses;              // (tp, logit_rows, 3), (logit_rows)
    real* values;                      // (tp + 1, logit_rows)   the largest logits, this rank's last
    int32_t* columns;                  // (tp + 1, logit_rows)   their columns
    int32_t* tables;                   // (4, rows)          tokens, from, rows, targets of a pass

    Scorer(const Dims& d, const Axis& tp, const Part& part);
    Scorer(const Scorer&) = delete;
    void add_to(Arena& arena);
    size_t reduction_bytes() const;    // of the largest reduction over tp, for tp's staging
    void ready();                      // after Arena::allocate()

    // Most rows of keys, beginnings included, of the sequences of a pass. One beginning of `rows` tokens with
    // a few continuations fits.
    static constexpr int kJoined = 4;
    int joined_rows() const { return kJoined * rows; }

    // As in Gpt: the incoming message before a chunk that does not embed, the outgoing message after a chunk
    // that does not end.
    floatX* input() { return d.kind.shortcut ? received : acts[0].x; }
    floatX* output() { return sent; }
    size_t stream_count(int N) const { return size_t(Slice(tp, N).n) * size_t(d.C); }
    size_t message_count(int N) const { return stream_count(N) * (d.kind.shortcut ? 2 : 1); }

    // Runs one chunk. The chunk that ends returns the scores of the pass, on every rank of tp; others none.
    // REQUIRES: B T <= rows, B (t0 + T) <= joined_rows(), positions below maxT; a pass with a beginning comes
    // after the pass of its beginning, in this chunk.
    template <class W> std::vector<TokenScore> forward(W& weights, const ScorePass& p, int chunk = 0);

private:
    void bring(const ScorePass& p);
    const int32_t* table(int i) const { return tables + size_t(i) * size_t(rows); }
    template <class W>
    void run_block(W& weights, const ScorePass& p, int l, const floatX* x0, Stream& stream);
    template <class W> std::vector<TokenScore> score(W& weights, const ScorePass& p);
    std::vector<TokenScore> read_scores(const ScorePass& p, size_t n0, int count);
};

template <class W>
void Scorer::run_block(W& weights, const ScorePass& p, int l, const floatX* x0, Stream& stream) {
    const Walking at(&Walk::block, part.layers[size_t(l)]);
    const SharedKeys shared = {.kept = kept[size_t(l)], .from = table(1), .joined = joined};
    BlockActs& a = acts[0];
    const Span span{.B = p.B, .T = p.T, .t0 = p.t0, .window = d.kind.window(part.layers[size_t(l)]),
                    .documents = {}, .tokens = table(0), .x0 = x0, .shared = p.t0 ? &shared : nullptr};
    stream = block.forward(weights.block(l), a, stream, scratch, span);
    if (p.begins)
        ops::join_rows(kept[size_t(l)], {.kept = nullptr, .from = nullptr, .own = a.qkv + d.A,
                                         .stride = size_t(d.W), .B = p.B, .before = 0, .T = p.T,
                                         .width = 2 * d.K});
}

template <class W>
std::vector<TokenScore> Scorer::forward(W& weights, const ScorePass& p, int c) {
    const int N = p.B * p.T;
    CHECK(N <= rows && p.t0 + p.T <= d.maxT && (!p.t0 || p.B * (p.t0 + p.T) <= joined_rows()),
          "scorer: {} sequences of {} tokens at {}, for {} rows and {} positions", p.B, p.T, p.t0, rows,
          d.maxT);
    const Chunk chunk = part.chunks[size_t(c)];
    bring(p);
    Stream stream{.x = input()};
    if (chunk.embeds)
        embed(weights, tp, embedded, input(), scratch.h,
              {.tokens = table(0), .v0 = d.v0, .V = d.Vp, .N = N, .T = p.T, .C = d.C, .t0 = p.t0}, d);
    const size_t nC = stream_count(N);
    const floatX* x0 = d.kind.shortcut ? received + (chunk.embeds ? 0 : nC) : nullptr;
    for (int l = chunk.begin; l < chunk.end; l++) run_block(weights, p, l, x0, stream);
    const int mine = Slice(tp, N).mine;
    if (!chunk.ends) {
        ops::add_residual(sent, stream.x, stream.r, stream.bias, mine, d.C);
        if (x0) ops::copy(sent + nC, x0, nC);
    }
    if (!chunk.ends || p.rows.empty()) return {};
    final_norm(weights, head, stream, mine, d);
    return score(weights, p);
}

template <class W> std::vector<TokenScore> Scorer::score(W& weights, const ScorePass& p) {
    const int N = p.B * p.T;
    const HeadTensors<floatX> w = weights.head();
    const floatX* h = tp.all_gather(scratch.h, head.lnf, stream_count(N));
    std::vector<TokenScore> scores;
    for (size_t n0 = 0; n0 < p.rows.size(); n0 += size_t(logit_rows)) {
        beat();
        const int count = int(std::min(size_t(logit_rows), p.rows.size() - n0));
        ops::encoder_forward(picked, h, nullptr, {.tokens = table(2) + n0, .v0 = 0, .V = N, .N = count,
                                                  .T = count, .C = d.C, .t0 = 0});
        ops::matmul_forward(logits, picked, w.w, w.b, count, d.C, d.Vp);
        const size_t own = size_t(tp.size) * size_t(logit_rows);
        const ops::Classifier t = {.losses = losses, .logits = logits,
                                   .stats = tp.size == 1 ? nullptr : stats + size_t(tp.index * count * 3),
                                   .targets = table(3) + n0, .N = count, .V = d.vocab_here(), .Vp = d.Vp,
                                   .v0 = d.v0, .parts = tp.size, .cap = real(d.kind.softcap),
                                   .cap_kind = d.kind.softcap_kind};
        ops::classifier_forward(t);
        ops::classifier_merge(t, tp.all_gather(stats, t.stats, size_t(3 * count)));
        ops::classifier_largest(values + own, columns + own, t);
        const std::vector<TokenScore> more = read_scores(p, n0, count);
        scores.insert(scores.end(), more.begin(), more.end());
    }
    return scores;
}

}  // namespace PRECISION
