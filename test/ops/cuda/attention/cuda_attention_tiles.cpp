// How much attention by tensor cores computes, in closed form: tiles above the diagonal are skipped.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "llmc/ops/cuda/attention/attention.h"
#include "llmc/ops/cuda/tensor_map.h"
#include "llmc/ops/cuda/tuning/workload.h"
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
    // one of 30 wants more shared memory than sm_120 has; seven are by wgmma
    const int expected = cuda_device().arch == 90 ? 37 : 29;
    EXPECT(sizeof(floatX) == 2 ? seen >= expected : seen == 0, "%d variants and head sizes", seen);
}

// Code of sm_90a runs on Hopper alone, and is the first choice there. A forward has two variants.
TEST(hopper_alone_takes_wgmma) {
    for (const int arch : {80, 86, 89, 90, 100, 103, 120})
        for (const int D : {32, 64, 80, 96, 128, 160})
            for (const auto op :
                 {cuda::Op::AttentionForward, cuda::Op::AttentionQueries, cuda::Op::AttentionKeys}) {
                const int before = std::exchange(cuda_device().arch, arch);
                const size_t shared = std::exchange(cuda_device().shared_limit, 227 << 10);
                const auto candidates = cuda::candidates_of({op, {1, 256, 1, D}});
                cuda_device().arch = before, cuda_device().shared_limit = shared;
                const bool expected = arch == 90 && (D == 64 || D == 128);
                const size_t number = op == cuda::Op::AttentionForward && D == 64 ? 2 : 1;
                for (size_t i = 0; i < candidates.size(); i++)
                    EXPECT(candidates[i].kernel.starts_with("wgmma") == (expected && i < number),
                           "sm_%d, heads of %d: candidate %zu is %s", arch, D, i,
                           candidates[i].kernel.c_str());
                EXPECT(candidates.empty() == (sizeof(floatX) != 2));
            }
}

// A quarter of the weights by exp2_by_fma(): sums of weights change in their last bits. On Hopper.
TEST_IF(sizeof(floatX) == 2, variants_by_fma_compute_otherwise) {
    const TestedAttention s = {1, 128, 128, 1, 64, 0, 0};
    const AttentionInputs in(s, 1);
    const OnDevice q(in.q), k(in.k), v(in.v), out(poisoned<floatX>(in.dout.size()));
    const OnDevice lse(poisoned<real>(128));
    std::vector<std::vector<real>> sums;
    for (const auto& variant : cuda::attention_wgmma_forward_variants()) {
        if (!variant.supports(64)) continue;
        variant.run({out, lse, q, k, v}, dims_of<cuda::AttentionDims>(s));
        sums.push_back(lse.host());
    }
    if (sums.empty()) return test::skip("no Hopper");
    double most = 0;
    for (size_t i = 0; i < 128; i++)
        most = std::max(most, std::fabs(double(sums[0][i]) - double(sums[1][i])));
    EXPECT(sums.size() == 2 && most > 1e-7 && most < 1e-5, "%g", most);
}

// A map is made once, and again for another pointer or shape.
TEST_IF(sizeof(floatX) == 2, maps_are_kept_by_pointer_and_shape) {
    const OnDevice<floatX> memory{std::vector<floatX>(1 << 15)};
    const cuda::HeadTensor first = {memory, 64, 2, 8, 2, 256};
    std::vector<CUtensorMap> maps = {cuda::tensor_map(first, 64), cuda::tensor_map(first, 128)};
    const auto another = [&](auto change) {
        cuda::HeadTensor t = first;
        change(t);
        maps.push_back(cuda::tensor_map(t, 64));
    };
    another([](auto& t) { t.first += 128; }), another([](auto& t) { t.D = 128; });
    another([](auto& t) { t.heads = 1; }), another([](auto& t) { t.T = 7; });
    another([](auto& t) { t.B = 1; }), another([](auto& t) { t.stride = 384; });
    for (size_t i = 0; i < maps.size(); i++)
        for (size_t j = 0; j < i; j++)
            EXPECT(memcmp(&maps[i], &maps[j], sizeof maps[i]) != 0, "maps %zu and %zu are one", i, j);
    EXPECT(&cuda::tensor_map(first, 64) == &cuda::tensor_map(first, 64), "made twice");
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
