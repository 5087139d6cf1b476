#include "llmc/train/optimizer.h"

namespace PRECISION {

static size_t norm_blocks(const Layout& layout) {
    return (layout.size() + ops::kNormBlock - 1) / ops::kNormBlock;
}

Optimizer::Optimizer(const Config& c, Zero& z) : zero(z), cfg(c.optimizer), seed(uint64_t(c.run.seed)) {
    for (const Tensor& t : zero.layout.tensors)
        tensors.push_back({.start = t.start, .count = t.param.used(), .global = t.global,
                           .decay = real(t.param.decay ? cfg.weight_decay : 0)});
}

void Optimizer::add_to(Arena& arena) {
    arena.add("gradient norm", &sums, norm_blocks(zero.layout));
    arena.add("gradient norm", &state, 1);
}

Optimizer::Result Optimizer::clip_gradients(const double* loss) {
    ops::sum_of_squares(sums, zero.grads, zero.layout.size());
    ops::gradient_state(state, sums, norm_blocks(zero.layout), loss, real(cfg.grad_clip));
    return {.norm = double(state->norm), .finite = state->finite != 0};
}

void Optimizer::update(double lr, int64_t step) {
    ops::adamw_update({.param = kMasterIsParam ? nullptr : zero.params,
                       .master = kMasterIsParam ? reinterpret_cast<real*>(zero.params) : zero.master,
                       .m = zero.m, .v = zero.v, .grad = zero.grads, .state = state,
                       .lr = real(lr), .beta1 = real(cfg.beta1), .beta2 = real(cfg.beta2),
                       .eps = real(cfg.eps), .step = step + 1,
                       .stochastic = cfg.stochastic_rounding, .seed = seed},
                      tensors.data(), tensors.size());
}

}  // namespace PRECISION
