#include "llmc/model/decoder.h"

#include <cmath>

#include "llmc/model/turns.h"

namespace PRECISION {

Decoder::Decoder(const Dims& dims, const Axis& axis, const Part& p)
    : d(dims), tp(axis), part(p), block{d, tp, Recompute::Block}, rows(std::min(kRows, d.maxT)),
      cache(p.layers.size()), acts(1) {}

void Decoder::add_to(Arena& arena) {
    const size_t N = size_t(rows), n = size_t(Slice(tp, rows).n), C = size_t(d.C);
    const size_t Vp = part.last ? size_t(d.Vp) : 0;
    const bool sends = part.chunks.size() > 1 || !part.last;
    const char* name = "generation: activations";
    for (floatX*& c : cache) arena.add("generation: keys and values", &c, size_t(d.maxT) * size_t(d.W));
    for (const ActRow& row : block_acts(d, N, n)) {
        if (row.x == &BlockActs::qkv || row.x == &BlockActs::qk || row.x == &BlockActs::in)
            continue;                           // in the cache; for backward
        if (row.x) arena.add(name, &(acts[0].*row.x), row.count);
        else arena.add(name, &(acts[0].*row.s), row.count);
    }
    if (turn_count(d)) arena.add("angles of positions", &block.turns, turn_count(d));
    add_block_scratch(arena, scratch, d, N, n, false, Recompute::None, tp);
    if (part.first) add_embed_acts(arena, name, embedded, d, n);
    arena.add(name, &head.xf, part.last ? n * C : 0);
    arena.add(name, &head.lnf, part.last ? n * C : 0);
    if (!d.kind.rms) arena.add(name, &head.mean, part.last ? n : 0);
    arena.add(name, &head.rstd, part.last ? n : 0);
    if (d.kind.shortcut) arena.add(name, &received, message_count(rows));
    arena.add(name, &sent, sends ? message_count(rows) : 0);
    arena.add(name, &own_logits, Vp);
    arena.add(name, &all_logits, tp.staging(Vp * size_t(tp.size)));
    arena.add(name, &tokens, N);
}

std::vector<floatX> Decoder::on_host(const floatX* logits) const {
    std::vector<floatX> values(size_t(d.V));
    ops::copy_to_host(values.data(), logits, values.size() * sizeof(floatX));
    const double c = d.kind.softcap;
    const bool tanh = d.kind.softcap_kind == SoftcapKind::Tanh;
    for (size_t i = 0; c > 0 && i < values.size(); i++) {
        const double l = double(values[i]);
        values[i] = floatX(real(tanh ? c * std::tanh(l / c) : c * l / std::sqrt(l * l + c * c)));
    }
    return values;
}

}  // namespace PRECISION
