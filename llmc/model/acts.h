// Every activation that a block keeps for its backward, declared once.
//
// Recomputation trades memory for time: from the level in the last column on, all blocks share one buffer,
// and backward computes its contents again with the same forward.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/config/choice.h"
#include "llmc/model/dims.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"

namespace PRECISION {

struct BlockActs {
    floatX *x, *ln1, *qkv, *atty, *x1, *ln2, *pre, *act;
    real *ln1_mean, *ln1_rstd, *lse, *ln2_mean, *ln2_rstd;      // without means of an RMSNorm
    const floatX* kv;       // first row of the keys and values to attend to: qkv, or the cache in generation
    const floatX *h1, *h2;  // ln1 and ln2 of all of tp, where they were gathered last
};

struct ActRow {
    const char* name;
    floatX* BlockActs::* x;     // one of the two
    real* BlockActs::* s;
    size_t count;
    Recompute shared_from;
    bool always_own;            // kept per block at every level: the start of recomputation
};

// Whether the stream after attention is kept at every level: cut over tp the stream is small, and
// recomputation would need a scatter.
inline bool keeps_x1(const Dims& d) { return d.tp > 1; }

inline std::vector<ActRow> block_acts(const Dims& d, size_t N, size_t n) {
    using A = BlockActs;
    const size_t C = size_t(d.C), W = size_t(d.A), NH = size_t(d.NH), F = size_t(d.F), P = size_t(d.P());
    constexpr auto Selective = Recompute::Selective, Block = Recompute::Block;
    std::vector<ActRow> rows = {
    // name        member                    count       shared from
    { "x",         &A::x,    nullptr,         n * C,     Block,      true  },   // the incoming stream
    { "ln1",       &A::ln1,  nullptr,         n * C,     Selective,  false },
    { "ln1_mean",  nullptr,  &A::ln1_mean,    n,         Block,      false },
    { "ln1_rstd",  nullptr,  &A::ln1_rstd,    n,         Block,      false },
    { "qkv",       &A::qkv,  nullptr,         N * 3 * W, Block,      false },
    { "atty",      &A::atty, nullptr,         N * W,     Block,      false },
    { "lse",       nullptr,  &A::lse,         N * NH,    Block,      false },
    { "x1",        &A::x1,   nullptr,         n * C,     Block,      keeps_x1(d) },  // after attention
    { "ln2",       &A::ln2,  nullptr,         n * C,     Selective,  false },
    { "ln2_mean",  nullptr,  &A::ln2_mean,    n,         Block,      false },
    { "ln2_rstd",  nullptr,  &A::ln2_rstd,    n,         Block,      false },
    { "pre",       &A::pre,  nullptr,         N * P,     Block,      false },   // before the activation
    { "act",       &A::act,  nullptr,         N * F,     Selective,  false },   // after
    };
    if (d.kind.rms)
        std::erase_if(rows, [](const ActRow& row) { return row.s == &A::ln1_mean || row.s == &A::ln2_mean; });
    return rows;
}

// Asks the arena for the activations of the blocks and micro-batches that are alive at once, one entry of
// `acts` each. REQUIRES: `acts` does not move until allocate().
void add_block_acts(Arena& arena, std::vector<BlockActs>& acts, const Dims& d, size_t N, size_t n,
                    Recompute level);

// After allocate(): points shared entries at one buffer.
void share_block_acts(std::vector<BlockActs>& acts, const Dims& d, Recompute level);

}  // namespace PRECISION
