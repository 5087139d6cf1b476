// The cos/sin table of rotary positions.
#pragma once
#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "llmc/model/dims.h"
#include "llmc/ops/arena.h"

namespace PRECISION::inline model {

// Radians by which each of the D/2 pairs of channels of a head rotates from token to token, falling. With
// `still`, only the first m = (1 - still) D/2 pairs rotate. RopeKind::scaling applies.
std::vector<double> rotary_frequencies(const RopeKind& rope, int D);

// Elements of a model's cos/sin table, ops::Rotary::table; 0: positions are learned.
size_t rotary_table_size(const Dims& d);
void add_rotary_table(ArenaOf arena, real** table, const Dims& d);

// Computed in double, rounded once. Does nothing for a model without the table.
void fill_rotary_table(real* out, const Dims& d);

}  // namespace PRECISION::model
