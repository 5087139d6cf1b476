// The emulated cuBLASLt refuses the FP8 products that Hopper does not have.
#include "llmc/ops/cuda/gemm.h"
#include "test/test.h"

// Of FP8 Hopper has one layout, no gradients by gradients, and sizes that divide by 16.
TEST(fp8_products_that_hopper_does_not_have_are_refused) {
    const Gemm sound = {.m = 64, .n = 32, .k = 48, .a_transposed = true, .b_transposed = false,
                        .in = DType::E4M3, .out = DType::BF16, .accumulate = false,
                        .epilogue = Epilogue::Bias};
    const auto found = [&](auto change) {
        Gemm g = sound;
        change(g);
        return !gemm_algorithms(g).empty();
    };
    EXPECT(found([](Gemm&) {}));
    EXPECT(found([](Gemm& g) { g.in_b = DType::E5M2; }));
    EXPECT(found([](Gemm& g) { g.epilogue = Epilogue::None, g.out = DType::F32; }));
    EXPECT(!found([](Gemm& g) { g.in = g.in_b = DType::E5M2; }), "gradients by gradients");
    EXPECT(!found([](Gemm& g) { g.in_b = DType::BF16; }), "FP8 by BF16");
    EXPECT(!found([](Gemm& g) { g.a_transposed = false; }), "layout NN");
    EXPECT(!found([](Gemm& g) { g.b_transposed = true; }), "layout TT");
    EXPECT(!found([](Gemm& g) { g.m = 72; }), "m");
    EXPECT(!found([](Gemm& g) { g.n = 40; }), "n");
    EXPECT(!found([](Gemm& g) { g.k = 56; }), "k");
    EXPECT(!found([](Gemm& g) { g.epilogue = Epilogue::GeluBackward; }), "GELU's gradient");
    EXPECT(!found([](Gemm& g) { g.out = DType::F32; }), "bias in FP32");
}

// An algorithm is chosen for its description. Gradients keep FP32 sums.
TEST(sums_of_the_forward_pass_alone_may_be_fast) {
    const auto fast = [](DType a, DType b) {
        const Gemm g = {.m = 64, .n = 32, .k = 48, .a_transposed = true, .b_transposed = false, .in = a,
                        .out = DType::BF16, .accumulate = false, .epilogue = Epilogue::None, .in_b = b};
        return gemm_algorithms(g)[0].words[6];
    };
    EXPECT(fast(DType::E4M3, DType::E4M3) == 1);
    EXPECT(fast(DType::E4M3, DType::E5M2) == 0 && fast(DType::E5M2, DType::E4M3) == 0);
    EXPECT(fast(DType::BF16, DType::BF16) == 0);
}
