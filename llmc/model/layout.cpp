#include "llmc/model/layout.h"

#include "llmc/base/check.h"

Part make_part(int L, int stage, int stages, int virtual_stages) {
    const int all = stages * virtual_stages;
    CHECK(all <= L, "%d stages of %d chunks for %d blocks", stages, virtual_stages, L);
    Part part{.layers = {}, .chunks = {}, .first = stage == 0, .last = stage == stages - 1};
    for (int c = 0; c < virtual_stages; c++) {
        const int number = c * stages + stage;
        const int from = int(int64_t(L) * number / all), to = int(int64_t(L) * (number + 1) / all);
        const int begin = int(part.layers.size());
        for (int l = from; l < to; l++) part.layers.push_back(l);
        part.chunks.push_back({.begin = begin, .end = begin + to - from,
                               .embeds = number == 0, .ends = number == all - 1});
    }
    return part;
}

template <class G>
static void append(std::vector<Tensor>& tensors, const std::vector<ParamRow<G>>& table, int layer,
                   uint64_t& global) {
    for (const auto& row : table) {
        const Param& p = row.param;
        tensors.push_back({.name = layer < 0 ? p.name : strf("h.%d.%s", layer, p.name), .param = p,
                           .layer = layer, .bucket = -1, .start = 0, .global = global});
        global += p.whole();
    }
}

std::vector<Tensor> whole_tensors(const Dims& d) {
    std::vector<Tensor> tensors;
    uint64_t global = 0;
    append(tensors, embed_params<float>(d), -1, global);
    for (int l = 0; l < d.L; l++) append(tensors, block_params<float>(d), l, global);
    append(tensors, final_params<float>(d), -1, global);
    return tensors;
}

Layout make_layout(const Dims& d, const Part& part, size_t shards) {
    Layout layout;
    const size_t multiple = kTensorAlign * shards;
    const std::vector<Tensor> all = whole_tensors(d);
    const size_t block = block_params<float>(d).size(), finals = final_params<float>(d).size();
    size_t at = 0;
    const auto bucket = [&](size_t first, size_t count) {       // of consecutive tensors
        layout.buckets.push_back(at);
        for (size_t i = first; i < first + count; i++) {
            layout.tensors.push_back(all[i]);
            layout.tensors.back().bucket = int(layout.buckets.size()) - 1;
            layout.tensors.back().start = at;
            at += (all[i].param.count() + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
        }
        at = (at + multiple - 1) / multiple * multiple;
        return int(layout.buckets.size()) - 1;
    };
    for (const Tensor& t : all) layout.parameters += t.param.whole();
    if (part.first || part.last) layout.wte = bucket(0, 1);
    if (part.first) layout.wpe = bucket(1, 1);
    layout.blocks = int(layout.buckets.size());
    for (const int l : part.layers) bucket(2 + size_t(l) * block, block);
    if (part.last) layout.final = bucket(all.size() - finals, finals);
    layout.buckets.push_back(at);
    return layout;
}
