// Models of every kind against PyTorch in float64, tensor by tensor: logits, gradients and the weights after
// ten steps of AdamW, twenty of Muon (dev/reference_kinds.py).
//
// Tolerance: 1e-12 of a tensor's largest element; both sides sum in orders of their own.
#include <algorithm>
#include <cmath>

#include "test/reference.h"

namespace PRECISION {

static constexpr const char* kFile = "test/data/kinds_reference.safetensors";

static double largest(const Numbers& x) {
    double found = 0;
    for (const double v : x) found = std::max(found, std::fabs(v));
    return found;
}

// Largest difference, in units of the largest element; infinite where the sizes differ.
static double apart(const Numbers& a, const Numbers& b) {
    if (a.size() != b.size() || b.empty()) return INFINITY;
    Numbers d(a.size());
    for (size_t i = 0; i < a.size(); i++) {
        d[i] = a[i] - b[i];
        if (std::isnan(d[i])) return INFINITY;
    }
    return largest(d) / largest(b);
}

struct Comparison { size_t tensors = 0; double worst = 0; std::string where = ""; };

// All that PyTorch has of a kind against a model of these settings.
static Comparison compare(const std::string& kind, const Config& cfg) {
    const std::string prefix = kind + ".";
    Ours o(Reference{SafetensorsFile(kFile), prefix}, cfg);
    const Values ours = o.steps();
    Comparison found;
    for (const TensorInfo& t : o.ref.file.tensors) {
        if (!t.name.starts_with(prefix)) continue;
        const std::string name = t.name.substr(prefix.size());
        if (name == "tokens" || name == "lr" || name.starts_with("init.")) continue;
        const auto it = ours.find(name);
        const double error = it == ours.end() ? INFINITY : apart(it->second, o.ref.tensor<double>(name));
        if (error >= found.worst) found.worst = error, found.where = t.name;
        found.tensors++;
    }
    if (found.tensors != ours.size()) found.worst = INFINITY, found.where = "a tensor that PyTorch has not";
    return found;
}

TEST_IF(sizeof(floatX) == 8, every_kind_trains_as_in_pytorch) {
    const SafetensorsMetadata kinds = SafetensorsFile(kFile).metadata;
    EXPECT(kinds.size() == 8, "%zu kinds", kinds.size());
    for (const auto& [kind, settings] : kinds) {
        const Comparison found = compare(kind, parse_config(settings, kind));
        EXPECT(found.tensors >= 3 + 2 * 10 && found.worst <= 1e-12, "%s of %zu: %.3g apart",
               found.where.c_str(), found.tensors, found.worst);
    }
}

TEST_IF(sizeof(floatX) == 8, a_setting_that_differs_is_seen) {
    for (const auto& [kind, settings] : SafetensorsFile(kFile).metadata)
        for (const auto& [setting, value] : std::map<std::string, const char*>{
                 {"model.rope_theta", "200"}, {"model.norm_eps", "0.001"}, {"optimizer.beta2", "0.951"}}) {
            Config cfg = parse_config(settings, kind);
            set_value(cfg, setting, value);
            const double worst = compare(kind, cfg).worst;
            EXPECT(worst > 1e-9, "%s with another %s: %.3g apart", kind.c_str(), setting.c_str(), worst);
        }
}

}  // namespace PRECISION
