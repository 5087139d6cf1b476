#include "llmc/base/config/axes.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "llmc/base/check.h"

static std::vector<std::string_view> words_of_order(std::string_view order) {
    std::vector<std::string_view> words;
    for (size_t begin = 0; begin <= order.size();) {
        const size_t end = std::min(order.find(',', begin), order.size());
        words.push_back(order.substr(begin, end - begin));
        begin = end + 1;
    }
    return words;
}

static std::optional<MeshAxis> axis_of(std::string_view name) {
    for (int a = 0; a < kMeshAxes; a++)
        if (name == axis_rows[a].name) return MeshAxis(a);
    return {};
}

std::string order_mistake(const ParallelConfig& p, int dp) {
    unsigned named = 0;
    std::string wrong;
    for (const std::string_view word : words_of_order(p.order)) {
        const std::optional<MeshAxis> axis = axis_of(word);
        if (!axis) wrong = fmt::format("'{}' is no axis", word);
        else if (named & axis_bit(*axis)) wrong = fmt::format("{} stands there twice", word);
        named |= axis ? axis_bit(*axis) : 0;
    }
    for (const AxisRow& a : axis_rows) {
        const int size = a.setting ? p.*a.setting : dp;
        const bool left_out = size > 1 && !(named & axis_bit(MeshAxis(&a - axis_rows)));
        if (wrong.empty() && left_out) wrong = fmt::format("{} of {} ranks is left out", a.name, size);
    }
    if (wrong.empty()) return "";
    return fmt::format("parallel.order = {}: {}; expected the axes in some order, the innermost first, as in "
                       "{}", p.order, wrong, ParallelConfig().order);
}

// The axes named, then the others: those have one rank.
static AxisOrder order_of(const ParallelConfig& p) {
    AxisOrder order = {};
    unsigned placed = 0;
    size_t n = 0;
    const auto place = [&](MeshAxis a) {
        if (!(placed & axis_bit(a))) order[n++] = a;
        placed |= axis_bit(a);
    };
    for (const std::string_view word : words_of_order(p.order))
        if (const std::optional<MeshAxis> axis = axis_of(word)) place(*axis);
    for (const MeshAxis a : MeshShape().order) place(a);
    return order;
}

int model_ranks(const ParallelConfig& p) {
    int ranks = 1;
    for (const AxisRow& a : axis_rows) ranks *= a.setting ? p.*a.setting : 1;
    return ranks;
}

MeshShape mesh_shape(const ParallelConfig& p, int ranks) {
    MeshShape s = {.order = order_of(p)};
    for (const AxisRow& a : axis_rows) s.*a.size = a.setting ? p.*a.setting : ranks / model_ranks(p);
    s.shard = p.zero_group ? p.zero_group : ranks_of(s, kGradientAxes);
    return s;
}

int ranks_of(const MeshShape& s, unsigned axes) {
    int ranks = 1;
    for (const MeshAxis a : s.order) ranks *= axes & axis_bit(a) ? s.*axis_rows[a].size : 1;
    return ranks;
}

int stride_of(const MeshShape& s, MeshAxis axis) {
    int stride = 1;
    for (size_t i = 0; s.order[i] != axis; i++) stride *= s.*axis_rows[s.order[i]].size;
    return stride;
}

int index_on(const MeshShape& s, MeshAxis axis, int rank) {
    return rank / stride_of(s, axis) % (s.*axis_rows[axis].size);
}

std::vector<MeshAxis> shown_axes(const MeshShape& s) {
    std::vector<MeshAxis> shown(s.order.rbegin(), s.order.rend());
    std::erase_if(shown, [](MeshAxis a) { return axis_rows[a].missing != nullptr; });
    return shown;
}
