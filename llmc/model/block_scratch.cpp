#include "llmc/model/block.h"

namespace PRECISION::inline model {

void add_block_scratch(ArenaOf arena, BlockScratch& s, const Dims& d, size_t N, size_t n, bool backward,
                       Recompute level, const Axis& tp, bool halves) {
    const size_t C = size_t(d.C), A = size_t(d.A), all = n * size_t(tp.size);
    s = {};
    arena.add("block scratch", &s.r, all * C);
    arena.add("block scratch", &s.h, tp.staging(all * C));
    if (backward && level == Recompute::Block) arena.add("block scratch", &s.h2, tp.staging(all * C));
    arena.add("block scratch", &s.slice, tp.staging(n * C));
    arena.add("block scratch", &s.bias, C);
    if (!backward) return;
    arena.add("block scratch", &s.dh, all * C);
    arena.add("block scratch", &s.dqkv, N * size_t(d.W));
    arena.add("block scratch", &s.datty, N * A);
    arena.add("block scratch", &s.dpre, N * size_t(d.P()));
    if (halves) arena.add("block scratch", &s.dact, N * size_t(d.F));
    if (d.kind.values) arena.add("block scratch", &s.dgates, N * size_t(d.KV));
    if (sums_on_the_way(d)) arena.add("block scratch", &s.dbias, C);
}

}  // namespace PRECISION::model
