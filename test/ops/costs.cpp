// The costs that ops state: FLOPs by the formula, bytes of every tensor once. cuda_costs.cpp compares the
// bytes of other ops with those that their kernels move.
#include "test/compare.h"

namespace PRECISION {
namespace {

constexpr Target kGpu{.backend = Target::Cuda, .threads = 1};

// Elements that an op reads or writes.
struct Moved {
    size_t stored, reals = 0, ids = 0;
    size_t bytes() const { return stored * sizeof(floatX) + reals * sizeof(real) + ids * sizeof(int32_t); }
};

void expect_cost(const Cost& c, double flops, Moved read, Moved written) {
    EXPECT(c.flops == flops, "%s: %g FLOPs, expected %g", c.name, c.flops, flops);
    EXPECT(c.read == read.bytes(), "%s reads %zu bytes, expected %zu", c.name, size_t(c.read), read.bytes());
    EXPECT(c.written == written.bytes(), "%s writes %zu bytes, expected %zu", c.name, size_t(c.written),
           written.bytes());
}

}  // namespace

// Five queries at position 4, nine keys, three of which a query sees: of the seven keys from 2 on.
TEST(attention_has_two_products_forward_and_five_backward) {
    constexpr size_t B = 2, NH = 6, KV = 2, D = 16;
    constexpr size_t queries = B * 5 * NH, keys = B * 9 * KV, seen = B * 7 * KV;
    const cpu::AttentionDims d{.B = 2, .Tq = 5, .Tk = 9, .NH = 6, .D = 16, .q_stride = 96, .kv_stride = 64,
                               .q_offset = 4, .k_offset = 0, .key_heads = 2, .window = 3};
    const double product = 2. * D * queries * 3;
    expect_cost(cpu::attention_forward_cost(kGpu, d), 2 * product, {(queries + 2 * seen) * D},
                {queries * D, queries});
    expect_cost(cpu::attention_backward_cost(kGpu, d), 5 * product, {(3 * queries + 2 * keys) * D, queries},
                {(queries + 2 * keys) * D});
}

TEST(products_have_two_flops_a_term) {
    constexpr int N = 6, C = 24, OC = 40, F = 16;
    constexpr size_t x = N * C, w = OC * C, out = N * OC;
    constexpr double flops = 2. * N * C * OC;
    expect_cost(cpu::matmul_forward_cost(kGpu, N, C, OC, true), flops, {x + w + OC}, {out});
    expect_cost(cpu::matmul_forward_cost(kGpu, N, C, OC, false), flops, {x + w}, {out});
    expect_cost(cpu::matmul_backward_input_cost(kGpu, N, C, OC), flops, {out + w}, {x});
    expect_cost(cpu::matmul_backward_weight_cost(kGpu, N, C, OC), flops, {out + x, w}, {0, w});
    expect_cost(cpu::matmul_backward_weight_bias_cost(kGpu, N, C, OC), flops, {out + x, w + OC}, {0, w + OC});
    expect_cost(cpu::matmul_forward_batch_cost(kGpu, N, C, OC, 3), 3 * flops, {3 * (x + w)}, {3 * out});
    expect_cost(cpu::matmul_backward_input_batch_cost(kGpu, N, C, OC, 3), 3 * flops, {3 * (out + w)},
                {3 * x});
    expect_cost(cpu::matmul_backward_weight_batch_cost(kGpu, N, C, OC, 3), 3 * flops, {3 * (out + x), 3 * w},
                {0, 3 * w});
    for (const Activation f : {Activation::Gelu, Activation::Relu2, Activation::Swiglu}) {
        const size_t P = f == Activation::Swiglu ? 2 * F : F;
        expect_cost(cpu::matmul_activation_forward_cost(kGpu, f, N, C, F, true), 2. * N * C * double(P),
                    {x + P * C + P}, {N * (P + F)});
        expect_cost(cpu::matmul_activation_backward_input_cost(kGpu, f, N, F, OC), 2. * N * F * OC,
                    {out + OC * F + N * P}, {N * P});
        expect_cost(cpu::matmul_activation_backward_input_cost(kGpu, f, N, F, OC, true), 2. * N * F * OC,
                    {out + OC * F + N * P, P}, {N * P, P});
    }
}

TEST(muons_ops_move_each_tensor_once) {
    constexpr int rows = 5, cols = 12;
    constexpr size_t count = rows * cols;
    floatX param;
    cpu::MuonUpdate update = {};
    update.param = &param, update.rows = rows, update.cols = cols;
    expect_cost(cpu::muon_momentum_cost(kGpu, count), 0, {0, 2 * count}, {0, 2 * count});
    const size_t rounded = count * (sizeof(real) + 2);
    cpu::RoundedMomentum in_bf16 = {};
    in_bf16.rows = rows, in_bf16.cols = cols;
    const Cost momentum = cpu::muon_rounded_momentum_cost(kGpu, in_bf16);
    EXPECT(momentum.read == rounded && momentum.written == rounded, "%zu bytes", size_t(momentum.read));
    expect_cost(cpu::muon_normalize_cost(kGpu, rows, cols), 0, {0, count}, {8 * 16});   // sides of products
    expect_cost(cpu::gram_cost(kGpu, 8, 24, 3), 3 * 2. * 8 * 8 * 24, {3 * 8 * 24}, {3 * 8 * 8});
    expect_cost(cpu::linear_combination_cost(kGpu, count), 0, {2 * count}, {count});
    expect_cost(cpu::muon_update_cost(kGpu, update), 0, {2 * count}, {count});      // without masters
    real master;
    update.master = &master;
    expect_cost(cpu::muon_update_cost(kGpu, update), 0, {count, count}, {count, count});
    update.param = nullptr;
    expect_cost(cpu::muon_update_cost(kGpu, update), 0, {count, count}, {0, count});
}

// Three slices of 10 columns, two of them padding.
TEST(slices_of_a_classifier_move_their_statistics) {
    constexpr size_t N = 6, V = 8, Vp = 10, slices = 3, statistics = 3 * N;
    const cpu::Classifier t{.losses = nullptr, .logits = nullptr, .stats = nullptr, .targets = nullptr,
                            .N = 6, .V = 8, .Vp = 10, .v0 = 0, .slices = 3};
    const Moved all{0, N * (2 * slices + 1), N};
    expect_cost(cpu::classifier_forward_cost(kGpu, t), 0, {N * V, 0, N}, {0, statistics});
    expect_cost(cpu::classifier_forward_backward_cost(kGpu, t), 0, {N * V, 0, N}, {0, statistics});
    expect_cost(cpu::classifier_merge_cost(kGpu, t), 0, all, {0, N});
    expect_cost(cpu::classifier_merge_backward_cost(kGpu, t), 0, {N * V, all.reals, N}, {N * Vp, N});
    expect_cost(cpu::classifier_largest_cost(kGpu, t), 0, {N * V}, {0, N, N});
}

}  // namespace PRECISION
