#include "llmc/base/config/axes.h"

#include <algorithm>
#include <string_view>

#include "llmc/base/check.h"

inline namespace config {

namespace {
struct Order {
    AxisOrder axes = {};                // those named, then the others: these have one rank
    unsigned named = 0;
    std::string wrong;
};
}  // namespace

static Order read_order(std::string_view text) {
    Order o;
    size_t n = 0;
    for (size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
        end = std::min(text.find(',', begin), text.size());
        const std::string_view word = text.substr(begin, end - begin);
        const MeshAxis axis = MeshAxis(std::ranges::find(axis_rows, word, &AxisRow::name) - axis_rows);
        if (axis == kMeshAxes) o.wrong = fmt::format("'{}' is no axis", word);
        else if (o.named & axis_bit(axis)) o.wrong = fmt::format("{} stands there twice", word);
        else o.axes[n++] = axis;
        o.named |= axis_bit(axis) & kAllAxes;
    }
    for (const MeshAxis a : MeshShape().order)
        if (!(o.named & axis_bit(a))) o.axes[n++] = a;
    return o;
}

std::string order_mistake(const ParallelConfig& p, int dp) {
    auto [axes, named, wrong] = read_order(p.order);
    for (const MeshAxis a : axes) {
        const AxisRow& row = axis_rows[a];
        const int size = row.setting ? p.*row.setting : dp;
        const bool left_out = size > 1 && !(named & axis_bit(a));
        if (wrong.empty() && left_out) wrong = fmt::format("{} of {} ranks is left out", row.name, size);
    }
    if (wrong.empty()) return "";
    return fmt::format("parallel.order = {}: {}; expected the axes in some order, the innermost first, as in "
                       "{}", p.order, wrong, ParallelConfig().order);
}

int model_ranks(const ParallelConfig& p) {
    int ranks = 1;
    for (const AxisRow& a : axis_rows) ranks *= a.setting ? p.*a.setting : 1;
    return ranks;
}

MeshShape mesh_shape(const ParallelConfig& p, int ranks) {
    MeshShape s = {.order = read_order(p.order).axes};
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
    std::erase_if(shown, [&](MeshAxis a) { return axis_rows[a].rare && s.*axis_rows[a].size == 1; });
    return shown;
}

}  // namespace config
