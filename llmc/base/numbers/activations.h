// Activations of the feed-forward layer: a row of ACTIVATIONS and a formula each. The words of
// model.activation, the names of ops and the kernels of both backends derive from these two.
//
//     gelu      x s,  s = 1 / (1 + exp(-2u)),  u = sqrt(2/pi) (x + 0.044715 x^3):   x/2 (1 + tanh(u))
//     relu2     max(x, 0)^2
//     silu      x s,  s = 1 / (1 + exp(-x));  swiglu: silu(x) u (Shazeer 2020, arXiv 2002.05202)
//
// of(x): f(x), in forward. tangent(x): f(x), which a gate's backward needs, and f'(x). Math: exponentials and
// quotients of a backend. NaN passes.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "llmc/base/numbers/dtype.h"

inline namespace numbers {

// value, word, formula f, whether act = f(x) u of two inputs (the gate x, and u)
#define ACTIVATIONS(ROW)              \
    ROW(Gelu, "gelu", Gelu, false)    \
    ROW(Relu2, "relu2", Relu2, false) \
    ROW(Swiglu, "swiglu", Silu, true)

template <class Real> struct Tangent { Real value, slope; };

namespace formulas {

// slope = s + x s (1 - s) 2u', with s (1 - s) from t = exp(-2 |u|) as t / (1 + t)^2, which cancels nothing.
// Beyond |x| = 30 the slope is 0 or 1 to the last bit, and u would overflow further out.
template <class Math> struct Gelu {
    static constexpr double a = 1.5957691216057307, b = 0.07135481627260025;    // 2u = x (a + b x^2)

    template <class Real> [[gnu::always_inline]] HOST_DEVICE static Real of(Real x) {
        return Math::quotient(x, 1 + Math::exp(-(x * (Real(a) + Real(b) * (x * x)))));
    }
    template <class Real> [[gnu::always_inline]] HOST_DEVICE static Tangent<Real> tangent(Real x) {
        Real c = x > 30 ? Real(30) : x;
        c = c < -30 ? Real(-30) : c;
        const Real z = c * c, two_u = c * (Real(a) + Real(b) * z), two_du = Real(a) + Real(3 * b) * z;
        const Real t = Math::exp_negative(-std::fabs(two_u)), r = Math::quotient(Real(1), 1 + t);
        const Real s = two_u < 0 ? t * r : r;
        return {x * s, s + c * two_du * (t * r * r)};
    }
};

template <class Math> struct Relu2 {
    template <class Real> [[gnu::always_inline]] HOST_DEVICE static Real of(Real x) {
        return x > 0 ? x * x : x * 0;
    }
    template <class Real> [[gnu::always_inline]] HOST_DEVICE static Tangent<Real> tangent(Real x) {
        return {of(x), x > 0 ? 2 * x : x * 0};
    }
};

// slope = s (1 + x (1 - s)), with s and 1 - s from t = exp(-|x|), which neither overflows nor cancels.
template <class Math> struct Silu {
    template <class Real> [[gnu::always_inline]] HOST_DEVICE static Real of(Real x) {
        return Math::quotient(x, 1 + Math::exp(-x));
    }
    template <class Real> [[gnu::always_inline]] HOST_DEVICE static Tangent<Real> tangent(Real x) {
        const Real t = Math::exp_negative(-std::fabs(x)), r = Math::quotient(Real(1), 1 + t);
        const Real s = x < 0 ? t * r : r, rest = x < 0 ? r : t * r, silu = x * s;
        return {silu, s + silu * rest};
    }
};

}  // namespace formulas

#define VALUE(value, word, formula, gate) value,
enum class Activation : uint8_t { ACTIVATIONS(VALUE) };
#undef VALUE

#define WORD(value, word, formula, gate) "|" word
constexpr const char* words_of(Activation) { return &(ACTIVATIONS(WORD))[1]; }
#undef WORD

#define GATE(value, word, formula, gate) gate,
constexpr bool has_gate(Activation f) { return std::array{ACTIVATIONS(GATE)}[size_t(f)]; }
#undef GATE

// call(formula, whether there is a gate), for an activation.
template <class Math, class Call> void with_formula(Activation f, Call&& call) {
    switch (f) {
        #define CASE(value, word, formula, gate) \
            case Activation::value: return call(formulas::formula<Math>(), std::bool_constant<gate>());
        ACTIVATIONS(CASE)
        #undef CASE
    }
}

}  // namespace numbers
