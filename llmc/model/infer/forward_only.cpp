#include "llmc/model/infer/forward_only.h"

#include "llmc/model/rotary_table.h"

namespace PRECISION::inline infer {

ForwardOnly::ForwardOnly(const Dims& dims, const Axis& axis, const Part& p, int most)
    : d(dims), tp(axis), part(p), block{d, tp, Recompute::Block, attention}, rows(most) {}

void ForwardOnly::add_to(ArenaOf arena, const char* name, bool cached) {
    const size_t N = size_t(rows), n = size_t(Slice(tp, rows).n);
    const bool sends = part.chunks.size() > 1 || !part.last;
    for (const ActRow& row : block_acts(d, N, n)) {
        if (row.x == &BlockActs::qk || row.x == &BlockActs::in) continue;       // for backward
        if (row.x == &BlockActs::qkv && cached) continue;
        if (row.x) arena.add(name, &(acts.*row.x), row.count);
        else arena.add(name, &(acts.*row.s), row.count);
    }
    add_rotary_table(arena, &block.rotary_table, d);
    add_block_scratch(arena, scratch, d, N, n, false, Recompute::None, tp);
    if (part.first) add_embed_acts(arena, name, embedded, d, n);
    if (part.last) add_head_acts(arena, name, head, d, n);
    if (d.kind.shortcut) arena.add(name, &received, message_count(rows));
    arena.add(name, &sent, sends ? message_count(rows) : 0);
}

void ForwardOnly::ready() { fill_rotary_table(block.rotary_table, d); }

}  // namespace PRECISION::infer
