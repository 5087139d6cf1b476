// Where a rank goes on from.
#pragma once
#include "llmc/train/save/resume.h"

inline namespace survive {

// Of an agent (run.elastic): the images of its plan, if there are any. Else as find_origin() says. All ranks
// together. Throws Lost where an agent that holds an image has gone.
std::optional<Origin> find_start(const Config& cfg, const Axis& world);

}  // namespace survive
