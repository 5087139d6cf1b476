#include "llmc/model/gpt.h"

namespace PRECISION {

// Logits of 512 rows (25.8M values at GPT-2's vocabulary). Each chunk reads wte twice and adds to its
// gradient once: with fewer rows the products wait for memory.
static constexpr int kChunk = 512;

Gpt::Gpt(const GptShape& s, const Mesh& mesh)
    : shape(s), d(s.d), tp(mesh.tp), block{d, tp, s.level}, chunk(std::min(kChunk, s.B * s.T)),
      acts(size_t(d.L)) {}

ops::ScratchSizes Gpt::scratch_sizes() const {
    return {.N = shape.B * shape.T, .T = shape.T, .C = d.C, .NH = d.NH, .D = d.D, .F = d.F,
            .chunk = chunk, .Vp = d.Vp};
}

void Gpt::add_to(Arena& arena) {
    const size_t N = size_t(shape.B) * shape.T, n = N / tp.size, C = size_t(d.C);
    add_block_acts(arena, acts, d, N, n, shape.backward ? shape.level : Recompute::Block);
    add_block_scratch(arena, scratch, d, N, n, shape.backward, tp);
    arena.add("final norm", &xf, n * C);
    arena.add("final norm", &lnf, n * C);
    arena.add("final norm", &lnf_mean, n);
    arena.add("final norm", &lnf_rstd, n);
    arena.add("logits of a chunk", &logits, size_t(chunk) * d.Vp);
    arena.add("losses", &losses, N);
    arena.add("losses", &loss, 1);
    arena.add("gradient of the stream", &dx, shape.backward ? n * C : 0);
    if (shape.backward && kApart) arena.add("gradient of wte as embedding", &dtokens, size_t(d.Vp) * C);
}

void Gpt::ready() {
    share_block_acts(acts, d, shape.backward ? shape.level : Recompute::Block);
}

void Gpt::begin_step() {
    apart = kApart;
    if (apart) ops::set_zero(dtokens, size_t(d.Vp) * d.C * sizeof(real));
}

void Gpt::end_step(real* dwte) {
    for (size_t i = 0; apart && i < size_t(d.Vp) * d.C; i++) dwte[i] += dtokens[i];
    apart = false;
}

}  // namespace PRECISION
