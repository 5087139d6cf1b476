#include "llmc/train/log/health_rows.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/json/json.h"

inline namespace logs {

static JsonObject with_figures(JsonObject to, const Spread& s) {
    const double count = s.count > 0 ? s.count : 1;
    return to.add("rms", rms(s)).add("max", s.largest).add("zeros", s.zeros / count)
        .add("nonfinite", s.nonfinite / count);
}

std::string health_row(const Health& h) {
    const auto tensor = [](const TensorHealth& t) {
        const JsonObject none;
        return JsonObject().add("name", t.name).add("count", t.weight.count)
            .add("weight", with_figures(none, t.weight)).add("grad", with_figures(none, t.gradient))
            .add("update", with_figures(none, t.update)).str();
    };
    const auto activation = [](const ActivationHealth& a) {
        return with_figures(JsonObject().add("name", a.name).add("count", a.values.count), a.values).str();
    };
    return JsonLine("health").add("step", h.step).raw("tensors", json_list(h.tensors, tensor))
        .raw("activations", json_list(h.activations, activation)).str();
}

std::string grad_norms_row(int64_t step, std::span<const std::string> names, std::span<const double> norms) {
    JsonObject all;
    for (size_t i = 0; i < names.size(); i++) all.add(names[i], norms[i]);
    return JsonLine("grad_norms").add("step", step).add("norms", all).str();
}

std::string spike_row(const Spike& s) {
    JsonLine row("spike");
    row.add("step", s.step).add("of", s.of).add("value", s.value).add("z", s.z);
    if (s.first)
        row.add("first", s.first->name).add("first_z", s.first->z).add("first_step", s.first->step);
    return row.str();
}

static void add_norm(Spread& norms, const Spread& tensor) {
    const double norm = std::sqrt(tensor.squares);
    norms.count++;
    norms.squares += norm * norm;
    norms.sum += norm;
    norms.largest = std::max(norms.largest, norm);
    if (norm > 0) norms.bins[spread_bin(norm)]++;
    else norms.zeros++;
}

std::vector<Histogram> histograms_of(const Health& h) {
    std::vector<Histogram> all = {{"norms/weights", {}}, {"norms/gradients", {}}, {"norms/updates", {}}};
    for (const TensorHealth& t : h.tensors) {
        add_norm(all[0].spread, t.weight);
        add_norm(all[1].spread, t.gradient);
        add_norm(all[2].spread, t.update);
        all.push_back({"weights/" + t.name, t.weight});
        all.push_back({"gradients/" + t.name, t.gradient});
    }
    return all;
}

}  // namespace logs
