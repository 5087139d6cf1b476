#include "llmc/model/infer/scorer.h"

namespace PRECISION::inline infer {

// Enough that products are not slowed by few rows; at most what a long context may take of the memory.
static int rows_at_once(int maxT) {
    return std::clamp(maxT, ops::reached_by_host() ? 2048 : kMostScored, kMostScored);
}

Scorer::Scorer(const Dims& d, const Axis& tp, const Part& part)
    : own(d, tp, part, rows_at_once(d.maxT)), logit_rows(std::min(ops::logit_rows(), own.rows)),
      kept(part.layers.size()) {}

void Scorer::add_to(ArenaOf arena) {
    const size_t N = size_t(own.rows), width = 2 * size_t(own.d.K), tps = size_t(own.tp.size);
    const size_t scored = own.part.last ? size_t(logit_rows) : 0;
    const char* name = "tasks: activations";
    for (floatX*& k : kept) arena.add("tasks: shared keys and values", &k, N * width);
    arena.add("tasks: shared keys and values", &joined, size_t(joined_rows()) * width);
    own.add_to(arena, name, false);
    arena.add(name, &picked, scored * size_t(own.d.C));
    arena.add("tasks: logits", &logits, scored * size_t(own.d.Vp));
    arena.add("tasks: logits", &stats, own.tp.staging(tps * scored * 3));
    arena.add("tasks: logits", &losses, scored);
    arena.add("tasks: logits", &values, (tps + 1) * scored);
    arena.add("tasks: logits", &columns, (tps + 1) * scored);
    arena.add(name, &tables, 5 * N);
}

size_t Scorer::reduction_bytes() const {
    return own.stream_count(own.rows) * size_t(own.tp.size) * sizeof(floatX);
}

void Scorer::ready() {
    own.acts.kv = own.acts.qkv;
    own.ready();
}

void Scorer::check_sizes(const ScorePass& p) const {
    int N = 0;
    for (const Segment& s : p.segments) {
        N += s.B * s.T;
        CHECK(s.t0 + s.T <= own.d.maxT && (!s.t0 || s.B * (s.t0 + s.T) <= joined_rows()),
              "scorer: {} sequences of {} tokens at {}, for {} rows of keys and {} positions", s.B, s.T, s.t0,
              joined_rows(), own.d.maxT);
    }
    CHECK(N == p.N() && N <= own.rows, "scorer: {} tokens in segments of {}, for {} rows", p.N(), N,
          own.rows);
}

void Scorer::bring(const ScorePass& p) {
    std::vector<int32_t> positions;
    for (const Segment& s : p.segments)
        for (int n = 0; n < s.B * s.T; n++) positions.push_back(s.t0 + n % s.T);
    const std::vector<int32_t>* const all[] = {&p.tokens, &p.from, &p.rows, &p.targets, &positions};
    for (size_t i = 0; i < std::size(all); i++)
        if (!all[i]->empty())
            ops::copy_to_device(tables + i * size_t(own.rows), all[i]->data(),
                                all[i]->size() * sizeof *tables);
}

// The keys and values of a prefix pass.
void Scorer::keep(int l, const ScorePass& p) {
    const int width = 2 * own.d.K;
    ops::copy_rows(kept[size_t(l)], {.from = own.acts.qkv + own.d.A, .stride = own.d.W, .out_stride = width,
                                     .rows = p.N(), .width = size_t(width)});
}

// The slices of the vocabulary are in the order of the ranks: of equal logits, the first slice's comes first.
std::vector<TokenScore> Scorer::read_scores(const ScorePass& p, size_t n0, int count) {
    const size_t n = size_t(count), slices = size_t(own.tp.size), last = slices * size_t(logit_rows);
    std::vector<real> loss(n), value(slices * n);
    std::vector<int32_t> column(slices * n);
    const real* all_values = own.tp.all_gather(values, values + last, n);
    const int32_t* all_columns = own.tp.all_gather(columns, columns + last, n);
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

}  // namespace PRECISION::infer
