// The cos/sin table of rotary positions.
//
// Pair i of a head's channels rotates by f = theta^(-i/s) radians from token to token; s = D/2, or with
// `still` m - 1 for the m pairs that rotate. Over the first training's context a pair makes
// r = context f / (2 pi) rotations. RopeKind::scaling slows them down:
//
//     linear   f / factor                     positions are interpolated: Chen et al. 2023, arXiv 2306.15595
//     llama3   k f + (1 - k) f / factor       k = (r - low) / (high - low), within 0 and 1: Llama 3.1
//     yarn     the same blend, k falling from 1 to 0 in equal parts from pair i(beta_fast), rounded down, to
//              pair i(beta_slow), rounded up; i(r) = s ln(context / (2 pi r)) / ln(theta). Cos and sin are
//              multiplied by `attention`, 0.1 ln(factor) + 1 where 0. Peng et al. 2023, arXiv 2309.00071;
//              k by pairs, as the authors' program, transformers and llama.cpp have it
#pragma once
#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "llmc/model/dims.h"
#include "llmc/ops/arena.h"

namespace PRECISION::inline model {

// Radians by which each of the D/2 pairs of channels of a head rotates from token to token, falling. With
// `still`, only the first m = (1 - still) D/2 pairs rotate.
std::vector<double> rotary_frequencies(const RopeKind& rope, int D);

// What cos and sin are multiplied by. A norm after the rotation would divide by it again: 1.
double rotary_attention(const ModelKind& kind);

// Elements of a model's cos/sin table, ops::Rotary::table; 0: positions are learned.
size_t rotary_table_size(const Dims& d);
void add_rotary_table(ArenaOf arena, real** table, const Dims& d);

// Computed in double, rounded once. Does nothing for a model without the table.
void fill_rotary_table(real* out, const Dims& d);

}  // namespace PRECISION::model
