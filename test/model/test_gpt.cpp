// The whole model against PyTorch, tensor by tensor: logits, gradients and ten steps of AdamW.
//
//     make test/test_gpt && test/test_gpt [fp32|bf16|fp64]    a line per tensor: error, tolerance, ok or not
//
// dev/reference.py computed test/data/gpt_reference.safetensors in float64. `error.bf16.X` is the error of X,
// in its largest element and in root mean square, with the stored values of a bf16 run rounded at random:
// activations, their gradients and the model's weights to bf16, master weights to FP32, the rest exact;
// `error.fp32.X` likewise. Tolerances are
//
//     bf16   4 times the error for an element, 1.5 times for the root mean square: rounding to nearest is no
//            worse than at random, and sums are in FP32, with 2^-16 of the error. Another sample of the noise
//            stays within the tolerance, a larger mistake does not.
//     fp32   30 times the error: sums are in FP32 as well, of up to 192 products (the feed-forward's width),
//            sqrt(192) = 14 roundings on top of the stored value's rounding; an H100's order of sums
//            gives 22.
//     fp64   1e-10 of the tensor's largest element, for both.
//
// AdamW divides gradients by their own size. For gradients of pure noise, the error of a weight is of the
// order of the learning rate, and a few elements of noise make up the root mean square: after ten steps the
// root mean square has an element's tolerance. The gradient of K's bias is pure noise, as softmax ignores the
// bias; the file has errors per matrix of qkv, with separate tolerances for Q and V.
#include <algorithm>
#include <cmath>

#include "llmc/base/numbers/rng.h"
#include "test/reference.h"

