// FP8 on GPUs: codes have the CPU's bits, products the sums of the codes' values.
#include "test/cuda.h"
#include "test/fp8.h"

#include "llmc/ops/cuda/tuning/workload.h"

namespace PRECISION {

// Also of parts: amaxes of further ranks, with the largest in the last.
static Coded by_cuda(const std::vector<floatX>& x, Fp8 format, int rows, int columns, int parts, bool both) {
    const OnDevice in(x);
    std::vector<float> zeros(size_t(parts * cuda::kFp8Parts));
    const OnDevice amaxes(zeros), inverse(std::vector<float>{NAN});
    const OnDevice codes(std::vector<uint8_t>(x.size(), 0xee)), transposed(std::vector<uint8_t>(x.size()));
    cuda::largest(amaxes + (parts - 1) * cuda::kFp8Parts, in, x.size());
    cuda::quantize({codes, inverse, format}, both ? transposed.p : nullptr, in, amaxes,
                   parts * cuda::kFp8Parts, rows, columns);
    return {codes.host(), transposed.host(), inverse.host()[0], format};
}

TEST(codes_have_the_bits_of_the_cpu) {
    struct Parted { int rows, columns, parts; };
    for (const auto& [rows, columns, parts] : {Parted{16, 16, 1}, {80, 48, 2}, {144, 208, 3}})
        for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2}) {
            auto x = normals<floatX>(size_t(rows) * size_t(columns), 1, 3e-4);
            x[5] = floatX(0.f), x[6] = floatX(1e-7f), x[7] = floatX(-2e-3f);
            const Lent host(2);
            Coded want = coded<cpu::Fp8Matrix>(x, format, rows, columns, cpu::largest, cpu::quantize);
            in_every_order([&] {
                EXPECT(by_cuda(x, format, rows, columns, parts, true) == want, "%d x %d", rows, columns);
            });
            std::fill(want.transposed.begin(), want.transposed.end(), uint8_t(0));
            EXPECT(by_cuda(x, format, rows, columns, parts, false) == want, "%d x %d", rows, columns);
        }
}

TEST(what_is_not_finite_leaves_no_finite_scale) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
        auto x = normals<floatX>(64 * 80, 1);
        x[4099] = floatX(bad);
        EXPECT(std::isnan(by_cuda(x, Fp8::E4M3, 64, 80, 1, true).inverse));
    }
}

static std::vector<floatX> product(const Fp8Case& c, const floatX* bias) {
    const Coded x = by_cuda(c.x, c.format, c.N, c.C, 1, false),
                w = by_cuda(c.w, Fp8::E4M3, c.OC, c.C, 1, true);
    const CudaScratch lent;
    const OnDevice x_codes(x.codes), w_codes(w.codes);
    const OnDevice scales(std::vector<float>{x.inverse, w.inverse});
    const OnDevice out(poisoned<floatX>(size_t(c.N) * size_t(c.OC)));
    cuda::matmul_fp8(out, {x_codes, scales, c.format}, {w_codes, scales + 1, Fp8::E4M3}, bias, c.N, c.C,
                     c.OC);
    return out.host();
}

TEST(products_of_codes_are_sums_of_their_values_on_gpus) {
    for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2})
        for (const bool with_bias : {false, true}) {
            if (with_bias && format == Fp8::E5M2) continue;     // gradients have no bias
            const Fp8Case c(48, 80, 112, format);
            const OnDevice bias(c.bias);
            EXPECT_CLOSE(product(c, with_bias ? bias.p : nullptr), c.sums(with_bias), c.absolute_sums());
        }
}

// Every candidate against the product before rounding: tuning offers, runs and checks FP8.
TEST(candidates_of_fp8_agree_with_the_product_of_bf16) {
    for (const cuda::Op op : {cuda::Op::Fp8Forward, cuda::Op::Fp8BiasForward, cuda::Op::Fp8Input}) {
        const cuda::Task task = {op, {64, 96, 80}};
        const CudaScratch lent;
        const size_t bytes = cuda::workload_bytes(task);
        void* const memory = cuda::device_allocate(bytes);
        const auto candidates = cuda::candidates_of(task);
        EXPECT(!candidates.empty());
        for (const cuda::Candidate& candidate : candidates) {
            EXPECT(candidate.algorithm != kPlainCublas);
            const std::string wrong = cuda::differences(task, candidate, memory);
            EXPECT(wrong.empty(), "%s", wrong.c_str());
        }
        cuda::device_free(memory, bytes);
    }
}

TEST(codes_move_what_their_floors_say) {
    constexpr int rows = 192, columns = 256, parts = 2 * cuda::kFp8Parts;
    const CudaScratch lent;
    const OnDevice x(normals<floatX>(rows * columns, 1));
    const std::vector<float> zeros(parts);
    const OnDevice amaxes(zeros), inverse(std::vector<float>{0});
    const std::vector<uint8_t> none(rows * columns);
    const OnDevice codes(none), transposed(none);
    EXPECT_FLOORS([&] {
        cuda::largest(amaxes, x, rows * columns);
        for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2}) {
            cuda::quantize({codes, inverse, format}, nullptr, x, amaxes, parts, rows, columns);
            cuda::quantize({codes, inverse, format}, transposed, x, amaxes, parts, rows, columns);
        }
    });
}

}  // namespace PRECISION
