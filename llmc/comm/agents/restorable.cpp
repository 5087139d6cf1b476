#include <algorithm>
#include <map>

#include "llmc/comm/agents/controller.h"

inline namespace agents {

static constexpr int kMostRanks = 1 << 20;

Restorable newest_images(const std::map<int64_t, std::vector<Held>>& held, Begun last) {
    std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> of;     // by step and generation
    for (const auto& [agent, list] : held)
        for (const Held& h : list) {
            if (h.world < 1 || h.world > kMostRanks || h.rank < 0 || h.rank >= h.world) continue;
            if (h.generation < last.generation && h.step > last.step) continue;
            std::vector<int64_t>& holders = of[{h.step, h.generation}];
            holders.resize(size_t(h.world), -1);
            holders[size_t(h.rank)] = agent;
        }
    for (auto i = of.rbegin(); i != of.rend(); ++i)
        if (std::ranges::find(i->second, -1) == i->second.end())
            return {i->first.first, i->first.second, i->second};
    return {};
}

}  // namespace agents
