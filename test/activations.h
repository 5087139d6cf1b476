// The activations by their formulas in FP64, and their derivatives, for the tests of both backends.
#pragma once
#include <cmath>

#include "test/compare.h"

namespace PRECISION {

inline const std::vector<Activation> kActivations = values_of<Activation>();
inline std::string name_of(Activation f) { return Choice<Activation>(f).text(); }

// f(x, u) and its derivatives by both; u is the second half of pre, where f has a gate.
struct Activated { double y, dx, du; };

inline Activated activated(Activation f, double x, double u) {
    if (f == Activation::Relu2) return {x > 0 ? x * x : 0, x > 0 ? 2 * x : 0, 0};
    if (f == Activation::Swiglu) {
        const double s = 1 / (1 + std::exp(-x)), rest = 1 / (1 + std::exp(x));
        return {x * s * u, u * s * (1 + x * rest), x * s};
    }
    const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return {x / 2 * (1 + t),
            (1 + t) / 2 + x / 2 * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x), 0};
}

// What activations of pre (N, P) have to be, and the gradient of pre where that of act is dact (N, F); with
// the sums that errors are measured by.
struct ExpectedActivations {
    Wide act, act_sums, dpre, dpre_sums;

    template <class T>
    ExpectedActivations(Activation f, const std::vector<T>& pre, const Wide& dact, const Wide& dact_sums,
                        int N, int F)
        : act(size_t(N) * size_t(F)), act_sums(act), dpre(pre.size()), dpre_sums(pre.size()) {
        const size_t P = pre.size() / size_t(N), width = size_t(F);
        for (size_t n = 0; n < size_t(N); n++)
            for (size_t j = 0; j < width; j++) {
                const size_t at = n * width + j, x = n * P + j, u = x + width;
                const bool gate = P > width;
                const double up = gate ? double(pre[u]) : 0;
                const Activated a = activated(f, double(pre[x]), up);
                act[at] = a.y, act_sums[at] = std::fabs(double(pre[x])) * (gate ? std::fabs(up) : 1) +
                                              std::fabs(a.y);
                dpre[x] = dact[at] * a.dx;
                dpre_sums[x] = dact_sums[at] * (std::fabs(a.dx) + std::fabs(up) + 0.1);
                if (!gate) continue;
                dpre[u] = dact[at] * a.du;
                dpre_sums[u] = dact_sums[at] * (std::fabs(a.du) + 0.1);
            }
    }
};

}  // namespace PRECISION
