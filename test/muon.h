// Inputs of Muon's ops, and their formulas in plain loops.
#pragma once
#include "test/compare.h"

namespace PRECISION {

inline constexpr double kScale = 0.5, kMu = 0.9;

// A slice of a matrix over tp: rows of x_stride, keys of `stride`.
struct MuonShape { int rows, cols; size_t x_stride, stride; };
inline const MuonShape kMuonShapes[] = {{1, 1, 1, 1}, {7, 5, 5, 5}, {24, 72, 72, 72}, {33, 17, 51, 51},
                                        {130, 257, 257, 514}, {6, 12, 12, 12}, {16, 12, 12, 12}};

struct MuonInputs {
    std::vector<real> m, grad, master;
    std::vector<floatX> x, y;
    explicit MuonInputs(const MuonShape& s)
        : m(normals<real>(size_t(s.rows * s.cols), 1)), grad(normals<real>(size_t(s.rows * s.cols), 2)),
          master(normals<real>(size_t(s.rows * s.cols), 3)),
          x(normals<floatX>(size_t(s.rows) * s.x_stride, 4)),
          y(normals<floatX>(size_t(s.rows) * s.x_stride, 5)) {}
};

// Awkward, and of one block, several, and a rest; wide, square and tall.
struct GramShape { int rows, cols; };
inline const GramShape kGramShapes[] = {{1, 1}, {3, 200}, {64, 64}, {65, 31}, {129, 70}, {70, 129}, {515, 33},
                                        {33, 515}, {520, 517}};

struct GramResult { Wide values, sums; };
inline GramResult gram_of(const std::vector<floatX>& x, int rows, int cols) {
    const int side = std::min(rows, cols), terms = std::max(rows, cols);
    GramResult r;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            double sum = 0, most = 0;
            for (int k = 0; k < terms; k++) {
                const double a = double(x[size_t(rows > cols ? k * cols + i : i * cols + k)]),
                             b = double(x[size_t(rows > cols ? k * cols + j : j * cols + k)]);
                sum += a * b, most += std::fabs(a * b);
            }
            r.values.push_back(sum), r.sums.push_back(most);
        }
    return r;
}

struct MuonMomentum { Wide m, u, m_sums, u_sums; };
inline MuonMomentum momentum_of(const MuonInputs& in) {
    MuonMomentum r;
    const double mu = double(real(kMu));
    for (size_t i = 0; i < in.m.size(); i++) {
        const double g = double(in.grad[i]) * kScale, m = double(in.m[i]), next = mu * m + (1 - mu) * g;
        r.m.push_back(next);
        r.m_sums.push_back(std::fabs(mu * m) + std::fabs((1 - mu) * g));
        r.u.push_back((1 - mu) * g + mu * next);
        r.u_sums.push_back(std::fabs((1 - mu) * g) + mu * r.m_sums.back());
    }
    return r;
}

struct MuonWeights { Wide master, sums; };
inline MuonWeights weights_of(const MuonInputs& in, const MuonShape& s, double lr, double stretch,
                              double decay, bool cautious) {
    MuonWeights r;
    for (int i = 0; i < s.rows; i++)
        for (int j = 0; j < s.cols; j++) {
            const double w = double(in.master[size_t(i * s.cols + j)]);
            const double u = lr * stretch * double(in.x[size_t(i) * s.x_stride + size_t(j)]);
            r.master.push_back(w - u - (!cautious || u * w >= 0 ? lr * decay * w : 0));
            r.sums.push_back(std::fabs(w) + std::fabs(u));
        }
    return r;
}

}  // namespace PRECISION
