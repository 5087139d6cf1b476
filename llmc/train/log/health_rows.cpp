#include "llmc/train/log/health_rows.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/json.h"

static std::string figures(const Spread& s) {
    const double count = s.count > 0 ? s.count : 1;
    return fmt::format(R"("rms":{},"max":{},"zeros":{},"nonfinite":{})", json_number(rms(s)),
                       json_number(s.largest), json_number(s.zeros / count),
                       json_number(s.nonfinite / count));
}

std::string health_row(const Health& h) {
    std::string tensors, activations;
    for (const TensorHealth& t : h.tensors)
        tensors += fmt::format(R"({}{{"name":{},"count":{},"weight":{{{}}},"grad":{{{}}},"update":{{{}}}}})",
                               tensors.empty() ? "" : ",", json_string(t.name), json_number(t.weight.count),
                               figures(t.weight), figures(t.gradient), figures(t.update));
    for (const ActivationHealth& a : h.activations)
        activations += fmt::format(R"({}{{"name":{},"count":{},{}}})", activations.empty() ? "" : ",",
                                   json_string(a.name), json_number(a.values.count), figures(a.values));
    return JsonLine("health").add("step", h.step).raw("tensors", "[" + tensors + "]")
        .raw("activations", "[" + activations + "]").str();
}

std::string grad_norms_row(int64_t step, std::span<const std::string> names, std::span<const double> norms) {
    std::string all;
    for (size_t i = 0; i < names.size(); i++)
        all += (i ? "," : "") + json_string(names[i]) + ":" + json_number(norms[i]);
    return JsonLine("grad_norms").add("step", step).raw("norms", "{" + all + "}").str();
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
