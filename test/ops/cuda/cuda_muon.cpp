#include "test/cuda.h"
#include "test/muon.h"

namespace PRECISION {

static constexpr bool kMasterIsParam = sizeof(floatX) == sizeof(real);

struct Results {
    std::vector<real> m, u, master;
    std::vector<floatX> x, sum, param;
    bool operator==(const Results& o) const {
        return same_bits(m, o.m) && same_bits(u, o.u) && same_bits(master, o.master) && same_bits(x, o.x) &&
               same_bits(sum, o.sum) && same_bits(param, o.param);
    }
};

static int side_of(int n) { return cuda::muon_side({Target::Cuda, 1}, n); }

struct Settings { bool finite = true, cautious = false, stochastic = false; };

// All ops; the matrix to normalize is the momentum, of `slices` ranks' columns where they divide.
static Results run(const MuonShape& s, const Settings& o, int slices = 1) {
    const MuonInputs in(s);
    const size_t count = in.m.size();
    const OnDevice m(in.m), grad(in.grad), master(in.master), u(poisoned<real>(count));
    const OnDevice x(in.x), y(in.y), param(poisoned<floatX>(count)),
        normal(poisoned<floatX>(size_t(side_of(s.rows)) * size_t(side_of(s.cols))));
    const cuda::GradientState step = {.norm = 1, .scale = real(kScale), .finite = o.finite};
    const OnDevice state(std::vector<cuda::GradientState>{step});
    const OnDevice squares(std::vector<double>{7});
    cuda::muon_momentum(u, m, grad, state, real(kMu), count);
    cuda::muon_normalize(normal, m, squares, s.rows, s.cols, slices);
    cuda::muon_update({.param = kMasterIsParam ? nullptr : param.p, .master = master, .x = x,
                       .x_stride = s.x_stride, .state = state, .rows = s.rows, .cols = s.cols,
                       .lr = real(0.125), .stretch = 2, .decay = real(0.5), .step = 3,
                       .stochastic = o.stochastic, .cautious = o.cautious, .seed = 42, .global = 1001,
                       .stride = s.stride});
    cuda::linear_combination(y, 3, x, -2, y, in.y.size());
    return {m.host(), u.host(), master.host(), normal.host(), y.host(), param.host()};
}

TEST(matches_the_formulas) {
    for (const MuonShape& s : kMuonShapes)
        for (const bool cautious : {false, true}) {
            const int slices = s.cols % 3 == 0 ? 3 : 1;
            const MuonInputs in(s);
            const Results got = run(s, {.cautious = cautious}, slices);
            const MuonMomentum momentum = momentum_of(in);
            EXPECT_CLOSE(got.m, momentum.m, momentum.m_sums);
            EXPECT_CLOSE(got.u, momentum.u, momentum.u_sums);
            const MuonWeights weights = weights_of(in, s, 0.125, 2, 0.5, cautious);
            EXPECT_CLOSE(got.master, weights.master, weights.sums);
            for (size_t i = 0; i < got.param.size() && !kMasterIsParam; i++)
                EXPECT(double(got.param[i]) == double(floatX(got.master[i])), "param[%zu]", i);
            Wide x(got.x.size()), sums(got.x.size()), sum, terms;       // zero beyond the matrix
            const int width = s.cols / slices, stride = side_of(s.cols);
            for (int i = 0; i < s.rows; i++)
                for (int j = 0; j < s.cols; j++) {
                    const size_t to = size_t(i * stride + j),
                                 from = size_t((j / width * s.rows + i) * width + j % width);
                    x[to] = double(got.m[from]) / (1.01 * std::sqrt(7) + 1e-7);
                    sums[to] = std::fabs(x[to]);
                }
            EXPECT_CLOSE(got.x, x, sums);
            for (size_t i = 0; i < in.x.size(); i++) {
                sum.push_back(3 * double(in.x[i]) - 2 * double(in.y[i]));
                terms.push_back(3 * std::fabs(double(in.x[i])) + 2 * std::fabs(double(in.y[i])));
            }
            EXPECT_CLOSE(got.sum, sum, terms);
        }
}

TEST(gram_is_the_formula) {
    const CudaScratch lent;
    for (const GramShape& s : {GramShape{8, 8}, {64, 64}, {72, 200}, {200, 72}, {8, 328}, {264, 128}}) {
        const int side = std::min(s.rows, s.cols);
        const auto x = normals<floatX>(size_t(s.rows * s.cols), 1);
        const OnDevice in(x), out(poisoned<floatX>(size_t(side * side)));
        const OnDevice sums(poisoned<real>(cuda::gram_sums({Target::Cuda, 1}, s.rows, s.cols)));
        cuda::gram(out, sums, in, s.rows, s.cols, 1);
        const GramResult want = gram_of(x, s.rows, s.cols);
        EXPECT_CLOSE(out.host(), want.values, want.sums);
    }
}

// Whether a and b are equal but for the order of sums: cuBLASLt has its own for a batch.
static bool near(const floatX* a, const std::vector<floatX>& b) {
    double largest = 0, error = 0;
    for (size_t i = 0; i < b.size(); i++) {
        largest = std::max(largest, std::fabs(double(b[i])));
        if (const double e = std::fabs(double(a[i]) - double(b[i])); !(e <= error)) error = e;    // or NaN
    }
    return error <= (sizeof(floatX) == 2 ? 0.01 : 1e-5) * largest;
}

// Each matrix of a batch as by itself; what lies beside the batch stays as it is.
TEST(batches_are_products_of_each) {
    const CudaScratch lent;
    const int count = 3;
    for (const GramShape& s : {GramShape{8, 8}, {24, 72}, {72, 24}}) {
        const size_t side = size_t(std::min(s.rows, s.cols)), all = size_t(s.rows * s.cols);
        const auto x = normals<floatX>(count * all, 1);
        const OnDevice in(x), a(poisoned<floatX>((count + 1) * side * side)),
            out(poisoned<floatX>((count + 1) * all));
        const OnDevice sums(poisoned<real>(count * cuda::gram_sums({Target::Cuda, 1}, s.rows, s.cols)));
        cuda::gram(a, sums, in, s.rows, s.cols, count);
        cuda::muon_product(out, a, in, s.rows, s.cols, count);
        const auto squares = a.host(), products = out.host();
        for (size_t i = 0; i <= count; i++) {
            const std::vector<floatX> one(x.begin() + int64_t(std::min<size_t>(i, count - 1) * all),
                                          x.begin() + int64_t(std::min<size_t>(i + 1, count) * all));
            const OnDevice alone(one), square(poisoned<floatX>(side * side)), product(poisoned<floatX>(all));
            if (i < count) cuda::gram(square, sums, alone, s.rows, s.cols, 1);
            if (i < count) cuda::muon_product(product, square, alone, s.rows, s.cols, 1);
            const auto want_square = square.host(), want = product.host();
            const floatX *square_here = &squares[i * side * side], *product_here = &products[i * all];
            const bool same = !memcmp(square_here, want_square.data(), side * side * sizeof(floatX)) &&
                              !memcmp(product_here, want.data(), all * sizeof(floatX));
            EXPECT(i < count ? near(square_here, want_square) && near(product_here, want) : same,
                   "%d x %d: matrix %zu of the batch", s.rows, s.cols, i);
        }
    }
}

// One step of the polynomial, x + A x, of matrices that products on a GPU take only with zeros around them.
TEST(zeros_around_a_matrix_stay_zero) {
    const CudaScratch lent;
    for (const GramShape& s : {GramShape{6, 12}, {16, 12}, {5, 3}, {2, 12}}) {
        const int rows = side_of(s.rows), cols = side_of(s.cols), side = std::min(rows, cols);
        const size_t count = size_t(rows * cols);
        const auto u = normals<real>(size_t(s.rows * s.cols), 1);
        const OnDevice from(u), sums(poisoned<real>(cuda::gram_sums({Target::Cuda, 1}, rows, cols)));
        const OnDevice squares(std::vector<double>{7});
        const OnDevice x(poisoned<floatX>(count)), next(poisoned<floatX>(count)),
            a(poisoned<floatX>(size_t(side * side)));
        cuda::muon_normalize(x, from, squares, s.rows, s.cols, 1);
        cuda::gram(a, sums, x, rows, cols, 1);
        cuda::muon_product(next, a, x, rows, cols, 1);
        cuda::linear_combination(next, 1, x, 1, next, count);
        const auto matrix = x.host(), got = next.host();
        const auto at = [&](int i, int j) { return double(matrix[size_t(i * cols + j)]); };
        double squared = 0, error = 0, beyond = 0;
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++) {
                const double value = double(got[size_t(i * cols + j)]);
                if (i >= s.rows || j >= s.cols) { beyond += std::fabs(value); continue; }
                double want = at(i, j);
                for (int r = 0; r < s.rows; r++)
                    for (int c = 0; c < s.cols; c++) want += at(i, c) * at(r, c) * at(r, j);
                squared += want * want, error += (value - want) * (value - want);
            }
        EXPECT(beyond == 0, "%d x %d: %g beyond the matrix", s.rows, s.cols, beyond);
        EXPECT(std::sqrt(error / squared) < (kMasterIsParam ? 1e-6 : 1e-2), "%d x %d: off by %.2g", s.rows,
               s.cols, std::sqrt(error / squared));
    }
}