namespace PRECISION {

static constexpr bool kIsFp64 = sizeof(floatX) == 8, kIsBf16 = sizeof(floatX) == 2;
static constexpr double kElement = kIsBf16 ? 4 : 30, kRms = kIsBf16 ? 1.5 : 30;

struct Expected {
    Numbers values;
    Numbers element, rms;       // tolerances, one per part of the tensor, of equal size
    double element_at(size_t i) const { return element[i * element.size() / values.size()]; }
};
using Expectations = std::map<std::string, Expected>;

static Expectations expectations() {
    const Reference ref;
    Expectations all;
    for (const TensorInfo& t : ref.file.tensors) {
        const bool single = t.name == "logits" || t.name == "loss" || t.name == "norm";
        if (!single && !t.name.starts_with("grad.") && !t.name.starts_with("final.")) continue;
        Expected& e = all[t.name];
        e.values = ref.tensor<double>(t.name);
        double largest = 0;
        for (const double x : e.values) largest = std::max(largest, std::fabs(x));
        e.element = e.rms = {1e-10 * largest};
        if (kIsFp64) continue;
        const Numbers units = ref.tensor<double>(std::string("error.") + TEST_PRECISION + "." + t.name);
        const auto middle = units.begin() + int64_t(units.size() / 2);
        e.element.assign(units.begin(), middle);
        e.rms.assign(middle, units.end());
        for (double& x : e.element) x *= kElement;
        for (double& x : e.rms) x *= t.name.starts_with("final.") ? kElement : kRms;
    }
    return all;
}

// A tensor's line: of the element, and of the part, whose error is the largest relative to its tolerance.
struct Comparison {
    std::string name;
    double error = 0, tolerance = 1, rms = 0, rms_tolerance = 1;
    const char* problem = nullptr;
};

static Comparison compare(const std::string& name, const Numbers& actual, const Expected& e) {
    Comparison v = {.name = name};
    if (actual.size() != e.values.size()) return v.problem = "another size", v;
    const size_t n = e.values.size() / e.element.size();
    for (size_t part = 0; part < e.element.size(); part++) {
        double squares = 0;
        for (size_t i = part * n; i < (part + 1) * n; i++) {
            const double error = std::fabs(actual[i] - e.values[i]);
            squares += error * error;
            if (error / e.element[part] <= v.error / v.tolerance || std::isnan(v.error)) continue;
            v.error = error, v.tolerance = e.element[part];
        }
        const double rms = std::sqrt(squares / double(n));
        const bool worse = !(rms / e.rms[part] <= v.rms / v.rms_tolerance);
        if (worse && !std::isnan(v.rms)) v.rms = rms, v.rms_tolerance = e.rms[part];
    }
    if (!(v.error <= v.tolerance) || !(v.rms <= v.rms_tolerance)) v.problem = "FAIL";
    return v;
}

// Every tensor of either side.
static std::vector<Comparison> compare(const Expectations& expected, const Values& actual) {
    std::vector<Comparison> all;
    for (const auto& [name, e] : expected) {
        const auto it = actual.find(name);
        all.push_back(compare(name, it == actual.end() ? Numbers() : it->second, e));
        if (it == actual.end()) all.back().problem = "not in ours";
    }
    for (const auto& [name, values] : actual)
        if (!expected.contains(name)) all.push_back({.name = name, .problem = "not in the reference"});
    return all;
}

TEST(ten_steps_equal_pytorch) {
    const auto comparisons = compare(expectations(), ours());
    printf("%-24s largest error  tolerance     rms error  tolerance\n", TEST_PRECISION);
    for (const Comparison& v : comparisons) {
        const char *name = v.name.c_str(), *problem = v.problem ? v.problem : "ok";
        printf("    %-20s %13.3g %10.3g %13.3g %10.3g  %s\n", name, v.error, v.tolerance, v.rms,
               v.rms_tolerance, problem);
        EXPECT(!v.problem, "%s: %s", name, problem);
    }
    EXPECT(comparisons.size() == 3 + 2 * size_t(2 + 2 * 12 + 2), "%zu tensors compared", comparisons.size());
}

// By the products of run.products = fp8. In fp64 the codes are PyTorch's: losses and norms are exact. Else
// elements fall to the code beside: losses are off by about as much as FP8 itself changes.
TEST(ten_steps_in_fp8_equal_pytorch) {
    const Reference ref;
    Config cfg = config_of(ref);
    cfg.run.products = ProductKind::Fp8;
    const Values got = Ours(Reference(), cfg).steps();
    for (const char* name : {"loss", "norm"}) {
        const Numbers plain = ref.tensor<double>(name);
        const Numbers want = ref.tensor<double>(std::string("fp8.") + name);
        double change = 0, error = 0;
        for (size_t i = 0; i < want.size(); i++) {
            change = std::max(change, std::fabs(plain[i] - want[i]) / want[i]);
            error = std::max(error, std::fabs(got.at(name)[i] - want[i]) / want[i]);
        }
        EXPECT(error <= (kIsFp64 ? 1e-9 : 1.5 * change), "%s: %.3g off of %.3g", name, error, change);
        printf("%-24s fp8.%s: %.3g off, FP8 changes %.3g\n", TEST_PRECISION, name, error, change);
    }
}

TEST(a_perturbed_element_fails) {
    for (const auto& [name, e] : expectations()) {
        const size_t n = e.values.size();
        Numbers changed = ours().at(name);
        for (const size_t i : {size_t(0), n - 1, philox(1, 0, n).x[0] % n}) {
            const double before = changed[i], step = 2.5 * e.element_at(i);
            for (const double change : {step, -step, double(NAN)}) {
                changed[i] = before + change;
                EXPECT(compare(name, changed, e).problem, "%s[%zu] passes", name.c_str(), i);
            }
            changed[i] = before;
        }
    }
}

// Exactly the tensor that is amiss has to fail.
TEST(a_missing_or_foreign_tensor_fails) {
    const Expectations expected = expectations();
    const auto notices = [&](const std::string& name, auto&& change) {
        Values changed = ours();
        change(changed);
        std::vector<std::string> failed;
        for (const Comparison& v : compare(expected, changed)) if (v.problem) failed.push_back(v.name);
        return failed == std::vector{name};
    };
    for (const char* name : {"logits", "loss", "grad.wte", "grad.h.1.fcprojb", "final.h.0.qkvw"}) {
        EXPECT(notices(name, [&](Values& v) { v.erase(name); }), "%s is missing", name);
        EXPECT(notices(name, [&](Values& v) { v[name].push_back(0); }), "%s is longer", name);
        EXPECT(notices(name, [&](Values& v) { v[name].clear(); }), "%s is empty", name);
    }
    EXPECT(notices("grad.h.2.qkvw", [](Values& v) { v["grad.h.2.qkvw"] = {0}; }), "a foreign tensor passes");
}

// Central differences of step h = 1e-5: the loss is exact to 1e-15 and the slope to 1e-10; the third
// derivative adds h^2 / 6 of itself. fp64 only: otherwise rounding hides a step's change.
static void slopes() {
    static constexpr double h = 1e-5;
    Ours o;
    const Batch b = o.batch(0);
    o.loss_and_gradients(b);
    for (const Tensor& t : o.model.shards.layout.tensors) {
        const std::vector<real> w = whole_tensor(o.model.shards, t);
        for (size_t k = 0; k < 8; k++) {
            const size_t i = size_t(philox(2, k, t.global).x[0]) % w.size();
            double loss[2];
            for (const int side : {0, 1}) {
                std::vector<real> moved = w;
                moved[i] += real(side ? h : -h);
                set_tensor(o.model.shards, t, moved);
                loss[side] = o.loss(b);
            }
            set_tensor(o.model.shards, t, w);
            const double gradient = double(fetched(o.model.shards.grads + t.start + i, 1)[0]);
            const double slope = (loss[1] - loss[0]) / (2 * h);
            EXPECT(std::fabs(slope - gradient) <= 1e-9 + 1e-7 * std::fabs(gradient),
                   "%s[%zu]: gradient %.12g, slope %.12g", t.name.c_str(), i, gradient, slope);
        }
    }
}
[[maybe_unused]] static bool added_slopes =
    kIsFp64 && test::add(__FILE__, TEST_PRECISION, "gradients_are_slopes_of_the_loss", slopes);

}  // namespace PRECISION
