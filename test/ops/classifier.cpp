#include "test/compare.h"

namespace PRECISION {

// V % 8 = 2 and 1 among them; the padding is NaN before the call.
struct Shape { int N, V, Vp; };
static const Shape kShapes[] = {{1, 1, 128},     {3, 10, 128},   {5, 1026, 1152},
                                {2, 4099, 4224}, {33, 258, 384}, {2, 128, 128}};

// Of the logits, by the formula: value and slope.
struct Cap {
    double c = 0;
    SoftcapKind kind = SoftcapKind::Tanh;

    double of(double l) const {
        if (c == 0) return l;
        return kind == SoftcapKind::Tanh ? c * std::tanh(l / c) : c * l / std::sqrt(l * l + c * c);
    }
    double slope(double l) const {
        if (c == 0) return 1;
        if (kind == SoftcapKind::Tanh) return 1 / (std::cosh(l / c) * std::cosh(l / c));
        return std::pow(1 + l / c * l / c, -1.5);
    }
};
static const Cap kCaps[] = {{}, {5, SoftcapKind::Tanh}, {5, SoftcapKind::Sqrt}};

struct Tensors {
    Shape s;
    Cap cap;
    std::vector<floatX> logits;
    std::vector<int32_t> targets;
    std::vector<real> losses;

    explicit Tensors(const Shape& s, double size = 3, const Cap& cap = {})
        : s(s), cap(cap), logits(normals<floatX>(size_t(s.N) * s.Vp, 1, size)), losses(poisoned<real>(s.N)) {
        for (int n = 0; n < s.N; n++) {
            targets.push_back(n == 0 ? s.V - 1 : int32_t(uniform(1, 2, n) * s.V));
            for (int i = s.V; i < s.Vp; i++) logits[size_t(n) * s.Vp + i] = floatX(real(NAN));
        }
    }
    cpu::Classifier call() {
        return {.losses = losses.data(), .logits = logits.data(), .stats = nullptr, .targets = targets.data(),
                .N = s.N, .V = s.V, .Vp = s.Vp, .v0 = 0, .slices = 1, .cap = real(cap.c),
                .cap_kind = cap.kind};
    }
    void forward() { cpu::classifier_forward(call()); }
    void backward(real dloss) { cpu::classifier_forward_backward(call(), dloss); }
};

TEST(matches_the_reference) {
    for (const Shape& s : kShapes)
        for (const auto& [size, cap] : {std::pair{3., kCaps[0]}, {1e3, kCaps[0]}, {3., kCaps[1]},
                                        {30., kCaps[1]}, {3., kCaps[2]}, {30., kCaps[2]}}) {
            const Lent lent(2);
            Tensors t(s, size, cap), f(s, size, cap);
            const double dloss = 1.0 / 1024;
            Wide losses, gradient(t.logits.size()), loss_sums, sums(t.logits.size(), 1e-30);
            for (int n = 0; n < s.N; n++) {
                const floatX* const logits = t.logits.data() + size_t(n) * s.Vp;
                Wide row;
                for (int i = 0; i < s.V; i++) row.push_back(cap.of(double(logits[i])));
                double max = -INFINITY, total = 0;
                for (int i = 0; i < s.V; i++) max = std::max(max, double(row[i]));
                for (int i = 0; i < s.V; i++) total += std::exp(double(row[i]) - max);
                losses.push_back(max + std::log(total) - double(row[t.targets[n]]));
                loss_sums.push_back(std::fabs(max) + std::log(total) + std::fabs(double(row[t.targets[n]])));
                for (int i = 0; i < s.V; i++) {
                    const double p = std::exp(row[i] - max) / total, hot = i == t.targets[n];
                    gradient[size_t(n) * s.Vp + i] = (p - hot) * dloss * cap.slope(double(logits[i]));
                    sums[size_t(n) * s.Vp + i] = (p + hot) * dloss + 1e-38;
                }
            }
            f.forward();
            EXPECT_CLOSE(f.losses, losses, loss_sums);
            t.backward(real(dloss));
            EXPECT(same_bits(t.losses, f.losses));
            EXPECT_CLOSE(t.logits, gradient, sums);
            for (int n = 0; n < s.N; n++)
                for (int i = s.V; i < s.Vp; i++)
                    EXPECT(double(t.logits[size_t(n) * s.Vp + i]) == 0, "padding %d", i);
        }
}

TEST(what_is_not_finite_shows_in_the_loss) {
    const Lent lent(2);
    for (const double bad : {double(NAN), double(INFINITY)})
        for (const int at : {0, 9, 700, 1025}) {
            Tensors t({1, 1026, 1152}), u({1, 1026, 1152});
            t.logits[at] = u.logits[at] = floatX(real(bad));
            t.forward(), u.backward(1);
            EXPECT(!std::isfinite(double(t.losses[0])) && !std::isfinite(double(u.losses[0])), "%g at %d",
                   bad, at);
        }
    Tensors t({1, 1026, 1152});                             // all but the target impossible
    for (int i = 0; i < 1025; i++) t.logits[i] = floatX(real(-INFINITY));
    t.backward(1);
    EXPECT_NEAR(t.losses[0], 0, 1e-6);
    EXPECT(double(t.logits[0]) == 0 && std::fabs(double(t.logits[1025])) < 1e-6);
}

// A row of logits cut into slices, as over ranks.
struct Slices {
    int V, slices, width;
    std::vector<Tensors> all;
    std::vector<real> stats;

