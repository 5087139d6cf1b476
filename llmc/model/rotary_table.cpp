#include "llmc/model/rotary_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "llmc/ops/ops.h"

namespace PRECISION::inline model {

// A wave of w = 2 pi / f tokens makes context / w rotations over the first training's context.
static double scaled(double f, const RopeScaling& s) {
    const double rotations = s.context * f / (2 * std::numbers::pi);
    const double kept = std::clamp((rotations - s.low) / (s.high - s.low), 0., 1.);
    return (1 - kept) * f / s.factor + kept * f;
}

std::vector<double> rotary_frequencies(const RopeKind& rope, int D) {
    std::vector<double> frequencies(size_t(D / 2), 0.);
    const int turning = int(std::lround((1 - rope.still) * D / 2));
    for (int i = 0; i < turning; i++) {
        double exponent = turning > 1 ? i / double(turning - 1) : 0;
        if (rope.still == 0) exponent = 2. * i / D;
        const double f = std::pow(rope.theta, -exponent);
        frequencies[size_t(i)] = rope.scaling.used ? scaled(f, rope.scaling) : f;
    }
    return frequencies;
}

size_t rotary_table_size(const Dims& d) { return d.kind.rope.used ? size_t(d.maxT) * size_t(d.D) : 0; }

void add_rotary_table(ArenaOf arena, real** table, const Dims& d) {
    const size_t size = rotary_table_size(d);
    if (size) arena.of(Purpose::Other).add("angles of positions", table, size);
}

void fill_rotary_table(real* out, const Dims& d) {
    if (rotary_table_size(d) == 0) return;
    const std::vector<double> frequencies = rotary_frequencies(d.kind.rope, d.D);
    std::vector<real> table(rotary_table_size(d));
    for (int t = 0; t < d.maxT; t++) {
        real* const cosines = &table[size_t(t) * size_t(d.D)], *const sines = cosines + d.D / 2;
        for (size_t i = 0; i < frequencies.size(); i++) {
            cosines[i] = real(std::cos(t * frequencies[i]));
            sines[i] = real(std::sin(t * frequencies[i]));
        }
    }
    ops::copy_to_device(out, table.data(), table.size() * sizeof(real));
}

}  // namespace PRECISION::model
