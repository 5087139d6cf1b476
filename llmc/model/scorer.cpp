#include "llmc/model/scorer.h"

#include "llmc/model/turns.h"

namespace PRECISION {

// Enough that products are not slowed by few rows; at most what a long context may take of the memory.
static int rows_at_once(int maxT) {
    return std::clamp(maxT, ops::reached_by_host() ? 2048 : kMostScored, kMostScored);
}

Scorer::Scorer(const Dims& dims, const Axis& axis, const Part& p)
    : d(dims), tp(axis), part(p), block{d, tp, Recompute::Block}, rows(rows_at_once(d.maxT)),
      logit_rows(std::min(ops::logit_rows(), rows)), kept(p.layers.size()), acts(1) {}

void Scorer::add_to(Arena& arena) {
    const size_t N = size_t(rows), n = size_t(Slice(tp, rows).n), C = size_t(d.C), L = size_t(logit_rows);
    const size_t tps = size_t(tp.size), Vp = part.last ? size_t(d.Vp) : 0;
    const size_t scored = part.last ? L : 0, final = part.last ? n : 0;
    const bool sends = part.chunks.size() > 1 || !part.last;
    const char* name = "tasks: activations";
    for (floatX*& k : kept) arena.add("tasks: shared keys and values", &k, N * 2 * size_t(d.K));
    arena.add("tasks: shared keys and values", &joined, size_t(joined_rows()) * 2 * size_t(d.K));
    for (const ActRow& row : block_acts(d, N, n)) {
        if (row.x == &BlockActs::qk || row.x == &BlockActs::in) continue;       // for backward
        if (row.x) arena.add(name, &(acts[0].*row.x), row.count);
        else arena.add(name, &(acts[0].*row.s), row.count);
    }
    if (turn_count(d)) arena.add("angles of positions", &block.turns, turn_count(d));
    add_block_scratch(arena, scratch, d, N, n, false, Recompute::None, tp);
    if (part.first) add_embed_acts(arena, name, embedded, d, n);
    arena.add(name, &head.xf, final * C);
    arena.add(name, &head.lnf, final * C);
    if (!d.kind.rms) arena.add(name, &head.mean, final);
    arena.add(name, &head.rstd, final);
    if (d.kind.shortcut) arena.add(name, &received, message_count(rows));
    arena.add(name, &sent, sends ? message_count(rows) : 0);
    arena.add(name, &picked, scored * C);
    arena.add("tasks: logits", &logits, scored * Vp);
    arena.add("tasks: logits", &stats, tp.staging(tps * scored * 3));
    arena.add("tasks: logits", &losses, scored);
    arena.add("tasks: logits", &values, (tps + 1) * scored);
    arena.add("tasks: logits", &columns, (tps + 1) * scored);
    arena.add(name, &tables, 4 * N);
}

size_t Scorer::reduction_bytes() const {
    return stream_count(rows) * size_t(tp.size) * sizeof(floatX);
}

void Scorer::ready() {
    acts[0].kv = acts[0].qkv;
    fill_turns(block.turns, d);
}

void Scorer::bring(const ScorePass& p) {
    const std::vector<int32_t>* const all[] = {&p.tokens, &p.from, &p.rows, &p.targets};
    for (size_t i = 0; i < 4; i++)
        if (!all[i]->empty())
            ops::copy_to_device(tables + i * size_t(rows), all[i]->data(), all[i]->size() * sizeof *tables);
}

// The parts of the vocabulary are in the order of the ranks: of equal logits, the first part's comes first.
std::vector<TokenScore> Scorer::read_scores(const ScorePass& p, size_t n0, int count) {
    const size_t n = size_t(count), parts = size_t(tp.size), own = parts * size_t(logit_rows);
    std::vector<real> loss(n), value(parts * n);
    std::vector<int32_t> column(parts * n);
    const real* all_values = tp.all_gather(values, values + own, n);
    const int32_t* all_columns = tp.all_gather(columns, columns + own, n);
    ops::copy_to_host(loss.data(), losses, n * sizeof(real));
    ops::copy_to_host(value.data(), all_values, value.size() * sizeof(real));
    ops::copy_to_host(column.data(), all_columns, column.size() * sizeof(int32_t));
    std::vector<TokenScore> scores;
    for (size_t i = 0; i < n; i++) {
        size_t best = i;
        for (size_t at = i + n; at < value.size(); at += n)
            if (column[at] >= 0 && (column[best] < 0 || value[at] > value[best])) best = at;
        scores.push_back({-double(loss[i]), column[best] == p.targets[n0 + i]});
    }
    return scores;
}

}  // namespace PRECISION