    Slices(const Tensors& whole, int slices, int width)
        : V(whole.s.V), slices(slices), width(width), stats(poisoned<real>(size_t(slices * whole.s.N * 3))) {
        for (int p = 0; p < slices; p++) {
            all.emplace_back(Shape{whole.s.N, std::clamp(V - p * width, 0, width), width}, 3, whole.cap);
            Tensors& t = all.back();
            t.targets = whole.targets;
            for (int n = 0; n < t.s.N; n++)
                for (int i = 0; i < width; i++)
                    t.logits[size_t(n) * width + i] =
                        i < t.s.V ? whole.logits[size_t(n) * whole.s.Vp + p * width + i] : floatX(real(NAN));
        }
    }
    cpu::Classifier call(int p) {
        cpu::Classifier c = all[size_t(p)].call();
        c.stats = stats.data() + size_t(p * c.N * 3);
        c.v0 = p * width, c.slices = slices;
        return c;
    }
    void forward() {
        for (int p = 0; p < slices; p++) cpu::classifier_forward(call(p));
        for (int p = 0; p < slices; p++) cpu::classifier_merge(call(p), stats.data());
    }
    void backward(real dloss) {
        for (int p = 0; p < slices; p++) cpu::classifier_forward_backward(call(p), dloss);
        for (int p = 0; p < slices; p++) cpu::classifier_merge_backward(call(p), stats.data(), dloss);
    }
};

TEST(slices_of_the_vocabulary_are_the_whole) {
    const Lent lent(2);
    for (const auto& [slices, width] : {std::pair{2, 640}, {3, 384}, {4, 384}, {8, 128}, {12, 128}})
        for (const auto& [size, cap] : {std::pair{3., kCaps[0]}, {1e3, kCaps[0]}, {8., kCaps[1]},
                                        {8., kCaps[2]}}) {
            Tensors whole({5, 1026 - 10 * (slices == 8), 1152}, size, cap);
            Slices p(whole, slices, width), f(whole, slices, width);
            const double dloss = 0.1;
            f.forward();
            p.backward(real(dloss));
            const std::vector<floatX> before = whole.logits;
            whole.backward(real(dloss));
            Wide sums;
            const double near = sizeof(floatX) == 8 ? 1e-12 : sizeof(floatX) == 4 ? 1e-5 : 1. / 64;
            for (int n = 0; n < whole.s.N; n++) {
                double largest = 0;
                for (int i = 0; i < whole.s.V; i++) {
                    const size_t at = size_t(n) * 1152 + size_t(i), hot = i == whole.targets[n];
                    const double want = double(whole.logits[at]), logit = double(before[at]);
                    const size_t column = size_t(i % width);
                    EXPECT_NEAR(p.all[size_t(i / width)].logits[size_t(n * width) + column], want,
                                near * (std::fabs(want) + dloss * double(hot)) + 1e-38);
                    largest = std::max(largest, std::fabs(logit));
                }
                sums.push_back(10 + 2 * largest);
            }
            EXPECT_CLOSE(p.all[0].losses, wide(whole.losses), sums);
            for (int k = 0; k < slices; k++) {
                EXPECT(same_bits(p.all[k].losses, p.all[0].losses));
                EXPECT(same_bits(f.all[k].losses, p.all[0].losses));
                for (int n = 0; n < whole.s.N; n++)
                    for (int i = p.all[k].s.V; i < width; i++)
                        EXPECT(double(p.all[k].logits[n * width + i]) == 0, "padding %d of slice %d", i, k);
            }
        }
}

TEST(what_is_not_finite_in_one_slice_shows_in_all_losses) {
    const Lent lent(1);
    for (const double bad : {double(NAN), double(INFINITY)})
        for (const int at : {0, 500, 1025}) {
            Tensors whole({1, 1026, 1152});
            whole.logits[at] = floatX(real(bad));
            Slices p(whole, 3, 384);
            p.backward(1);
            for (const Tensors& t : p.all) EXPECT(!std::isfinite(double(t.losses[0])), "%g at %d", bad, at);
        }
}

TEST(threads_change_no_bit) {
    std::vector<Tensors> runs;
    for (const int threads : {1, 2, 3}) {
        const Lent lent(threads);
        runs.emplace_back(Shape{7, 1026, 1152});
        runs.back().backward(real(0.1));
    }
    for (const Tensors& t : runs)
        EXPECT(same_bits(t.logits, runs[0].logits) && same_bits(t.losses, runs[0].losses));
}

// Ties go to the first column; a slice without a column has none.
TEST(the_largest_logit_is_found) {
    for (const Shape& s : kShapes) {
        const Lent lent(2);
        Tensors t(s);
        for (const int n : {0, s.N - 1})
            for (const int i : {s.V / 3, s.V / 2, s.V - 1}) t.logits[size_t(n) * s.Vp + i] = floatX(real(20));
        auto values = poisoned<real>(s.N);
        std::vector<int32_t> columns(size_t(s.N), -7);
        cpu::Classifier call = t.call();
        call.v0 = 100;
        cpu::classifier_largest(values.data(), columns.data(), call);
        for (int n = 0; n < s.N; n++) {
            const floatX* row = t.logits.data() + size_t(n) * s.Vp;
            const auto less = [](floatX a, floatX b) { return real(a) < real(b); };
            const auto best = std::max_element(row, row + s.V, less);
            EXPECT(values[n] == real(*best) && columns[n] == 100 + (best - row), "row %d: %g at %d", n,
                   double(values[n]), columns[n]);
        }
        call.V = 0;
        cpu::classifier_largest(values.data(), columns.data(), call);
        EXPECT(columns[0] == -1 && columns[s.N - 1] == -1, "a slice without a column: %d", columns[0]);
    }
}

TEST_IF(sizeof(floatX) == 8, finite_differences) {
    const Lent lent(2);
    for (const Cap& cap : kCaps) {
        Tensors t({2, 19, 128}, 3, cap), g({2, 19, 128}, 3, cap);
        g.backward(real(0.7));
        for (int n = 0; n < 2; n++)
            for (int i = 0; i < 19; i++) {
                const size_t at = size_t(n) * 128 + i;
                const double slope = slope_of(t.logits[at], [&] { t.forward(); return double(t.losses[n]); });
                EXPECT_NEAR(g.logits[at], 0.7 * slope, 1e-8);
            }
    }
}

}  // namespace PRECISION
