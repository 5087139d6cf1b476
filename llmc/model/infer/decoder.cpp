#include "llmc/model/infer/decoder.h"

#include <cmath>

namespace PRECISION::inline infer {

Decoder::Decoder(const Dims& d, const Axis& tp, const Part& part)
    : own(d, tp, part, std::min(kRows, d.maxT)), cache(part.layers.size()) {}

void Decoder::add_to(ArenaOf arena) {
    const Dims& d = own.d;
    const size_t Vp = own.part.last ? size_t(d.Vp) : 0;
    const char* name = "generation: activations";
    for (floatX*& c : cache) arena.add("generation: keys and values", &c, size_t(d.maxT) * size_t(d.W));
    own.add_to(arena, name, true);
    arena.add(name, &own_logits, Vp);
    arena.add(name, &all_logits, own.tp.staging(Vp * size_t(own.tp.size)));
    arena.add(name, &tokens, size_t(own.rows));
}

std::vector<floatX> Decoder::on_host(const floatX* logits) const {
    const Dims& d = own.d;
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

}  // namespace PRECISION::infer
