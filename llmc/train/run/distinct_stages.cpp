#include "llmc/train/run/distinct_stages.h"

#include <algorithm>

#include "llmc/train/step/schedule.h"

inline namespace runs {

DistinctStages distinct_stages(const Config& cfg) {
    const int pp = cfg.parallel.pp, chunks = cfg.parallel.virtual_stages;
    const std::vector<int>& windows = cfg.model.window;
    DistinctStages d;
    std::vector<std::vector<int>> seen;
    for (int s = 0; s < pp; s++) {
        std::vector<int> blocks = {s == 0, s == pp - 1};
        const Part part = make_part(cfg.model.layers, s, pp, chunks);
        for (const Chunk& c : part.chunks) blocks.push_back(c.end - c.begin);
        for (const int l : part.layers)
            blocks.insert(blocks.end(), {windows[size_t(l) % windows.size()], has_values(cfg.model, l)});
        const auto it = std::find(seen.begin(), seen.end(), blocks);
        d.of.push_back(size_t(it - seen.begin()));
        if (it == seen.end()) {
            seen.push_back(blocks);
            d.stages.push_back(s);
        }
    }
    return d;
}

}  // namespace runs
