#include "llmc/train/log/spikes.h"

#include <algorithm>

#include "llmc/base/check.h"

inline namespace logs {

std::string text_of(const Spike& s) {
    std::string text = fmt::format("{} {:.4g} is {:.1f} standard deviations above its last {} steps", s.of,
                                   s.value, s.z, Trailing::kWindow);
    if (s.first)
        return text + fmt::format("; first moved: {} (z {:.1f} at step {})", s.first->name, s.first->z,
                                  s.first->step);
    if (s.knows_tensors) return text + "; no tensor's gradient norm moved as far";
    return text + fmt::format("; with log.health the log names the tensor that moved first, {} steps after "
                              "a start", Trailing::kWindow);
}

Spikes::Spikes(const std::vector<std::string>& names, std::map<std::string, Trailing>& windows) {
    std::erase_if(windows, [&](const auto& w) { return std::ranges::find(names, w.first) == names.end(); });
    for (const std::string& name : names)
        tensors_.push_back({.name = name, .window = &windows[name], .z = {}});
}

std::optional<Spike::Moved> Spikes::first_moved(int64_t step) const {
    const Followed* first = nullptr;
    for (const Followed& t : tensors_) {
        if (t.moved_at < 0 || t.moved_at <= step - kRecent) continue;
        const bool earlier = !first || t.moved_at < first->moved_at;
        if (earlier || (t.moved_at == first->moved_at && *t.z > *first->z)) first = &t;
    }
    if (!first) return std::nullopt;
    return Spike::Moved{first->name, *first->z, first->moved_at};
}

std::optional<Spike> Spikes::see(const StepFigures& r, std::span<const double> norms) {
    bool knows = false;
    for (size_t i = 0; i < std::min(norms.size(), tensors_.size()); i++) {
        Followed& t = tensors_[i];
        const std::optional<double> z = t.window->score(norms[i]);
        knows |= z.has_value();
        if (!z || *z <= kLimit) continue;
        // a move ends kRecent steps after its start; a later score over the limit starts the next move
        if (t.moved_at < 0 || t.moved_at <= r.step - kRecent) {
            t.moved_at = r.step;
            t.z = z;
        }
    }
    const bool of_norm = r.norm_z.value_or(0) >= r.loss_z.value_or(0);
    const double z = of_norm ? r.norm_z.value_or(0) : r.loss_z.value_or(0);
    if (z <= kLimit) return std::nullopt;
    const bool begins = last_ < 0 || r.step - last_ > kRecent;
    last_ = r.step;
    if (!begins) return std::nullopt;
    return Spike{.step = r.step, .of = of_norm ? "norm" : "loss", .value = of_norm ? r.norm : r.loss, .z = z,
                 .first = first_moved(r.step), .knows_tensors = knows};
}

}  // namespace logs
