// How much attention by tensor cores computes, in closed form: tiles above the diagonal are skipped.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "llmc/ops/cuda/attention/attention.h"
#include "llmc/ops/gpu_rows.h"
#include "test/cuda_attention.h"

namespace PRECISION {

// Of T tokens in tiles of N rows T (T + N) / 2 pairs of rows are left, of each head of each sequence, in so
// many products of 2 D operations a pair.
static int expect_counts(const auto& variants, int products) {
    constexpr int T = 256, B = 3, NH = 2;
    int seen = 0;
    for (const int D : {32, 64, 80, 96, 128, 160})
        for (const auto& v : variants) {
            if (!v.supports(D)) continue;
            const double N = atoi(strchr(v.name, 'x') + 1), pairs = B * NH * T * (T + N) / 2;
            const double flops = v.floor(dims_of<cuda::AttentionDims>({B, T, T, NH, D, 0, 0})).mma_flops;
            EXPECT(flops == products * 2 * D * pairs, "%s, D = %d, %d products: %.0f flops", v.name, D,
                   products, flops);
            seen++;
        }
    return seen;
}

TEST(skipped_tiles_are_not_computed) {
    const int seen = expect_counts(cuda::attention_forward_variants(), 2) +
                     expect_counts(cuda::attention_queries_variants(), 3) +
                     expect_counts(cuda::attention_keys_variants(), 4);
    // one of 30 wants more shared memory than sm_120 has
    EXPECT(sizeof(floatX) == 2 ? seen >= 29 : seen == 0, "%d variants and head sizes", seen);
}

// Plans price heads of other sizes as FP32's.
TEST(variants_have_the_head_sizes_that_plans_price_by_tensor_cores) {
    for (int D = 8; D <= cuda::kGpuHeadMost; D += 8) {
        const auto some = [=](const auto& all) {
            return std::ranges::any_of(all, [=](const auto& v) { return v.supports(D); });
        };
        const bool expected = sizeof(floatX) == 2 && has_tensor_core_attention(D);
        EXPECT(some(cuda::attention_forward_variants()) == expected, "heads of %d: forward", D);
        EXPECT(some(cuda::attention_queries_variants()) == expected, "heads of %d: queries", D);
        EXPECT(some(cuda::attention_keys_variants()) == expected, "heads of %d: keys", D);
    }
}

}  // namespace PRECISION
