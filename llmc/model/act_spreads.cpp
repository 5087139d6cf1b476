#include "llmc/model/act_spreads.h"

#include "llmc/model/gpt.h"

namespace PRECISION::inline model {

// Right after the block's forward: at each level of recomputation its buffers still hold its own values.
void Gpt::add_spreads(const BlockActs& a, const Stream& out, int layer, int N) {
    const size_t stream = size_t(Slice(tp, N).mine) * size_t(d.C), rows = size_t(N);
    const struct { const floatX* values; size_t count; } measured[] = {
        {a.x, stream}, {a.ln1, stream}, {a.atty, rows * size_t(d.A)}, {a.x1, stream}, {a.ln2, stream},
        {a.act, rows * size_t(d.F)}, {out.r, stream}};
    static_assert(std::size(measured) == std::size(kSpreadsOfBlock));
    Spread* to = spreads + size_t(layer) * std::size(kSpreadsOfBlock);
    for (const auto& m : measured) ops::spread_of_stored(to++, m.values, m.count);
}

void Gpt::add_spreads(const HeadActs& a, int N) {
    const size_t stream = size_t(Slice(tp, N).mine) * size_t(d.C);
    Spread* const to = spreads + size_t(d.L) * std::size(kSpreadsOfBlock);
    ops::spread_of_stored(to, a.xf, stream);
    ops::spread_of_stored(to + 1, a.lnf, stream);
}

}  // namespace PRECISION::model
