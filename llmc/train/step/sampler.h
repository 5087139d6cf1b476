// Draws the next token from logits: temperature, then top-k, then top-p (nucleus: Holtzman et al. 2019,
// arXiv 1904.09751).
#pragma once
#include <cstdint>
#include <vector>

#include "llmc/base/config/config.h"

inline namespace step {

struct Sampler {
    SampleConfig cfg;
    uint64_t seed;
    std::vector<std::pair<double, int32_t>> candidates;    // probability, id; kept for its capacity

    // The token at (stream, position): a pure function of these, the seed and the logits. NaN never wins.
    int32_t draw(const float* logits, int V, uint64_t stream, uint64_t position);
};

}  // namespace step
