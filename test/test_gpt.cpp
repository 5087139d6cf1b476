// The whole model against PyTorch, tensor by tensor: logits, gradients and ten steps of AdamW.
//
//     make test/test_gpt && test/test_gpt [fp32|bf16|fp64]    a line per tensor: error, tolerance, verdict
//
// dev/reference.py computed test/data/gpt_reference.safetensors in float64. There `error.bf16.X` is how far
// an element of X is off at most when all that a bf16 run stores is rounded at random: activations, their
// gradients and the weights that the model reads to bf16, master weights to FP32, the rest being exact;
// `error.fp32.X` likewise. Tolerances are
//
//     bf16   4 times that: rounding to nearest is no worse than at random, and sums are in FP32, whose error
//            is 2^-16 of it. Another sample of the same noise has a largest element within this.
//     fp32   20 times that: sums are in FP32 as well, of up to 192 products (the feed-forward's width): that
//            is sqrt(192) = 14 roundings on top of the one of what is stored.
//     fp64   1e-10 of the tensor's largest element.
//
// AdamW divides gradients by their own size. Where a gradient is noise and nothing else (the bias of K, to
// which softmax is blind), the error after ten steps is of the order of the learning rate; the file has
// errors per part of qkv, so Q and V are held to theirs.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "llmc/base/context.h"
#include "llmc/base/rng.h"
#include "llmc/io/safetensors.h"
#include "llmc/train/model.h"
#include "test/test.h"

namespace PRECISION {

static constexpr bool kIsFp64 = sizeof(floatX) == 8, kIsBf16 = sizeof(floatX) == 2;
static constexpr double kFactor = kIsFp64 ? 1 : kIsBf16 ? 4 : 20;

using Numbers = std::vector<double>;
using Values = std::map<std::string, Numbers>;      // by name, padding left out

struct Reference {
    SafetensorsFile file{"test/data/gpt_reference.safetensors"};
    Values expected, tolerances;        // a tensor's tolerances: one per part, of equal size

    Reference() {
        for (const TensorInfo& t : file.tensors) {
            if (!t.name.starts_with("grad.") && !t.name.starts_with("final.") && t.name != "logits" &&
                t.name != "loss" && t.name != "norm")
                continue;
            const Numbers& values = expected[t.name] = tensor<double>(t.name);
            Numbers& units = tolerances[t.name];
            if (kIsFp64) units = {1e-10 * largest(values)};
            else units = tensor<double>(std::string("error.") + TEST_PRECISION + "." + t.name);
            for (double& unit : units) unit *= kFactor;
        }
    }
    static double largest(const Numbers& values) {
        double m = 0;
        for (const double x : values) m = std::max(m, std::fabs(x));
        return m;
    }
    double number(const char* key) const { return strtod(file.metadata.at(key).c_str(), nullptr); }
    int integer(const char* key) const { return int(number(key)); }
    template <class T> std::vector<T> tensor(const std::string& name) const {
        const TensorInfo* t = file.find(name);
        CHECK(t && t->bytes() % sizeof(T) == 0, "%s: no tensor %s", file.path.c_str(), name.c_str());
        std::vector<T> values(t->bytes() / sizeof(T));
        file.read(*t, values.data());
        return values;
    }
};

static std::vector<int64_t> shape_of(const Param& p) {
    return p.cols == 1 ? std::vector<int64_t>{p.used_rows} : std::vector<int64_t>{p.used_rows, p.cols};
}

// ---------------------------------------------------------------------------------------------------------
// ours

static Config config_of(const Reference& ref) {
    Config c;
    c.model.layers = ref.integer("layers"), c.model.heads = ref.integer("heads");
    c.model.channels = ref.integer("channels"), c.model.context = ref.integer("context");
    c.model.vocab = ref.integer("vocab");
    c.optimizer.beta1 = ref.number("beta1"), c.optimizer.beta2 = ref.number("beta2");
    c.optimizer.eps = ref.number("eps"), c.optimizer.weight_decay = ref.number("weight_decay");
    c.optimizer.grad_clip = ref.number("grad_clip");
    return c;
}

struct Ours {
    Reference ref;
    Config cfg = config_of(ref);
    int B = ref.integer("batch"), T = ref.integer("tokens");
    Dims d = dims_of(cfg, cfg.model.vocab);
    Model model{cfg, d, Mesh(), B, false};
    std::vector<int32_t> inputs, targets;

