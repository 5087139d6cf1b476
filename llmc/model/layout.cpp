#include "llmc/model/layout.h"

#include "llmc/base/check.h"

template <class G>
static void append(Layout& layout, const std::vector<Slot<G>>& table, int layer, size_t& at,
                   uint64_t& global) {
    layout.buckets.push_back(at);
    for (const auto& row : table) {
        const Param& p = row.param;
        layout.tensors.push_back({.name = layer < 0 ? p.name : strf("h.%d.%s", layer, p.name),
                                  .param = p, .layer = layer, .start = at, .global = global});
        layout.parameters += p.used();
        global += p.used();
        at += (p.count() + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
    }
}

Layout make_layout(const Dims& d) {
    Layout layout;
    size_t at = 0;
    uint64_t global = 0;
    append(layout, embed_params<float>(d), -1, at, global);
    for (int l = 0; l < d.L; l++) append(layout, block_params<float>(d), l, at, global);
    append(layout, final_params<float>(d), -1, at, global);
    layout.buckets.push_back(at);
    return layout;
}
