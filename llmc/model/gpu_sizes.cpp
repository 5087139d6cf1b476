#include "llmc/model/gpu_sizes.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>

#include "llmc/ops/gpu_rows.h"
#include "llmc/ops/ops.h"

namespace PRECISION::inline model {

// The rule that n breaks, and what to set instead.
static std::string rule(int n, int unit, const std::string& where, int most = INT_MAX) {
    const int last = most / unit * unit, below = std::min(n / unit * unit, last), above = below + unit;
    const std::string limit = most < INT_MAX ? fmt::format(" up to {}", last) : "",
                      text = fmt::format("kernels for GPUs take multiples of {}{}{}", unit, limit, where);
    if (below == 0 || below == last)
        return text + fmt::format("; the nearest is {}", below == 0 ? above : below);
    return text + fmt::format("; the nearest are {} and {}", below, above);
}

static std::string wrong_head(const ModelConfig& settings) {
    const int D = with_sizes(settings).head_channels;
    const bool rotary = settings.position == PositionKind::Rope || settings.qk_norm != QkNorm::None;
    const int unit = rotary ? std::max(ops::kGpuHeadUnit, ops::kGpuRotaryUnit) : ops::kGpuHeadUnit;
    if (D % unit == 0 && D <= ops::kGpuHeadMost) return "";
    const char* const from = settings.head_channels ? "" : " (model.channels / model.heads)";
    const char* const where = unit > ops::kGpuHeadUnit ? " in bf16 with rope or qk_norm" : "";
    return fmt::format("model.head_channels = {}{}: {}", D, from, rule(D, unit, where, ops::kGpuHeadMost));
}

static std::string wrong_row(const ModelConfig& settings) {
    const size_t most = kGpuNormBytes / sizeof(floatX);
    if (size_t(settings.channels) <= most) return "";
    return fmt::format("model.channels = {}: kernels of {} for GPUs take at most {} in this precision",
                       settings.channels, settings.norm.text(), most);
}

std::string wrong_on_gpus(const ModelConfig& settings, int tp) {
    const int unit = Target{Target::Cuda, 1}.product_unit(), C = settings.channels;
    if (C % unit != 0) return fmt::format("model.channels = {}: {}", C, rule(C, unit, ""));
    for (const std::string& wrong : {wrong_row(settings), wrong_head(settings)})
        if (!wrong.empty()) return wrong;
    if (ffn_fits(settings, tp, unit)) return "";
    const int F = with_sizes(settings).ffn_channels;
    const std::string where = tp == 1 ? "" : fmt::format(" with parallel.tp = {}", tp);
    return fmt::format("model.ffn_channels = {}: {}", F, rule(F, unit * tp, where));
}

}  // namespace PRECISION::model
