#include "llmc/ops/gpu_rows.h"
#include "test/cuda.h"

namespace PRECISION {

// N tokens, C channels. The widest take two and three packs of a thread.
struct Shape {
    int N, C;
};
static const Shape kShapes[] = {{1, 8},   {3, 256},  {7, 1600},  {5, 40},  {2, 768},
                                {65, 48}, {130, 32}, {301, 264}, {3, 5120}, {2, 2560}};
static constexpr Shape kWidestRms = {3, int(cuda::kGpuRmsnormBytes / sizeof(floatX))};     // four packs
static constexpr Shape kWide = {3, 3 * 512 * 16 / int(sizeof(floatX)) - 16};
// Backward in two kernels: of the next row after those of one, and of the widest.
static constexpr Shape kInTwo[] = {{70, 3 * 512 * 16 / int(sizeof(floatX)) + 16},
                                   {2, int(kGpuNormBytes / sizeof(floatX))}};

// Which tensors there are; without mean RMSNorm.
struct Kind {
    bool mean = true, w = true, b = true, bias = true;
    float eps = 1e-5f;
};
static const Kind kKinds[] = {{.mean = false, .b = false, .bias = false, .eps = 0.3f},
                              {.mean = false, .w = false, .b = false, .bias = false, .eps = 1e-6f},
                              {.b = false, .bias = false},
                              {.w = false, .eps = 0.3f},
                              {.mean = false, .b = false}};

struct Tensors {
    std::vector<floatX> x, r, bias, w, b, dy, dx;
    std::vector<real> dw, db, dbias;
    explicit Tensors(const Shape& s) {
        const size_t n = size_t(s.N) * s.C;
        x = normals<floatX>(n, 1, 2, 0.5), r = normals<floatX>(n, 2), bias = normals<floatX>(s.C, 3);
        w = normals<floatX>(s.C, 4, 0.3, 1), b = normals<floatX>(s.C, 5);
        dy = normals<floatX>(n, 6), dx = normals<floatX>(n, 7);
        dw = normals<real>(s.C, 8), db = normals<real>(s.C, 9), dbias = normals<real>(s.C, 10);
    }
};

struct Results {
    std::vector<floatX> x1, y, dx;
    std::vector<real> mean, rstd, dw, db, dbias;
    bool operator==(const Results& o) const {
        return same_bits(x1, o.x1) && same_bits(y, o.y) && same_bits(dx, o.dx) && same_bits(mean, o.mean) &&
               same_bits(rstd, o.rstd) && same_bits(dw, o.dw) && same_bits(db, o.db) &&
               same_bits(dbias, o.dbias);
    }
};

template <class T> static T* only(bool there, const OnDevice<T>& tensor) {
    T* const p = tensor;
    return there ? p : nullptr;
}

// recomputed: y once more from the stored stream; in_place: the stream over x
static Results run(const Shape& s, bool recomputed = false, bool in_place = false, const Kind& k = {}) {
    const Tensors t(s);
    const int N = s.N, C = s.C;
    const CudaScratch lent;
    const OnDevice x(t.x), r(t.r), bias(t.bias), w(t.w), b(t.b), dy(t.dy), dx(t.dx);
    const OnDevice x1(poisoned<floatX>(t.x.size())), y(poisoned<floatX>(t.x.size()));
    const OnDevice mean(poisoned<real>(N)), rstd(poisoned<real>(N)), dw(t.dw), db(t.db), dbias(t.dbias);
    const OnDevice sum(poisoned<floatX>(t.x.size()));
    floatX *const of_w = only(k.w, w), *const of_b = only(k.b, b), *const of_bias = only(k.bias, bias);
    real* const of_mean = only(k.mean, mean);
    cuda::add_residual(sum, x, r, of_bias, N, C);
    floatX* stream = in_place ? x : x1;
    cuda::Layernorm norm = {.kind = k.mean ? NormKind::LayerNorm : NormKind::RmsNorm, .x1 = stream, .y = y,
                            .mean = of_mean, .rstd = rstd, .x = x, .r = r, .bias = of_bias, .w = of_w,
                            .b = of_b, .eps = k.eps};
    cuda::layernorm_forward(norm, N, C);
    EXPECT(same_bits(sum.host(), in_place ? x.host() : x1.host()));
    if (recomputed) {
        cuda::set_zero(y, y.bytes()), cuda::set_zero(mean, mean.bytes()), cuda::set_zero(rstd, rstd.bytes());
        norm.x = stream;
        norm.r = norm.bias = nullptr;
        cuda::layernorm_forward(norm, N, C);
    }
    cuda::layernorm_backward({dx, only(k.w, dw), only(k.b, db), only(k.bias, dbias)}, dy, norm, N, C);
    return {in_place ? x.host() : x1.host(), y.host(), dx.host(), mean.host(), rstd.host(), dw.host(),
            db.host(), dbias.host()};
}

// x1 from x, r and bias; the others from the stream that forward stored.
static void expect_right(const Shape& s, const Kind& k = {}) {
    const Tensors t(s);
    const Results got = run(s, false, false, k);
    const int N = s.N, C = s.C;
    Wide x1(t.x.size()), y(x1.size()), mean(N), rstd(N), dx = wide(t.dx), dw = wide(t.dw), db = wide(t.db);
    const Wide b = wide(t.b), dy = wide(t.dy);
    Wide stored = wide(got.x1);
    const Wide w = k.w ? wide(t.w) : Wide(t.w.size(), 1.);
    const oracle::Layernorm norm = {.kind = k.mean ? NormKind::LayerNorm : NormKind::RmsNorm,
                                    .x1 = stored.data(),
                                    .y = y.data(),
                                    .mean = k.mean ? mean.data() : nullptr,
                                    .rstd = rstd.data(),
                                    .x = stored.data(),
                                    .r = nullptr,
                                    .bias = nullptr,
                                    .w = k.w ? w.data() : nullptr,
                                    .b = k.b ? b.data() : nullptr,
                                    .eps = k.eps};
    oracle::layernorm_forward(norm, N, C);
    oracle::layernorm_backward({dx.data(), k.w ? dw.data() : nullptr, k.b ? db.data() : nullptr}, dy.data(),
                               norm, N, C);
    Wide x1_sums(x1.size()), y_sums(x1.size()), dx_sums(x1.size()),
        dw_sums = absolute(wide(t.dw)), db_sums = absolute(wide(t.db)), mean_sums(N), rstd_sums(N);
    for (int n = 0; n < N; n++) {
        double size = 0, a = 0, c = 0;
        const auto at = [&](int i) { return size_t(n) * C + i; };
        const auto xhat = [&](int i) { return (std::fabs(stored[at(i)]) + size) * rstd[n]; };
        for (int i = 0; i < C; i++) size += std::fabs(stored[at(i)]) / C;
        for (int i = 0; i < C; i++)
            a += std::fabs(w[i] * dy[at(i)]) / C, c += std::fabs(w[i] * dy[at(i)]) * xhat(i) / C;
        mean_sums[n] = size, rstd_sums[n] = rstd[n];
        for (int i = 0; i < C; i++) {
            const double x = double(t.x[at(i)]), r = double(t.r[at(i)]);
            const double bias = k.bias ? double(t.bias[i]) : 0;
            x1[at(i)] = x + r + bias, x1_sums[at(i)] = std::fabs(x) + std::fabs(r) + std::fabs(bias);
            y_sums[at(i)] = xhat(i) * std::fabs(w[i]) + std::fabs(b[i]);
            dx_sums[at(i)] =
                std::fabs(double(t.dx[at(i)])) + rstd[n] * (std::fabs(w[i] * dy[at(i)]) + a + xhat(i) * c);
            dw_sums[i] += std::fabs(dy[at(i)]) * xhat(i), db_sums[i] += std::fabs(dy[at(i)]);
        }
    }
    EXPECT_CLOSE(got.x1, x1, x1_sums);
    if (k.mean) EXPECT_CLOSE(got.mean, mean, mean_sums);
    EXPECT_CLOSE(got.rstd, rstd, rstd_sums);
    EXPECT_CLOSE(got.y, y, y_sums);
    EXPECT_CLOSE(got.dx, dx, dx_sums);
    EXPECT_CLOSE(got.dw, dw, dw_sums);
    EXPECT_CLOSE(got.db, db, db_sums);
    // of the dx that was stored
    Wide dbias = wide(t.dbias), dbias_sums = absolute(dbias);
    if (k.bias) oracle::bias_backward(dbias.data(), wide(got.dx).data(), N, C);
    if (k.bias) oracle::bias_backward(dbias_sums.data(), absolute(wide(got.dx)).data(), N, C);
    EXPECT_CLOSE(got.dbias, dbias, dbias_sums);
}

TEST(matches_the_cpu) {
    for (const Shape& s : kShapes)
        if (!test::kAddressSanitizer || s.C < 2000) expect_right(s);
    if (test::kAddressSanitizer) return;
    expect_right(kWide);
    for (const Shape& s : kInTwo) expect_right(s);
}

TEST(every_kind_matches_the_cpu) {
    for (const Kind& k : kKinds)
        for (const Shape& s : {Shape{1, 8}, {65, 48}, {7, 1600}, {301, 264}})
            if (!kAgain || s.N < 300) expect_right(s, k);
    if (!test::kAddressSanitizer)
        for (const Shape& s : {Shape{3, 5120}, {2, 2560}, kWide, kWidestRms})
            for (const Kind& k : {kKinds[0], kKinds[1], kKinds[4]}) expect_right(s, k);
    if (!test::kAddressSanitizer)
        for (const Kind& k : kKinds) expect_right(kInTwo[1], k);
}

TEST(recomputed_and_in_place_are_the_same_bits) {
    for (const Shape& s : {Shape{9, 104}, Shape{3, 1600}}) {
        const Results first = run(s);
        EXPECT(run(s, true) == first && run(s, false, true) == first);
    }
}

TEST(order_changes_no_bit) {
    const Shape s = {150, 264};
    const Results first = run(s);
    in_every_order([&] { EXPECT(run(s) == first); });
}

TEST(moves_no_more_than_its_floor) {
    EXPECT_FLOORS([] { run({200, 768}); });
    EXPECT_FLOORS([] { run({66, 1600}, true); });
    for (const Kind& k : kKinds) EXPECT_FLOORS([&] { run({66, 272}, false, false, k); });
    const int each = 512 * int(16 / sizeof(floatX));        // channels that backward's threads take at once
    for (const int C : {each * 3 / 2, each * 5 / 2}) {
        EXPECT_FLOORS([=] { run({16, C}); });
        for (const Kind& k : {kKinds[0], kKinds[2], kKinds[4]})
            EXPECT_FLOORS([=] { run({16, C}, false, false, k); });
    }
    EXPECT_FLOORS([=] { run({16, each * 7 / 2}, false, false, kKinds[0]); });
    EXPECT_FLOORS([=] { run({40, each * 5}); });
    EXPECT_FLOORS([=] { run({40, each * 5}, false, false, kKinds[0]); });
}

}  // namespace PRECISION
