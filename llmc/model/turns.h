// Angles of rotary positions.
#pragma once
#include <vector>

#include "llmc/base/dtype.h"
#include "llmc/model/dims.h"

namespace PRECISION {

// Radians that each pair of channels of a head turns by from token to token, D/2 of them, falling. With
// `still`, only the first m = (1 - still) D/2 pairs turn. Scaled where the model says so.
std::vector<double> turn_frequencies(const RopeKind& rope, int D);

// Elements of a model's table, ops::Rotary::turns; 0: its positions are learned.
size_t turn_count(const Dims& d);

// Computed in double, rounded once. Does nothing for a model without the table.
void fill_turns(real* turns, const Dims& d);

}  // namespace PRECISION
