// Every activation that a block keeps for its backward, declared once.
//
// Recomputation trades memory for time. From the recompute level in column `shared from` on, all blocks share
// one buffer, and backward computes the buffer's contents again with the same forward.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/config/choice.h"
#include "llmc/model/dims.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"

namespace PRECISION::inline model {

struct BlockActs {
    floatX *in, *x, *ln1, *qkv, *qk, *atty, *x1, *ln2, *pre, *act;
    floatX *dx2, *dvalues;
    real *ln1_mean, *ln1_rstd, *lse, *ln2_mean, *ln2_rstd;      // mean: if the norm has one
    const floatX* kv;       // first row of the keys and values to attend to: qkv, or the cache in generation
    const floatX *h1, *h2;  // buffers with ln1 and ln2 of all N tokens, from the latest all-gather
    bool receives = false;  // another chunk sent the stream into `in` and, behind the stream, x0
};

struct ActRow {
    const char* name;
    floatX* BlockActs::* x;     // the member; s is null
    real* BlockActs::* s;       // or the member, for statistics; x is null
    size_t count;               // elements; 0: this kind of model has no such buffer
    Recompute shared_from;
    bool always_own;            // kept per block at every level: the start of recomputation
};

// Whether the stream after attention is kept at every level: cut over tp the stream is small, and
// recomputation would need a scatter.
inline bool keeps_x1(const Dims& d) { return d.tp > 1; }

// halves: backward leaves the matrices' gradients for later, which need the last rows.
inline std::vector<ActRow> block_acts(const Dims& d, size_t N, size_t n, bool halves = false) {
    using G = BlockActs;
    const size_t C = size_t(d.C), A = size_t(d.A), K = size_t(d.K), W = size_t(d.W), F = size_t(d.F),
                 P = size_t(d.P()), NH = size_t(d.NH);
    constexpr auto Selective = Recompute::Selective, Block = Recompute::Block;
    const bool mixes = d.kind.shortcut, normed = d.kind.qk_norm != QkNorm::None;
    const bool means = has_mean(d.kind.norm);
    const Recompute x_shared = mixes ? Selective : Block;
    std::vector<ActRow> rows = {
    // name        member                    count       shared from  always own
    { "in",        &G::in,   nullptr,    mixes * n * C,  Block,      true  },   // the incoming stream, or x
    { "x",         &G::x,    nullptr,         n * C,     x_shared,   !mixes },  // after the shortcut
    { "ln1",       &G::ln1,  nullptr,         n * C,     Selective,  false },
    { "ln1_mean",  nullptr,  &G::ln1_mean,    means * n, Block,      false },
    { "ln1_rstd",  nullptr,  &G::ln1_rstd,    n,         Block,      false },
    { "qkv",       &G::qkv,  nullptr,         N * W,     Block,      false },
    { "qk",        &G::qk,   nullptr,   normed * N * (A + K), Block, false },   // q and k before their norm
    { "atty",      &G::atty, nullptr,         N * A,     Block,      false },
    { "lse",       nullptr,  &G::lse,         N * NH,    Block,      false },
    { "x1",        &G::x1,   nullptr,         n * C,     Block,      keeps_x1(d) },  // after attention
    { "ln2",       &G::ln2,  nullptr,         n * C,     Selective,  false },
    { "ln2_mean",  nullptr,  &G::ln2_mean,    means * n, Block,      false },
    { "ln2_rstd",  nullptr,  &G::ln2_rstd,    n,         Block,      false },
    { "pre",       &G::pre,  nullptr,         N * P,     Block,      false },   // before the activation
    { "act",       &G::act,  nullptr,         N * F,     Selective,  false },   // after
    { "dx2",       &G::dx2,  nullptr,    halves * n * C,  Block,     true  },   // gradient of the result
    { "dvalues",   &G::dvalues, nullptr, halves * d.kind.values * N * K, Block, true },   // of rows of wve
    };
    std::erase_if(rows, [](const ActRow& row) { return row.count == 0; });
    return rows;
}

inline bool is_shared(const ActRow& row, Recompute level) {
    return !row.always_own && level >= row.shared_from;
}

inline size_t streams_of(const ActRow& row, const BlockActs& a) {
    return row.x == &BlockActs::in && a.receives ? 2 : 1;
}

// The entries with memory of their own. places: of rows that every level keeps; other entries share these in
// turn (HostedStreams).
inline size_t own_entries(const ActRow& row, Recompute level, size_t entries, size_t places) {
    if (is_shared(row, level)) return std::min<size_t>(1, entries);
    return row.always_own ? std::min(places, entries) : entries;
}

// Asks the arena for the activations of the blocks and micro-batches that are alive at once, one entry of
// `acts` each. REQUIRES: `acts` does not move until allocate().
inline void add_block_acts(ArenaOf arena, std::vector<BlockActs>& acts, const Dims& d, size_t N,
                           size_t n, Recompute level, bool halves, size_t places = SIZE_MAX) {
    for (const ActRow& row : block_acts(d, N, n, halves)) {
        const std::string name = std::string("activations: ") + row.name;
        for (size_t l = 0; l < own_entries(row, level, acts.size(), places); l++)
            if (row.x) arena.add(name, &(acts[l].*row.x), row.count * streams_of(row, acts[l]));
            else arena.add(name, &(acts[l].*row.s), row.count);
    }
}

// After allocate(): points shared entries at their buffers.
inline void share_block_acts(std::vector<BlockActs>& acts, const Dims& d, Recompute level,
                             size_t places = SIZE_MAX) {
    for (const ActRow& row : block_acts(d, 1, 1)) {
        const size_t own = own_entries(row, level, acts.size(), places);
        for (size_t l = own; l < acts.size(); l++)
            if (row.x) acts[l].*row.x = acts[l % own].*row.x;
            else acts[l].*row.s = acts[l % own].*row.s;
    }
    for (BlockActs& a : acts) a.kv = a.qkv;
}

}  // namespace PRECISION::model