    Ours() {
        omp_set_num_threads(context.threads);
        model.allocate();
        for (const Tensor& t : model.zero.layout.tensors) {
            ref.file.require("init." + t.name, "F32", shape_of(t.param));
            const auto init = ref.tensor<float>("init." + t.name);
            const std::vector<real> values(init.begin(), init.end());
            model.zero.import_tensor(t, 0, values.size(), values.data());
        }
    }

    Batch batch(int step) {
        const auto tokens = ref.tensor<int32_t>("tokens");
        inputs.clear(), targets.clear();
        for (int b = 0; b < B; b++) {
            const int32_t* row = tokens.data() + size_t(step * B + b) * size_t(T + 1);
            inputs.insert(inputs.end(), row, row + T);
            targets.insert(targets.end(), row + 1, row + 1 + T);
        }
        return {.tokens = inputs.data(), .targets = targets.data(), .B = B, .T = T};
    }

    // Mean loss per token, without gradients; leaves the logits.
    double loss(const Batch& b) {
        model.gpt.clear_loss();
        model.gpt.forward(model.zero, b);
        model.gpt.head_loss(model.zero, b);
        return *model.gpt.loss / (B * T);
    }

    double loss_and_gradients(const Batch& b) {
        model.zero.clear_grads();
        model.gpt.clear_loss();
        model.gpt.forward(model.zero, b);
        model.gpt.backward(model.zero, b, real(1.0 / (B * T)));
        return *model.gpt.loss / (B * T);
    }

    Numbers logits() const {
        Numbers all;
        CHECK(model.gpt.chunk >= B * T, "logits of %d rows, expected %d", model.gpt.chunk, B * T);
        for (int n = 0; n < B * T; n++) {
            const floatX* row = model.gpt.logits + size_t(n) * size_t(d.Vp);
            for (int v = 0; v < d.V; v++) all.push_back(double(row[v]));
        }
        return all;
    }

