// Models of every kind against PyTorch in float64, tensor by tensor: logits, gradients and the weights after
// ten or twenty steps of AdamW or Muon (dev/reference_kinds.py).
//
// Tolerance: 1e-12 of a tensor's largest element; both sides sum in orders of their own.
#include <algorithm>
#include <cmath>

#include "llmc/base/numbers/rng.h"
#include "test/reference.h"

namespace PRECISION {

static constexpr const char* kFile = "test/data/kinds_reference.safetensors";
static constexpr double kTolerance = 1e-12;

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

static Reference reference_of(const std::string& kind) {
    return {SafetensorsFile(kFile), kind + "."};
}

// What a model of these settings has at PyTorch's steps of a kind.
static Values values_of(const std::string& kind, const Config& cfg) {
    return Ours(reference_of(kind), cfg).steps();
}

// All that PyTorch has of a kind.
static Comparison compare(const std::string& kind, const Values& ours) {
    const Reference ref = reference_of(kind);
    Comparison found;
    for (const TensorInfo& t : ref.file.tensors) {
        if (!t.name.starts_with(ref.prefix)) continue;
        const std::string name = t.name.substr(ref.prefix.size());
        if (name == "tokens" || name == "lr" || name.starts_with("init.")) continue;
        const auto it = ours.find(name);
        const double error = it == ours.end() ? INFINITY : apart(it->second, ref.tensor<double>(name));
        if (error >= found.worst) found.worst = error, found.where = t.name;
        found.tensors++;
    }
    if (found.tensors != ours.size()) found.worst = INFINITY, found.where = "a tensor that PyTorch has not";
    return found;
}

TEST_IF(sizeof(floatX) == 8, every_kind_trains_as_in_pytorch) {
    const SafetensorsMetadata kinds = SafetensorsFile(kFile).metadata;
    EXPECT(kinds.size() == 9, "%zu kinds", kinds.size());
    for (const auto& [kind, settings] : kinds) {
        const Values ours = values_of(kind, parse_config(settings, kind));
        const Comparison found = compare(kind, ours);
        EXPECT(found.tensors >= 3 + 2 * 10 && found.worst <= kTolerance, "%s of %zu: %.3g apart",
               found.where.c_str(), found.tensors, found.worst);
        EXPECT(ours.at("loss").size() >= 10, "%s: %zu steps", kind.c_str(), ours.at("loss").size());
    }
}

TEST_IF(sizeof(floatX) == 8, a_perturbed_element_is_seen) {
    for (const auto& [kind, settings] : SafetensorsFile(kFile).metadata) {
        const Reference ref = reference_of(kind);
        for (const auto& [name, values] : values_of(kind, parse_config(settings, kind))) {
            const Numbers expected = ref.tensor<double>(name);
            const size_t n = values.size();
            const double step = 2.5 * kTolerance * largest(expected);
            for (const size_t i : {size_t(0), n - 1, philox(1, 0, n).x[0] % n})
                for (const double change : {step, -step, double(NAN)}) {
                    Numbers changed = values;
                    changed[i] += change;
                    EXPECT(!(apart(changed, expected) <= kTolerance), "%s.%s[%zu] passes", kind.c_str(),
                           name.c_str(), i);
                }
        }
    }
}

// One tensor too few, one too many, one of another size.
TEST_IF(sizeof(floatX) == 8, a_missing_or_foreign_tensor_is_seen) {
    const std::string kind = "nanochat_muon";
    const Values ours = values_of(kind, parse_config(SafetensorsFile(kFile).metadata.at(kind), kind));
    Values fewer = ours, more = ours, shorter = ours;
    fewer.erase("grad.h.0.gatew"), more["grad.h.1.gatew"] = {0}, shorter["logits"].pop_back();
    for (const Values& changed : {fewer, more, shorter})
        EXPECT(compare(kind, changed).worst == INFINITY, "%s passes", compare(kind, changed).where.c_str());
}

TEST_IF(sizeof(floatX) == 8, a_setting_that_differs_is_seen) {
    for (const auto& [kind, settings] : SafetensorsFile(kFile).metadata)
        for (const auto& [setting, value] : std::map<std::string, const char*>{
                 {"model.rope_theta", "200"}, {"model.norm_eps", "0.001"}, {"optimizer.beta2", "0.951"}}) {
            Config cfg = parse_config(settings, kind);
            set_value(cfg, setting, value);
            const double worst = compare(kind, values_of(kind, cfg)).worst;
            EXPECT(worst > 1e-9, "%s with another %s: %.3g apart", kind.c_str(), setting.c_str(), worst);
        }
}

}  // namespace PRECISION
