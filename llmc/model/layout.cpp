#include "llmc/model/layout.h"

#include <span>

#include "llmc/base/check.h"

Part make_part(int L, int stage, int stages, int virtual_stages) {
    const int all = stages * virtual_stages;
    CHECK(all <= L, "{} stages of {} chunks for {} blocks", stages, virtual_stages, L);
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
        tensors.push_back({.name = layer < 0 ? p.name : fmt::format("h.{}.{}", layer, p.name), .param = p,
                           .layer = layer, .bucket = -1, .start = 0, .owner = -1, .global = global});
        global += p.whole();
    }
}

std::vector<Tensor> whole_tensors(const Dims& d) {
    std::vector<Tensor> tensors;
    uint64_t global = 0;
    append(tensors, embed_params<float>(d), -1, global);
    for (int l = 0; l < d.L; l++) append(tensors, block_params<float>(d, l), l, global);
    append(tensors, final_params<float>(d), -1, global);
    return tensors;
}

static size_t aligned(size_t count) { return (count + kTensorAlign - 1) / kTensorAlign * kTensorAlign; }

// Puts each tensor of `whole`, largest first, into the first shard of `shard` elements that has room for it
// behind the `flat` elements at the bucket's start. False: some tensor has no room.
static bool fit(const std::vector<Tensor*>& whole, size_t flat, size_t shard, size_t shards) {
    std::vector<size_t> free(shards);
    for (size_t k = 0; k < shards; k++) free[k] = std::max(flat, shard * k);
    for (Tensor* t : whole) {
        const size_t count = aligned(t->param.count());
        size_t k = 0;
        while (k < shards && free[k] + count > shard * (k + 1)) k++;
        if (k == shards) return false;
        t->start = free[k], t->owner = int(k);
        free[k] += count;
    }
    return true;
}

struct Packed { size_t shard, flat; };     // elements of a shard, and before the whole tensors

// Sets start, from the bucket's first element on, and owner. A shard is the smallest for which
// first-fit-decreasing finds room for the whole tensors, by bisection (MULTIFIT: Coffman, Garey, Johnson
// 1978).
static Packed pack(std::span<Tensor> tensors, size_t shards, const std::vector<std::string>& owned_whole) {
    std::vector<Tensor*> whole;
    size_t flat = 0, wholes = 0;
    for (Tensor& t : tensors) {
        const size_t count = aligned(t.param.count());
        const auto named = std::find(owned_whole.begin(), owned_whole.end(), t.param.name);
        if (named != owned_whole.end()) whole.push_back(&t), wholes += count;
        else t.start = flat, flat += count;
    }
    std::stable_sort(whole.begin(), whole.end(),
                     [](const Tensor* a, const Tensor* b) { return a->param.count() > b->param.count(); });
    const auto shard_of = [&](size_t count) { return aligned((count + shards - 1) / shards); };
    size_t low = shard_of(flat + wholes), high = shard_of(flat) + wholes;       // high: all in the last shard
    while (low < high) {
        const size_t middle = low + (high - low) / kTensorAlign / 2 * kTensorAlign;
        if (fit(whole, flat, middle, shards)) high = middle;
        else low = middle + kTensorAlign;
    }
    CHECK(fit(whole, flat, high, shards), "no room in {} shards of {} elements", shards, high);
    return {high, flat};
}

Layout make_layout(const Dims& d, const Part& part, size_t shards,
                   const std::vector<std::string>& owned_whole) {
    Layout layout;
    const std::vector<Tensor> all = whole_tensors(d);
    const size_t embeds = embed_params<float>(d).size(), finals = final_params<float>(d).size();
    std::vector<size_t> first_of = {embeds};        // the first tensor of each block of the whole model
    for (int l = 0; l < d.L; l++) first_of.push_back(first_of.back() + block_params<float>(d, l).size());
    size_t at = 0;
    // Of consecutive tensors. starts: of each in the bucket.
    const auto bucket = [&](size_t first, size_t count, std::vector<size_t>* starts = nullptr) {
        std::vector<Tensor> tensors(all.begin() + ptrdiff_t(first), all.begin() + ptrdiff_t(first + count));
        const Packed packed = pack(tensors, shards, owned_whole);
        if (starts) starts->clear();
        for (Tensor& t : tensors) {
            if (starts) starts->push_back(t.start);
            t.bucket = int(layout.buckets.size()), t.start += at;
        }
        std::sort(tensors.begin(), tensors.end(),
                  [](const Tensor& a, const Tensor& b) { return a.start < b.start; });
        layout.tensors.insert(layout.tensors.end(), tensors.begin(), tensors.end());
        layout.buckets.push_back(at);
        layout.flat.push_back(packed.flat);
        at += packed.shard * shards;
        return int(layout.buckets.size()) - 1;
    };
    for (const Tensor& t : all) layout.parameters += t.param.whole();
    if (part.first || (part.last && d.kind.tied)) layout.wte = bucket(0, 1);
    if (part.first && embeds > 1) layout.embed = bucket(1, embeds - 1, &layout.embed_at);
    layout.blocks = int(layout.buckets.size());
    layout.layers = part.layers;
    layout.block_at.resize(part.layers.size());
    for (size_t i = 0; i < part.layers.size(); i++) {
        const size_t l = size_t(part.layers[i]);
        bucket(first_of[l], first_of[l + 1] - first_of[l], &layout.block_at[i]);
    }
    if (part.last) layout.final = bucket(all.size() - finals, finals, &layout.final_at);
    layout.buckets.push_back(at);
    return layout;
}
