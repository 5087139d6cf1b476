// Pipeline stages that stand for all stages of a mesh in plans: the first, the last, and one of each kind
// between. Stages of a kind have equally many blocks, equal windows, and value embeddings in the same places.
#pragma once
#include <cstddef>
#include <vector>

#include "llmc/base/config/config.h"

inline namespace runs {

struct DistinctStages {
    std::vector<int> stages;  // to plan
    std::vector<size_t> of;   // for each stage of the mesh: its place in `stages`
};

DistinctStages distinct_stages(const Config& cfg);

}  // namespace runs
