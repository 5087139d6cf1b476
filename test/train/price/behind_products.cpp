// Kernels behind a product, by hand: their bytes at the rate of copies.
#include "llmc/ops/ops.h"
#include "test/train/price/slow_machine.h"

namespace PRECISION {

// N = 512 tokens, C = 256, F = 1024, in units of N F elements. GELU reads pre (1) and writes act (1); its
// backward pass reads pre beside the product. SwiGLU's pre is twice as wide: 3 forward; backward dact (1),
// pre (2) and its gradient (2). The sums of a bias's gradient read the gradient of the output (1).
TEST(kernels_behind_a_product_cost_what_they_move) {
    Prices p = slow_machine();
    p.machine.copy_gbs = 1;
    const Target gpu{Target::Cuda, 0};
    constexpr int N = 512, C = 256, F = 1024;
    const auto units = [&](Cost cost) {
        const double all = seconds_of_op(p, cost);
        cost.passes = 0;
        return (all - seconds_of_op(p, cost)) * 1e9 / (double(N) * F * sizeof(floatX));
    };
    const auto forward = [&](Activation f) {
        return units(ops::matmul_activation_forward_cost(gpu, f, N, C, F, true));
    };
    const auto backward = [&](Activation f) {
        return units(ops::matmul_activation_backward_input_cost(gpu, f, N, F, C));
    };
    EXPECT_NEAR(forward(Activation::Gelu), 2, 1e-9);
    EXPECT_NEAR(forward(Activation::Relu2), 2, 1e-9);
    EXPECT_NEAR(forward(Activation::Swiglu), 3, 1e-9);
    EXPECT_NEAR(backward(Activation::Gelu), 1, 1e-9);
    EXPECT_NEAR(backward(Activation::Relu2), 3, 1e-9);
    EXPECT_NEAR(backward(Activation::Swiglu), 5, 1e-9);
    EXPECT_NEAR(units(ops::matmul_activation_backward_input_cost(gpu, Activation::Gelu, N, F, C, true)), 2,
                1e-9);
    EXPECT_NEAR(units(ops::matmul_backward_weight_bias_cost(gpu, N, C, F)), 1, 1e-9);
    EXPECT_NEAR(units(ops::matmul_backward_weight_cost(gpu, N, C, F)), 0, 1e-9);
    EXPECT_NEAR(units(ops::matmul_forward_cost(gpu, N, C, F, true)), 0, 1e-9);
}

}  // namespace PRECISION
