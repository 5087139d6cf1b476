// Codes of FP8 against their definition, products against sums in FP64 of the same values.
#include "llmc/base/numbers/fp8.h"

#include <cmath>
#include <vector>

#include "test/compare.h"
#include "test/fp8.h"

namespace PRECISION {

static constexpr struct { int rows, columns; } kSizes[] = {{16, 16}, {48, 80}, {64, 1040}};

TEST(codes_follow_their_definition) {
    for (const auto& [rows, columns] : kSizes)
        for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2}) {
            const Lent lent(2);
            const auto x = normals<floatX>(size_t(rows) * size_t(columns), 1, 3e-4);
            const Coded got = coded<cpu::Fp8Matrix>(x, format, rows, columns, cpu::largest, cpu::quantize);
            float amax = 0;
            for (const floatX v : x) amax = std::max(amax, std::fabs(float(v)));
            const float scale = fp8_scale(format, amax);
            EXPECT(got.inverse == 1 / scale, "%g, expected 1 / %g", double(got.inverse), double(scale));
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < columns; j++) {
                    const size_t at = size_t(i) * size_t(columns) + size_t(j);
                    const float scaled = float(x[at]) * scale;
                    const uint8_t want = format == Fp8::E4M3 ? fp8_code<Fp8::E4M3>(scaled)
                                                             : fp8_code<Fp8::E5M2>(scaled);
                    if (got.codes[at] != want || got.transposed[size_t(j * rows + i)] != want)
                        EXPECT(false, "(%d, %d) of (%d, %d)", i, j, rows, columns);
                }
        }
}

// Parts of a matrix on several ranks: the scale is that of the whole.
TEST(amaxes_of_parts_merge_in_either_order) {
    // part k of tensor i: side by side, or a tensor beside the other
    const std::vector<float> by_tensor = {1, 8, 3, 0, 0, 7}, by_part = {1, 0, 8, 0, 3, 7};
    for (const auto& [from, step, part_step] : {std::tuple(&by_tensor, 3, 1), {&by_part, 1, 2}}) {
        std::vector<float> to(2), inverses(2, -1);
        cpu::merge_amaxes(to.data(), nullptr, {from->data(), 2, 3, step, part_step});
        EXPECT(to[0] == 8 && to[1] == 7, "%g and %g", double(to[0]), double(to[1]));
        cpu::merge_amaxes(to.data(), inverses.data(), {from->data(), 2, 3, step, part_step});
        for (size_t i = 0; i < 2; i++) EXPECT(inverses[i] == fp8_inverse(fp8_scale(Fp8::E4M3, to[i])));
    }
}

TEST(the_largest_of_all_parts_decides_the_scale) {
    const Lent lent(2);
    const auto x = normals<floatX>(1024, 1), larger = normals<floatX>(1024, 2, 100);
    std::vector<float> amaxes(2 * cpu::kFp8Parts);
    cpu::largest(amaxes.data(), x.data(), x.size());
    cpu::largest(amaxes.data() + cpu::kFp8Parts, larger.data(), larger.size());
    std::vector<uint8_t> codes(1024);
    float inverse = 0, of_larger = 0;
    cpu::quantize({codes.data(), &inverse, Fp8::E4M3}, nullptr, x.data(), amaxes.data(), 2 * cpu::kFp8Parts,
                  16, 64);
    cpu::quantize({codes.data(), &of_larger, Fp8::E4M3}, nullptr, larger.data(),
                  amaxes.data() + cpu::kFp8Parts, cpu::kFp8Parts, 16, 64);
    EXPECT(inverse == of_larger, "%g and %g", double(inverse), double(of_larger));
}