    Values ten_steps() {
        Values out;
        const auto lr = ref.tensor<double>("lr");
        for (int step = 0; step < int(lr.size()); step++) {
            const Batch b = batch(step);
            if (step == 0) loss(b), out["logits"] = logits();
            out["loss"].push_back(loss_and_gradients(b));
            for (const Tensor& t : model.zero.layout.tensors) {
                const real* g = model.zero.grads + t.start;
                if (step == 0) out["grad." + t.name].assign(g, g + t.param.used());
            }
            out["norm"].push_back(model.optimizer->clip_gradients(model.gpt.loss).norm);
            model.optimizer->update(lr[size_t(step)], step);
        }
        for (const Tensor& t : model.zero.layout.tensors) {
            std::vector<real> w(t.param.used());
            model.zero.export_tensor(t, 0, w.size(), w.data());
            out["final." + t.name].assign(w.begin(), w.end());
        }
        return out;
    }
};

static const Values& ours() {
    static const Values values = Ours().ten_steps();
    return values;
}

// ---------------------------------------------------------------------------------------------------------
// the comparison

// A tensor's line, of the element whose error is the largest relative to its tolerance.
struct Verdict {
    std::string name;
    double error, tolerance;
    const char* problem;        // null: none
};

static double tolerance_of(const Numbers& parts, size_t i, size_t count) {
    return parts[i * parts.size() / count];
}

static Verdict verdict(const std::string& name, const Numbers& a, const Numbers& expected,
                       const Numbers& parts) {
    const size_t count = expected.size();
    if (a.size() != count) return {name, INFINITY, 0, "another size"};
    Verdict worst = {name, 0, parts[0], nullptr};
    for (size_t i = 0; i < count; i++) {
        const double error = std::fabs(a[i] - expected[i]), tolerance = tolerance_of(parts, i, count);
        if (!(error <= tolerance)) worst.problem = "FAIL";      // NaN as well
        if (std::isnan(worst.error) || error / tolerance <= worst.error / worst.tolerance) continue;
        worst.error = error, worst.tolerance = tolerance;
    }
    return worst;
}

// Every tensor of either side.
static std::vector<Verdict> compare(const Reference& ref, const Values& actual) {
    std::vector<Verdict> all;
    for (const auto& [name, values] : ref.expected) {
        const auto it = actual.find(name);
        if (it == actual.end()) all.push_back({name, INFINITY, 0, "not in ours"});
        else all.push_back(verdict(name, it->second, values, ref.tolerances.at(name)));
    }
    for (const auto& [name, values] : actual)
        if (!ref.expected.contains(name)) all.push_back({name, INFINITY, 0, "not in the reference"});
    return all;
}

static std::vector<std::string> failures(const std::vector<Verdict>& verdicts) {
    std::vector<std::string> names;
    for (const Verdict& v : verdicts) if (v.problem) names.push_back(v.name);
    return names;
}

TEST(ten_steps_equal_pytorch) {
    const Reference ref;
    const auto verdicts = compare(ref, ours());
    printf("%s, largest error     of tolerance\n", TEST_PRECISION);
    for (const Verdict& v : verdicts) {
        const char* name = v.name.c_str();
        printf("    %-20s %10.3g %10.3g  %s\n", name, v.error, v.tolerance, v.problem ? v.problem : "ok");
        EXPECT(!v.problem, "%s: error %.3g, tolerance %.3g: %s", name, v.error, v.tolerance, v.problem);
    }
    EXPECT(verdicts.size() == 3 + 2 * size_t(2 + 2 * 12 + 2), "%zu tensors compared", verdicts.size());
}

TEST(a_perturbed_element_fails) {
    const Reference ref;
    for (const auto& [name, expected] : ref.expected) {
        const Numbers& parts = ref.tolerances.at(name);
        const size_t n = expected.size();
        Numbers changed = ours().at(name);
        for (const size_t i : {size_t(0), n - 1, philox(1, 0, n).x[0] % n}) {
            const double before = changed[i], step = 2.5 * tolerance_of(parts, i, n);
            for (const double change : {step, -step, double(NAN)}) {
                changed[i] = before + change;
                EXPECT(verdict(name, changed, expected, parts).problem, "%s[%zu] passes", name.c_str(), i);
            }
            changed[i] = before;
        }
    }
}

// Exactly the tensor that is amiss has to fail.
TEST(a_missing_or_foreign_tensor_fails) {
    const Reference ref;
    const auto notices = [&](const std::string& name, auto&& change) {
        Values changed = ours();
        change(changed);
        return failures(compare(ref, changed)) == std::vector{name};
    };
    for (const char* name : {"logits", "loss", "grad.wte", "grad.h.1.fcprojb", "final.h.0.qkvw"}) {
        EXPECT(notices(name, [&](Values& v) { v.erase(name); }), "%s is missing", name);
        EXPECT(notices(name, [&](Values& v) { v[name].push_back(0); }), "%s is longer", name);
        EXPECT(notices(name, [&](Values& v) { v[name].clear(); }), "%s is empty", name);
    }
    EXPECT(notices("grad.h.2.qkvw", [](Values& v) { v["grad.h.2.qkvw"] = {0}; }), "a foreign tensor passes");
}

// ---------------------------------------------------------------------------------------------------------
// gradients are the slopes of the loss

// Central differences of step h = 1e-5: the loss is exact to 1e-15, so the slope is to 1e-10; the third
// derivative adds h^2 / 6 of it. fp64 only: elsewhere rounding hides what a step changes.
static void slopes() {
    static constexpr double h = 1e-5;
    Ours o;
    const Batch b = o.batch(0);
    o.loss_and_gradients(b);
    for (const Tensor& t : o.model.zero.layout.tensors) {
        std::vector<real> w(t.param.used());
        o.model.zero.export_tensor(t, 0, w.size(), w.data());
        for (size_t k = 0; k < 8; k++) {
            const size_t i = size_t(philox(2, k, t.global).x[0]) % w.size();
            double loss[2];
            for (const int side : {0, 1}) {
                const real moved = real(double(w[i]) + (side ? h : -h));
                o.model.zero.import_tensor(t, i, 1, &moved);
                loss[side] = o.loss(b);
            }
            o.model.zero.import_tensor(t, i, 1, &w[i]);
            const double gradient = double(o.model.zero.grads[t.start + i]);
            const double slope = (loss[1] - loss[0]) / (2 * h);
            EXPECT(std::fabs(slope - gradient) <= 1e-9 + 1e-7 * std::fabs(gradient),
                   "%s[%zu]: gradient %.12g, slope %.12g", t.name.c_str(), i, gradient, slope);
        }
    }
}
[[maybe_unused]] static bool added_slopes =
    kIsFp64 && test::add(__FILE__, TEST_PRECISION, "gradients_are_slopes_of_the_loss", slopes);

}  // namespace PRECISION
