#include "llmc/train/step/sampler.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/check.h"
#include "llmc/base/numbers/rng.h"

inline namespace step {

int32_t Sampler::draw(const float* logits, int V, uint64_t stream, uint64_t position) {
    candidates.clear();
    for (int32_t i = 0; i < V; i++)
        if (!std::isnan(logits[i])) candidates.push_back({logits[i], i});
    CHECK(!candidates.empty(), "sampling: all {} logits are NaN", V);

    // likeliest first; equal logits by id, for a unique order
    const auto before = [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    if (cfg.temperature == 0) return std::min_element(candidates.begin(), candidates.end(), before)->second;
    std::sort(candidates.begin(), candidates.end(), before);
    if (cfg.top_k > 0 && size_t(cfg.top_k) < candidates.size()) candidates.resize(size_t(cfg.top_k));

    const double largest = candidates[0].first;
    double sum = 0;
    for (auto& c : candidates) sum += c.first = std::exp((c.first - largest) / cfg.temperature);
    double kept = 0;
    size_t count = 0;
    while (count < candidates.size() && (count == 0 || kept < cfg.top_p * sum))
        kept += candidates[count++].first;

    double r = uniform(seed, stream, position) * kept;
    for (size_t i = 0; i + 1 < count; i++)
        if ((r -= candidates[i].first) < 0) return candidates[i].second;
    return candidates[count - 1].second;
}

}  // namespace step
