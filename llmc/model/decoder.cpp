#include "llmc/model/decoder.h"

namespace PRECISION {

Decoder::Decoder(const Dims& dims, const Mesh& mesh)
    : d(dims), tp(mesh.tp), block{d, tp, Recompute::Block}, rows(std::min(kRows, d.maxT)),
      cache(size_t(d.L)), acts(1) {}

ops::ScratchSizes Decoder::scratch_sizes() const {
    return {.N = rows, .T = d.maxT, .C = d.C, .NH = d.NH, .D = d.D, .F = d.F, .chunk = 1, .Vp = d.Vp};
}

void Decoder::add_to(Arena& arena) {
    const size_t n = size_t(rows), C = size_t(d.C);
    for (floatX*& c : cache) arena.add("generation: keys and values", &c, size_t(d.maxT) * 3 * C);
    for (const ActRow& row : block_acts(d, n, n)) {
        if (row.x == &BlockActs::qkv) continue;                 // in the cache
        if (row.x) arena.add("generation: activations", &(acts[0].*row.x), row.count);
        else arena.add("generation: activations", &(acts[0].*row.s), row.count);
    }
    add_block_scratch(arena, scratch, d, n, n, false, tp);
    arena.add("generation: activations", &xf, n * C);
    arena.add("generation: activations", &lnf, n * C);
    arena.add("generation: activations", &lnf_mean, n);
    arena.add("generation: activations", &lnf_rstd, n);
    arena.add("generation: activations", &logits, size_t(d.Vp));
    arena.add("generation: activations", &tokens, n);
}

}  // namespace PRECISION
