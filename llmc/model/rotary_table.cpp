#include "llmc/model/rotary_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "llmc/ops/ops.h"

namespace PRECISION::inline model {

static double kept_of_llama3(double f, const RopeScaling& s) {
    const double rotations = s.context * f / (2 * std::numbers::pi);
    return std::clamp((rotations - s.low) / (s.high - s.low), 0., 1.);
}

// span: pairs of channels whose last rotates slower by theta than the first.
static double kept_of_yarn(int i, const RopeKind& rope, double span, int D) {
    const RopeScaling& s = rope.scaling;
    const auto pair_of = [&](double rotations) {
        return span * std::log(s.context / (rotations * 2 * std::numbers::pi)) / std::log(rope.theta);
    };
    const double low = std::max(std::floor(pair_of(s.beta_fast)), 0.);
    const double high = std::min(std::ceil(pair_of(s.beta_slow)), D - 1.);
    return 1 - std::clamp((i - low) / std::max(high - low, 0.001), 0., 1.);     // 0.001: a step
}

static double kept(int i, double f, const RopeKind& rope, double span, int D) {
    switch (rope.scaling.kind) {
        case RopeScalingKind::None: return 1;
        case RopeScalingKind::Llama3: return kept_of_llama3(f, rope.scaling);
        case RopeScalingKind::Linear: return 0;
        case RopeScalingKind::Yarn: return kept_of_yarn(i, rope, span, D);
    }
    return 1;
}

std::vector<double> rotary_frequencies(const RopeKind& rope, int D) {
    std::vector<double> frequencies(size_t(D / 2), 0.);
    const int turning = int(std::lround((1 - rope.still) * D / 2));
    const double span = rope.still == 0 ? D / 2. : std::max(turning - 1, 1);
    for (int i = 0; i < turning; i++) {
        const double f = std::pow(rope.theta, -i / span), k = kept(i, f, rope, span, D);
        frequencies[size_t(i)] = k == 1 ? f : (1 - k) * f / rope.scaling.factor + k * f;
    }
    return frequencies;
}

double rotary_attention(const ModelKind& kind) {
    const RopeScaling& s = kind.rope.scaling;
    if (s.kind != RopeScalingKind::Yarn || kind.qk_norm == QkNorm::After) return 1;
    return s.attention > 0 ? s.attention : 0.1 * std::log(s.factor) + 1;
}

size_t rotary_table_size(const Dims& d) { return d.kind.rope.used ? size_t(d.maxT) * size_t(d.D) : 0; }

void add_rotary_table(ArenaOf arena, real** table, const Dims& d) {
    const size_t size = rotary_table_size(d);
    if (size) arena.of(Purpose::Other).add("angles of positions", table, size);
}

void fill_rotary_table(real* out, const Dims& d) {
    if (rotary_table_size(d) == 0) return;
    const std::vector<double> frequencies = rotary_frequencies(d.kind.rope, d.D);
    const double attention = rotary_attention(d.kind);
    std::vector<real> table(rotary_table_size(d));
    for (int t = 0; t < d.maxT; t++) {
        real* const cosines = &table[size_t(t) * size_t(d.D)], *const sines = cosines + d.D / 2;
        for (size_t i = 0; i < frequencies.size(); i++) {
            cosines[i] = real(attention * std::cos(t * frequencies[i]));
            sines[i] = real(attention * std::sin(t * frequencies[i]));
        }
    }
    ops::copy_to_device(out, table.data(), table.size() * sizeof(real));
}

}  // namespace PRECISION::model
