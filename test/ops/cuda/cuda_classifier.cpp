#include <algorithm>
#include <memory>

#include "test/cuda.h"

namespace PRECISION {

// Also V % 8 = 2 and 1; the padding is NaN before the call. The widest rows exceed a block's registers and
// shared memory. A row asks for 48 KB of dynamic shared memory, too much beside static shared memory.
struct Shape { int N, V, Vp; };
static constexpr int kHeld = 7 * 512 * 16 / int(sizeof(floatX));
static constexpr int kUnasked = (48 << 10) / int(sizeof(floatX));
static const Shape kShapes[] = {{1, 1, 128},
                                {3, 10, 128},
                                {5, 1026, 1152},
                                {2, 4099, 4224},
                                {9, 258, 384},
                                {2, 128, 128},
                                {2, kHeld - 6, kHeld + 128},
                                {2, kHeld + 5001, kHeld + 5120},
                                {1, kHeld + kUnasked - 6, kHeld + kUnasked},
                                {1, kHeld + 120002, kHeld + 120064}};

struct Cap { double c = 0; SoftcapKind kind = SoftcapKind::Tanh; };
static const Cap kCaps[] = {{}, {5, SoftcapKind::Tanh}, {5, SoftcapKind::Sqrt}};

struct Tensors {
    Cap cap;
    std::vector<floatX> logits;
    std::vector<int32_t> targets;
    Tensors(const Shape& s, double size, const Cap& cap = {})
        : cap(cap), logits(normals<floatX>(size_t(s.N) * s.Vp, 1, size)) {
        for (int n = 0; n < s.N; n++) {
            targets.push_back(n == 0 ? s.V - 1 : int32_t(uniform(1, 2, n) * s.V));
            for (int i = s.V; i < s.Vp; i++) logits[size_t(n) * s.Vp + i] = floatX(real(NAN));
        }
    }
};

struct Results {
    std::vector<real> losses, forward_losses;
    std::vector<floatX> gradient;
    bool operator==(const Results& o) const {
        return same_bits(losses, o.losses) && same_bits(forward_losses, o.forward_losses) &&
               same_bits(gradient, o.gradient);
    }
};

// The same with the vocabulary cut into slices of slice_Vp columns, side by side as ranks would have them.
static Results run_slices(const Shape& s, const Tensors& t, real dloss, int slice_Vp) {
    const int slices = (s.V + slice_Vp - 1) / slice_Vp + 1;          // the last has no column that counts
    const OnDevice targets(t.targets);
    const OnDevice stats(poisoned<real>(size_t(slices) * s.N * 3));
    Results all{std::vector<real>(s.N), std::vector<real>(s.N), std::vector<floatX>(t.logits.size())};
    std::vector<std::unique_ptr<OnDevice<floatX>>> logits;
    const auto classifier = [&](int slice, real* losses) {
        return cuda::Classifier{.losses = losses, .logits = *logits[size_t(slice)],
                                .stats = stats + size_t(slice) * s.N * 3, .targets = targets, .N = s.N,
                                .V = std::clamp(s.V - slice * slice_Vp, 0, slice_Vp), .Vp = slice_Vp,
                                .v0 = slice * slice_Vp, .slices = slices, .cap = real(t.cap.c),
                                .cap_kind = t.cap.kind};
    };
    for (int p = 0; p < slices; p++) {
        std::vector<floatX> mine(size_t(s.N) * slice_Vp, floatX(real(NAN)));
        for (int n = 0; n < s.N; n++)
            for (int i = 0; i < slice_Vp && p * slice_Vp + i < s.V; i++)
                mine[size_t(n) * slice_Vp + i] = t.logits[size_t(n) * s.Vp + p * slice_Vp + i];
        logits.push_back(std::make_unique<OnDevice<floatX>>(mine));
    }
    for (int p = 0; p < slices; p++) cuda::classifier_forward(classifier(p, nullptr));
    const auto forward_stats = stats.host();
    for (int p = 0; p < slices; p++) cuda::classifier_forward_backward(classifier(p, nullptr), dloss);
    EXPECT(same_bits(stats.host(), forward_stats));
    for (int p = 0; p < slices; p++) {
        const OnDevice losses(poisoned<real>(s.N)), forward_losses(poisoned<real>(s.N));
        cuda::classifier_merge(classifier(p, forward_losses), stats);
        cuda::classifier_merge_backward(classifier(p, losses), stats, dloss);
        EXPECT(same_bits(losses.host(), forward_losses.host()));
        if (p == 0) all.losses = losses.host(), all.forward_losses = forward_losses.host();
        EXPECT(same_bits(losses.host(), all.losses), "slice %d", p);
        const auto mine = logits[size_t(p)]->host();
        for (int n = 0; n < s.N; n++)
            for (int i = 0; i < slice_Vp; i++) {
                const int column = p * slice_Vp + i;
                const floatX got = mine[size_t(n) * slice_Vp + i];
                if (column < s.V) all.gradient[size_t(n) * s.Vp + column] = got;
                else EXPECT(double(got) == 0, "padding %d of slice %d", i, p);
            }
    }
    return all;
}

static Results run(const Shape& s, const Tensors& t, real dloss) {
    const OnDevice logits(t.logits);
    const OnDevice targets(t.targets);
    const OnDevice losses(poisoned<real>(s.N)), forward_losses(poisoned<real>(s.N));
    cuda::Classifier c = {.losses = forward_losses, .logits = logits, .stats = nullptr, .targets = targets,
                          .N = s.N, .V = s.V, .Vp = s.Vp, .v0 = 0, .slices = 1, .cap = real(t.cap.c),
                          .cap_kind = t.cap.kind};
    cuda::classifier_forward(c), cuda::classifier_merge(c, nullptr);
    c.losses = losses;
    cuda::classifier_forward_backward(c, dloss), cuda::classifier_merge_backward(c, nullptr, dloss);
    return {losses.host(), forward_losses.host(), logits.host()};
}

static void expect_right(const Shape& s, double size, const Cap& cap) {
    const real dloss = real(1) / 1024;
    const Tensors t(s, size, cap);
    Wide losses(s.N), gradient = wide(t.logits), loss_sums(s.N), sums(gradient.size());
    for (int n = 0; n < s.N; n++) {
        const floatX* row = t.logits.data() + size_t(n) * s.Vp;
        double max = -INFINITY;
        for (int i = 0; i < s.V; i++) max = std::max(max, double(row[i]));
        loss_sums[n] = std::fabs(max) + std::log(double(s.V)) + std::fabs(double(row[t.targets[n]]));
    }
    const OracleScratch scratch;
    oracle::classifier_forward_backward(
        {.losses = losses.data(), .logits = gradient.data(), .stats = nullptr, .targets = t.targets.data(),
         .N = s.N, .V = s.V, .Vp = s.Vp, .v0 = 0, .slices = 1, .cap = cap.c, .cap_kind = cap.kind},
        double(dloss));
    // near its bound the slope of a cap is a small difference
    for (size_t i = 0; i < sums.size(); i++)
        sums[i] = std::fabs(gradient[i]) + (cap.c ? double(dloss) / 50 : 1e-38);
    for (int n = 0; n < s.N; n++) sums[size_t(n) * s.Vp + t.targets[n]] += 2 * double(dloss);
    const Results got = run(s, t, dloss);
    EXPECT_CLOSE(got.losses, losses, loss_sums);
    EXPECT_CLOSE(got.forward_losses, losses, loss_sums);
    EXPECT_CLOSE(got.gradient, gradient, sums);
    for (int n = 0; n < s.N; n++)
        for (int i = s.V; i < s.Vp; i++)
            EXPECT(double(got.gradient[size_t(n) * s.Vp + i]) == 0, "padding %d", i);
    if (s.V > 20000) return;
    const Results cut = run_slices(s, t, dloss, s.V > 300 ? 128 * (s.V / 300) : 8);
    EXPECT_CLOSE(cut.losses, losses, loss_sums);
    EXPECT_CLOSE(cut.gradient, gradient, sums);
}

TEST(matches_the_cpu) {
    for (const Shape& s : kShapes)
        for (const auto& [size, cap] : {std::pair{3., 0}, {1e3, 0}, {3., 1}, {30., 1}, {3., 2}, {30., 2}})
            if ((!test::kAddressSanitizer || s.V <= 20000) && (!kAgain || size == 3))
                expect_right(s, size, kCaps[cap]);
}

TEST(what_is_not_finite_shows_in_the_loss) {
    const Shape s = {1, 1026, 1152};
    for (const double bad : {double(NAN), double(INFINITY)})
        for (const int at : {0, 9, 700, 1025}) {
            Tensors t(s, 3);
            t.logits[at] = floatX(real(bad));
            const Results got = run(s, t, 1);
            EXPECT(!std::isfinite(got.losses[0]) && !std::isfinite(got.forward_losses[0]), "%g at %d", bad,
                   at);
        }
    Tensors t(s, 3);                                        // all but the target impossible
    for (int i = 0; i < 1025; i++) t.logits[i] = floatX(real(-INFINITY));
    const Results got = run(s, t, 1);
    EXPECT_NEAR(got.losses[0], 0, 1e-6);
    EXPECT(double(got.gradient[0]) == 0 && std::fabs(double(got.gradient[1025])) < 1e-6);
}

struct Largest { std::vector<real> values; std::vector<int32_t> columns; };
static Largest largest(const Shape& s, const std::vector<floatX>& logits, int V) {
    const OnDevice on_device(logits);
    const OnDevice values(poisoned<real>(s.N));
    const OnDevice columns(std::vector<int32_t>(size_t(s.N), -7));
    cuda::classifier_largest(values, columns, {.losses = nullptr, .logits = on_device, .stats = nullptr,
                                               .targets = nullptr, .N = s.N, .V = V, .Vp = s.Vp, .v0 = 100,
                                               .slices = 1});
    return {values.host(), columns.host()};
}

// Ties go to the first column; a slice without a column has none.
TEST(the_largest_logit_is_found) {
    for (const Shape& s : kShapes) {
        if (s.V > 20000) continue;
        Tensors t(s, 3);
        for (const int i : {s.V / 3, s.V / 2, s.V - 1}) t.logits[size_t(i)] = floatX(real(20));
        in_every_order([&] {
            const Largest got = largest(s, t.logits, s.V);
            for (int n = 0; n < s.N; n++) {
                const floatX* row = t.logits.data() + size_t(n) * s.Vp;
                int best = 0;
                for (int i = 1; i < s.V; i++)
                    if (double(row[i]) > double(row[best])) best = i;
                EXPECT(double(got.values[n]) == double(row[best]) && got.columns[n] == 100 + best,
                       "row %d of V %d: column %d, not %d", n, s.V, got.columns[n], 100 + best);
            }
            EXPECT(largest(s, t.logits, 0).columns[0] == -1, "a slice without a column");
        });
    }
}

TEST(order_changes_no_bit) {
    const Shape s = {3, kHeld + 1026, kHeld + 1152};
    const Tensors t(s, 3);
    const Results first = run(s, t, real(0.1));
    in_every_order([&] { EXPECT(run(s, t, real(0.1)) == first); });
    const Shape small = {3, 1026, 1152};
    const Tensors few(small, 3);
    const Results slices = run_slices(small, few, real(0.1), 384);
    in_every_order([&] { EXPECT(run_slices(small, few, real(0.1), 384) == slices); });
}

TEST(moves_no_more_than_its_floor) {
    // a row that registers and shared memory hold: of FP32, sm_86 holds less
    const Shape s = shared_limit() > 128 << 10 ? Shape{2, 50257, 50304} : Shape{2, 20000, 20096};
    const Shape small = {9, 5000, 5120};
    for (const Cap& cap : kCaps) {
        EXPECT_FLOORS([&] { run(cap.c ? small : s, Tensors(cap.c ? small : s, 3, cap), 1); });
        EXPECT_FLOORS([&] { run_slices(small, Tensors(small, 3, cap), 1, 2560); });
    }
    EXPECT_FLOORS([&] { largest(small, Tensors(small, 3).logits, small.V); });
}

}  // namespace PRECISION