// As of a pass over what was written.
TEST(ops_leave_the_amaxes_of_their_results) {
    constexpr int N = 19, F = 40;
    const Lent lent(2);
    std::vector<float> left(size_t(cpu::kFp8Parts), INFINITY), passed = left;
    const auto x = normals<floatX>(N * F, 1), pre = normals<floatX>(2 * N * F, 2);
    std::vector<floatX> out = x, dpre = pre;
    std::vector<real> mean(N), rstd(N);
    cpu::Layernorm t = {.x1 = nullptr, .y = out.data(), .mean = mean.data(), .rstd = rstd.data(),
                        .x = x.data(), .r = nullptr, .bias = nullptr, .w = nullptr, .b = nullptr};
    t.amaxes = left.data();
    cpu::layernorm_forward(t, N, F);
    cpu::largest(passed.data(), out.data(), out.size());
    EXPECT(left == passed, "norm");
    for (const Activation f : values_of<Activation>()) {
        cpu::activation_forward(out.data(), pre.data(), f, N, F, left.data());
        cpu::largest(passed.data(), out.data(), out.size());
        EXPECT(left == passed, "activation %d", int(f));
        cpu::activation_backward(dpre.data(), x.data(), pre.data(), f, N, F, left.data());
        cpu::largest(passed.data(), dpre.data(), size_t(N) * size_t(cpu::pre_width(f, F)));
        EXPECT(left == passed, "gradient of activation %d", int(f));
    }
}

// An element that is not finite leaves no finite result, so that the step's norm shows it.
TEST(what_is_not_finite_stays_so) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
        const Lent lent(2);
        std::vector<floatX> x = normals<floatX>(256, 1), out(256);
        x[77] = floatX(bad);
        const auto w = normals<floatX>(256, 2);
        const Coded a = coded<cpu::Fp8Matrix>(x, Fp8::E5M2, 16, 16, cpu::largest, cpu::quantize),
                    b = coded<cpu::Fp8Matrix>(w, Fp8::E4M3, 16, 16, cpu::largest, cpu::quantize);
        cpu::matmul_fp8(out.data(), a.as<cpu::Fp8Matrix>(), b.as<cpu::Fp8Matrix>(), nullptr, 16, 16, 16);
        for (const floatX v : out) EXPECT(std::isnan(double(v)), "%g", double(v));
    }
}

TEST(products_of_codes_are_sums_of_their_values) {
    for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2})
        for (const bool with_bias : {false, true}) {
            const Fp8Case c(48, 80, 112, format);
            const Lent lent(2);
            std::vector<floatX> out = poisoned<floatX>(c.sums(with_bias).size());
            const Coded x = coded<cpu::Fp8Matrix>(c.x, format, c.N, c.C, cpu::largest, cpu::quantize),
                        w = coded<cpu::Fp8Matrix>(c.w, Fp8::E4M3, c.OC, c.C, cpu::largest, cpu::quantize);
            cpu::matmul_fp8(out.data(), x.as<cpu::Fp8Matrix>(), w.as<cpu::Fp8Matrix>(),
                            with_bias ? c.bias.data() : nullptr, c.N, c.C, c.OC);
            EXPECT_CLOSE(out, c.sums(with_bias), c.absolute_sums());
        }
}

// By the identity matrix the gradient of act is that of the next layer's output.
TEST(activation_backward_equals_the_end_of_its_product) {
    constexpr int N = 19, F = 40;
    std::vector<floatX> identity(F * F, floatX(0.f));
    for (int i = 0; i < F; i++) identity[size_t(i) * F + size_t(i)] = floatX(1.f);
    for (const Activation f : values_of<Activation>()) {
        const Lent lent(2);
        const size_t P = size_t(cpu::pre_width(f, F));
        const auto dact = normals<floatX>(N * F, 1), pre = normals<floatX>(N * P, 2);
        std::vector<floatX> dpre = poisoned<floatX>(N * P), whole = dpre, unused(N * F);
        cpu::activation_backward(dpre.data(), dact.data(), pre.data(), f, N, F);
        cpu::matmul_activation_backward_input(whole.data(), unused.data(), dact.data(), identity.data(),
                                              pre.data(), f, N, F, F);
        EXPECT(same_bits(dpre, whole), "activation %d", int(f));
    }
}

}  // namespace PRECISION
