// Constants of Muon's steps, from settings.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/model/dims.h"

inline namespace step {

// The x of an iteration: a x + (b A + c A^2) x.
using MuonCoefficients = std::array<double, 3>;
// Of all iterations of a step, in order. polar: Amsel et al. 2025, arXiv 2505.16932; quintic: Jordan et al.
// 2024, ends near an orthogonal matrix; cubic: converges to one, in more iterations.
std::vector<MuonCoefficients> iterations_of(const OptimizerConfig& o);

// The momentum of a step; step: finished steps.
double muon_momentum_of(const OptimizerConfig& o, int64_t step);

// Names of the tensors that Muon updates: the matrices of blocks.
std::vector<std::string> muon_tensors(const Dims& d);

}  // namespace step
