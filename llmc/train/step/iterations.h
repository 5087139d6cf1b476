// Constants of Muon's steps, from settings.
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/model/params.h"

inline namespace step {

// The x of an iteration: a x + (b A + c A^2) x.
using MuonCoefficients = std::array<double, 3>;
// Of all iterations of a step, in order. polar: Amsel et al. 2025, arXiv 2505.16932; quintic: Jordan et al.
// 2024, ends near an orthogonal matrix; cubic: converges to one, in more iterations.
inline std::vector<MuonCoefficients> iterations_of(const OptimizerConfig& o) {
    static const std::vector<MuonCoefficients> polar = {
        {8.156554524902461, -22.48329292557795, 15.878769915207462},
        {4.042929935166739, -2.808917465908714, 0.5000178451051316},
        {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
        {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
        {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
    };
    std::vector<MuonCoefficients> all;
    if (o.polynomial == Polynomial::Polar) all = polar;
    else if (o.polynomial == Polynomial::Quintic) all.assign(5, {3.4445, -4.7750, 2.0315});
    else all.assign(12, {2, -1.5, 0.5});
    if (o.iterations) all.resize(size_t(o.iterations), all.back());
    return all;
}

// The momentum of a step; step: finished steps.
inline double muon_momentum_of(const OptimizerConfig& o, int64_t step) {
    const double begin = std::min(0.85, o.momentum);
    if (step >= o.momentum_warmup) return o.momentum;
    return begin + (o.momentum - begin) * double(step) / double(o.momentum_warmup);
}

// Names of the tensors that Muon updates: the matrices of blocks.
inline std::vector<std::string> muon_tensors(const Dims& d) {
    std::vector<std::string> names;
    for (const auto& row : block_params<float>(d, d.L - 1))         // the last block has all rows
        if (row.param.is_matrix()) names.push_back(row.param.name);
    return names;
}

}  // namespace step
