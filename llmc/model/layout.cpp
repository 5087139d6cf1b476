#include "llmc/model/layout.h"

#include <span>

#include "llmc/base/check.h"

inline namespace model {

// The place of a member among a struct's pointers.
template <template <class> class G, class T> static size_t place_of(T* G<T>::* member) {
    T here{};
    G<T> group{};
    group.*member = &here;
    const auto all = std::bit_cast<std::array<T*, sizeof(G<T>) / sizeof(T*)>>(group);
    return size_t(std::find(all.begin(), all.end(), &here) - all.begin());
}

template <class G>
static void append(std::vector<Tensor>& tensors, const std::vector<ParamRow<G>>& table, int layer,
                   uint64_t& global) {
    for (const auto& row : table) {
        const Param& p = row.param;
        tensors.push_back({.name = layer < 0 ? p.name : fmt::format("h.{}.{}", layer, p.name), .param = p,
                           .layer = layer, .bucket = -1, .member = place_of(row.member), .start = 0,
                           .trailing = false, .global = global});
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

static bool is_named(const Tensor& t, const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), t.param.name) != names.end();
}

// Elements of a bucket: before the trailing tensors, before those that are coded alone, of all.
struct Packed { size_t leading, coded, size; };

// Where the tensors that are coded begin; at the bucket's end, if others lie behind one of them.
static size_t coded_from(std::span<const Tensor> tensors, const Packing& packing, size_t size) {
    size_t others = 0, first = size;
    for (const Tensor& t : tensors) {
        if (is_named(t, packing.coded)) first = std::min(first, t.start);
        else others = std::max(others, t.start + aligned(t.param.count()));
    }
    return others <= first ? first : size;
}

// Sets start, from the bucket's first element on, and trailing.
static Packed pack(std::span<Tensor> tensors, const Packing& packing) {
    std::vector<Tensor*> groups[2];     // leading, trailing
    size_t all = 0, at = 0, leading = 0;
    for (Tensor& t : tensors) {
        t.trailing = is_named(t, packing.trailing);
        groups[t.trailing].push_back(&t);
        all += aligned(t.param.count());
    }
    std::stable_partition(groups[0].begin(), groups[0].end(),
                          [&](const Tensor* t) { return !is_named(*t, packing.coded); });
    const auto place = [&at](const std::vector<Tensor*>& group) {
        for (Tensor* t : group) {
            t->start = at;
            at += aligned(t->param.count());
        }
    };
    place(groups[0]);
    leading = at;
    const size_t size = aligned((all + packing.parts - 1) / packing.parts) * packing.parts;
    if (packing.order) packing.order(groups[1], at, size);
    place(groups[1]);
    return {leading, coded_from(tensors, packing, size), size};
}

Layout make_layout(const Dims& d, const Part& part, const Packing& packing) {
    Layout layout;
    const std::vector<Tensor> all = whole_tensors(d);
    const size_t embeds = embed_params<float>(d).size(), finals = final_params<float>(d).size();
    std::vector<size_t> first_of = {embeds};        // the first tensor of each block of the whole model
    for (int l = 0; l < d.L; l++) first_of.push_back(first_of.back() + block_params<float>(d, l).size());
    size_t at = 0;
    // Of consecutive tensors. starts: in the bucket, by member.
    const auto bucket = [&](size_t first, size_t count, std::vector<size_t>* starts = nullptr) {
        std::vector<Tensor> tensors(all.begin() + ptrdiff_t(first), all.begin() + ptrdiff_t(first + count));
        const auto [leading, coded, size] = pack(tensors, packing);
        for (Tensor& t : tensors) {
            if (starts) {
                starts->resize(std::max(starts->size(), t.member + 1), kAbsent);
                (*starts)[t.member] = t.start;
            }
            t.bucket = int(layout.buckets.size());
            t.start += at;
        }
        std::sort(tensors.begin(), tensors.end(),
                  [](const Tensor& a, const Tensor& b) { return a.start < b.start; });
        layout.tensors.insert(layout.tensors.end(), tensors.begin(), tensors.end());
        layout.buckets.push_back(at);
        layout.leading.push_back(leading);
        layout.coded.push_back(coded);
        at += size;
        return int(layout.buckets.size()) - 1;
    };
    for (const Tensor& t : all) layout.parameters += t.param.whole();
    if (part.first || (part.last && d.kind.tied)) layout.wte = bucket(0, 1);
    if (part.first && embeds > 1) layout.embed = bucket(1, embeds - 1, &layout.embed_at);
    layout.blocks = int(layout.buckets.size());
    layout.block_at.resize(part.layers.size());
    for (size_t i = 0; i < part.layers.size(); i++) {
        const size_t l = size_t(part.layers[i]);
        bucket(first_of[l], first_of[l + 1] - first_of[l], &layout.block_at[i]);
    }
    if (part.last) layout.final = bucket(all.size() - finals, finals, &layout.final_at);
    layout.buckets.push_back(at);
    return layout;
}

}  // namespace model
