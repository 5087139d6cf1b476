// The sums of columns that attention's backward by tensor cores leaves for the gradient of a bias, of every
// variant.
#include "test/attention_variants.h"

namespace PRECISION {

// Also where a block has many turns, and where rows behind the last are no zeros.
TEST(columns_of_the_gradients_are_summed) {
    const auto check = [](const TestedAttention& s) {
        const AttentionCase c(s);
        for_variants(
            s.D, [](const Forward&) {},
            [&](const Backward& queries, const Backward& keys) {
                AttentionResults got;
                const auto compute = [&] { got = run(c, queries, keys, true); };
                if (kAgain) compute();          // counted by make test
                else EXPECT_FLOORS(compute);
                expect_column_sums(s, got.dbias, dbias_before(s), got.dq, got.dk, got.dv);
            });
    };
    for (const int D : kHeadSizes)
        if (!few(D)) check({1, 150, 150, 2, D, 0, 0, 2, D == 80 ? 37 : 0});
    const int processors = std::exchange(cuda_device().processors, 1);
    check({3, 70, 70, 2, 64, 0, 0});
    check({2, 150, 40, 1, 128, 3, 0});          // queries see keys behind the last
    cuda_device().processors = processors;
}

}  // namespace PRECISION