TEST_IF(sizeof(floatX) == 2, stochastic_rounding_is_the_cpus) {
    for (const MuonShape& s : kMuonShapes) {
        const Results got = run(s, {.stochastic = true});
        const Lent lent(1);
        std::vector<real> master = got.master;
        auto want = poisoned<floatX>(master.size());
        const MuonInputs in(s);
        const cpu::GradientState state = {.norm = 1, .scale = 1, .finite = 1};
        cpu::muon_update({.param = want.data(), .master = master.data(), .x = in.x.data(),
                          .x_stride = s.x_stride, .state = &state, .rows = s.rows, .cols = s.cols, .lr = 0,
                          .stretch = 2, .decay = 0, .step = 3, .stochastic = true, .cautious = false,
                          .seed = 42, .global = 1001, .stride = s.stride});
        EXPECT(same_bits(got.param, want), "%d x %d", s.rows, s.cols);
    }
}

TEST(nothing_moves_where_the_gradient_is_not_finite) {
    const MuonShape s = kMuonShapes[2];
    const MuonInputs in(s);
    const Results got = run(s, {.finite = false});
    EXPECT(same_bits(got.m, in.m) && same_bits(got.master, in.master), "something has moved");
    for (const real u : got.u) EXPECT(double(u) == 0, "u is %g", double(u));
}

TEST(order_changes_no_bit) {
    const MuonShape s = kMuonShapes[4];
    const Results first = run(s, {.stochastic = true});
    in_every_order([&] { EXPECT(run(s, {.stochastic = true}) == first); });
}

TEST(moves_no_more_than_its_floor) {
    EXPECT_FLOORS([] {
        run({64, 512, 512, 512}, {});
        run({64, 384, 384, 768}, {.stochastic = true}, 3);
        run({2000, 12, 12, 12}, {});
    });
}

}  // namespace PRECISION
