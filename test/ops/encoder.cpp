#include "test/compare.h"

namespace PRECISION {

// This rank has rows v0 .. v0 + V of wte; tokens are from 0 .. all.
struct Shape { int B, T, C, v0, V, all, t0; };
static const Shape kShapes[] = {{1, 1, 8, 0, 1, 1, 0},    {3, 7, 40, 0, 11, 11, 0},
                                {2, 5, 1600, 0, 6, 6, 2}, {2, 33, 24, 4, 5, 14, 0},
                                {1, 9, 17, 0, 3, 3, 0},   {5, 64, 768, 0, 100, 100, 3}};

struct Tensors {
    cpu::Encoder e;
    std::vector<int32_t> tokens;
    std::vector<floatX> wte, wpe, out, dout;
    std::vector<real> dwte, dwpe;

    explicit Tensors(const Shape& s) {
        const int N = s.B * s.T;
        for (int n = 0; n < N; n++) tokens.push_back(int32_t(uniform(1, 2, n) * s.all));
        e = {.tokens = nullptr, .v0 = s.v0, .V = s.V, .N = N, .T = s.T, .C = s.C, .t0 = s.t0};
        wte = normals<floatX>(size_t(s.V) * s.C, 1), wpe = normals<floatX>(size_t(s.t0 + s.T) * s.C, 2);
        out = poisoned<floatX>(size_t(N) * s.C), dout = normals<floatX>(size_t(N) * s.C, 3);
        dwte = normals<real>(wte.size(), 4), dwpe = normals<real>(wpe.size(), 5);
    }
    cpu::Encoder part(int from, int to) const {
        cpu::Encoder p = e;
        p.tokens = tokens.data() + from, p.N = to - from;
        return p;
    }
    void forward() { cpu::encoder_forward(out.data(), wte.data(), wpe.data(), part(0, e.N)); }
    void backward(int from, int to) {
        cpu::encoder_backward(dwte.data(), dwpe.data(), dout.data() + size_t(from) * e.C, part(from, to));
    }
};

TEST(matches_the_reference) {
    for (const Shape& s : kShapes) {
        const Lent lent(2);
        Tensors t(s);
        Wide out, out_sums, dwte = wide(t.dwte), dwpe = wide(t.dwpe), dwte_sums, dwpe_sums;
        for (const double v : dwte) dwte_sums.push_back(std::fabs(v));
        for (const double v : dwpe) dwpe_sums.push_back(std::fabs(v));
        for (int n = 0; n < t.e.N; n++)
            for (int i = 0; i < s.C; i++) {
                const int row = t.tokens[n] - s.v0;
                const bool here = row >= 0 && row < s.V;
                const size_t te = size_t(here ? row : 0) * s.C + i, pe = size_t(s.t0 + n % s.T) * s.C + i;
                const double g = here ? double(t.dout[size_t(n) * s.C + i]) : 0;
                out.push_back(here ? double(t.wte[te]) + double(t.wpe[pe]) : 0);
                out_sums.push_back(std::fabs(double(t.wte[te])) + std::fabs(double(t.wpe[pe])));
                dwte[te] += g, dwpe[pe] += g, dwte_sums[te] += std::fabs(g), dwpe_sums[pe] += std::fabs(g);
            }
        t.forward();
        t.backward(0, t.e.N);
        EXPECT_CLOSE(t.out, out, out_sums);
        EXPECT_CLOSE(t.dwte, dwte, dwte_sums);
        EXPECT_CLOSE(t.dwpe, dwpe, dwpe_sums);
    }
}

// Any number of threads, any cut into micro-batches of whole sequences.
TEST(threads_and_cuts_change_no_bit) {
    const Shape s = {6, 20, 200, 0, 5, 5, 0};
    std::vector<Tensors> runs;
    for (const int threads : {1, 2, 3, 7})
        for (const int cut : {120, 20, 80}) {
            const Lent lent(threads);
            runs.emplace_back(s);
            runs.back().forward();
            runs.back().backward(0, cut);
            if (cut < 120) runs.back().backward(cut, 120);
        }
    for (const Tensors& t : runs)
        EXPECT(same_bits(t.out, runs[0].out) && same_bits(t.dwte, runs[0].dwte) &&
               same_bits(t.dwpe, runs[0].dwpe));
}

// The loss is sum(dout * out).
TEST_IF(sizeof(floatX) == 8, gradients_against_finite_differences) {
    for (const Shape& s : {Shape{2, 5, 9, 0, 6, 6, 2}, Shape{2, 7, 8, 4, 5, 14, 0}}) {
        const Lent lent(2);
        Tensors t(s);
        std::fill(t.dwte.begin(), t.dwte.end(), real(0)), std::fill(t.dwpe.begin(), t.dwpe.end(), real(0));
        t.backward(0, t.e.N);
        const auto loss = [&] {
            t.forward();
            double sum = 0;
            for (size_t i = 0; i < t.out.size(); i++) sum += double(t.out[i]) * double(t.dout[i]);
            return sum;
        };
        for (size_t i = 0; i < t.wte.size(); i++) EXPECT_NEAR(t.dwte[i], slope_of(t.wte[i], loss), 1e-8);
        for (size_t i = 0; i < t.wpe.size(); i++) EXPECT_NEAR(t.dwpe[i], slope_of(t.wpe[i], loss), 1e-8);
    }
}

}  // namespace PRECISION
