// FP8 on GPUs: codes have the CPU's bits, products the sums of the codes' values.
#include "test/cuda.h"
#include "test/fp8.h"

#include "llmc/base/config/choice.h"
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

// By a scale of 1: the instruction of a GPU rounds as fp8_code() does.
TEST(every_bf16_gets_the_code_of_the_cpu) {
    std::vector<floatX> x;
    for (uint32_t bits = 0; bits < 0x10000; bits++) x.push_back(floatX(std::bit_cast<float>(bits << 16)));
    for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2}) {
        std::vector<float> amax(size_t(cuda::kFp8Parts));
        amax[7] = fp8_formats[int(format)].largest;
        const std::vector<uint8_t> none(x.size());
        const OnDevice in(x);
        const OnDevice amaxes(amax), inverse(std::vector<float>{NAN});
        const OnDevice codes(none), transposed(none);
        cuda::quantize({codes, inverse, format}, transposed, in, amaxes, cuda::kFp8Parts, 256, 256);
        const std::vector<uint8_t> got = codes.host(), across = transposed.host();
        for (size_t i = 0; i < x.size(); i++) {
            const float v = float(x[i]);
            const uint8_t want = format == Fp8::E4M3 ? fp8_code<Fp8::E4M3>(v) : fp8_code<Fp8::E5M2>(v);
            if (got[i] != want || across[i % 256 * 256 + i / 256] != want)
                EXPECT(false, "format %d, %g: %02x, expected %02x", int(format), double(v), got[i], want);
        }
    }
}

static float largest_of(const std::vector<float>& amaxes) {
    uint32_t most = 0;
    for (const float a : amaxes) most = std::max(most, std::bit_cast<uint32_t>(a));
    return std::bit_cast<float>(most);
}

// op(amaxes) writes `out`: its amaxes are those of a pass over it, whatever was there before.
template <class F> static void expect_amaxes(const char* what, const OnDevice<floatX>& out, F op) {
    const std::vector<float> before(size_t(cuda::kFp8Parts), INFINITY);
    const OnDevice left(before), passed(before);
    op(left.p);
    const std::vector<floatX> written = out.host();
    cuda::largest(passed, out, written.size());
    const float got = largest_of(left.host()), want = largest_of(passed.host());
    EXPECT(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want), "%s: %g, expected %g", what,
           double(got), double(want));
}

// An element that exceeds all others, in the first, a middle and the last pack, by several blocks; and NaN.
TEST(ops_leave_the_amaxes_of_what_they_write) {
    constexpr int N = 1061, C = 64, rows = 67, F = 72;
    for (const size_t at : {size_t(0), size_t(N) * C / 2 + 5, size_t(N) * C - 1})
        for (const NormKind kind : ::values_of<NormKind>()) {
            auto x = normals<floatX>(size_t(N) * C, 1);
            x[at] = floatX(-1e4f);
            const OnDevice in(x), y(x);
            const std::vector<real> none(N);
            const OnDevice mean(none), rstd(none);
            cuda::Layernorm t = {.kind = kind, .x1 = nullptr, .y = y, .mean = mean, .rstd = rstd, .x = in,
                                 .r = nullptr, .bias = nullptr, .w = nullptr, .b = nullptr};
            expect_amaxes("norm", y, [&](float* amaxes) {
                t.amaxes = amaxes;
                cuda::layernorm_forward(t, N, C);
            });
        }
    for (const float large : {-300.f, float(NAN)})
        for (const size_t at : {size_t(0), size_t(rows) * F / 2 + 5, size_t(rows) * F - 1})
            for (const Activation f : ::values_of<Activation>()) {
                const size_t P = size_t(cpu::pre_width(f, F)), row = at / F, column = at % F;
                auto pre = normals<floatX>(rows * P, 1), dact = normals<floatX>(size_t(rows) * F, 2);
                pre[row * P + column] = floatX(-large), dact[at] = floatX(large);
                if (has_gate(f)) pre[row * P + F + column] = floatX(2.f);
                const OnDevice in(pre), d(dact), act(dact), dpre(pre);
                expect_amaxes("activation", act, [&](float* amaxes) {
                    cuda::activation_forward(act, in, f, rows, F, amaxes);
                });
                expect_amaxes("its gradient", dpre, [&](float* amaxes) {
                    cuda::activation_backward(dpre, d, in, f, rows, F, amaxes);
                });
            }
}

// A rank without tokens has nothing large.
TEST(no_rows_have_amaxes_of_0) {
    const std::vector<float> before(size_t(cuda::kFp8Parts), INFINITY);
    const OnDevice amaxes(before);
    cuda::Layernorm t = {};
    t.amaxes = amaxes;
    cuda::layernorm_forward(t, 0, 64);
    EXPECT(largest_of(amaxes.host()) == 0, "%g", double(largest_of(amaxes.host())));
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

// Transposed codes are those that quantize() writes itself; codes of a part are those of the whole matrix.
TEST(codes_of_parts_and_transposed_codes_are_those_of_the_whole) {
    for (const auto& [rows, columns] : {std::pair(64, 80), {16, 16}, {208, 144}}) {
        const std::vector<floatX> x = normals<floatX>(size_t(rows) * size_t(columns), 3);
        const Coded whole = by_cuda(x, Fp8::E4M3, rows, columns, 1, true);
        const OnDevice in(x);
        const OnDevice codes(whole.codes), other(std::vector<uint8_t>(x.size()));
        cuda::transpose_codes(other, codes, rows, columns);
        EXPECT(other.host() == whole.transposed, "(%d, %d)", rows, columns);

        // two ranks with a part each: amaxes side by side, as a gather leaves them
        const size_t cut = x.size() / 3 / 64 * 64;
        const OnDevice parts(std::vector<float>(size_t(2 * cuda::kFp8Parts))), both(std::vector<float>(2));
        const OnDevice scale(std::vector<float>(2)), inverse(std::vector<float>(1));
        const OnDevice pieces(std::vector<uint8_t>(x.size()));
        cuda::largest(parts, in, cut);
        cuda::largest(parts + cuda::kFp8Parts, in + cut, x.size() - cut);
        cuda::merge_amaxes(both, nullptr, {parts, 2, cuda::kFp8Parts, cuda::kFp8Parts, 1});
        cuda::merge_amaxes(scale, scale + 1, {both, 1, 2, 1, 1});
        cuda::quantize({pieces, inverse, Fp8::E4M3}, nullptr, in, scale, 1, 16, int(cut / 16));
        cuda::quantize({pieces + cut, inverse, Fp8::E4M3}, nullptr, in + cut, scale, 1, 16,
                       int((x.size() - cut) / 16));
        EXPECT(pieces.host() == whole.codes && inverse.host()[0] == whole.inverse &&
               scale.host()[1] == whole.inverse, "(%d, %d)", rows, columns);
    }
}

TEST(codes_move_what_their_floors_say) {
    constexpr int rows = 192, columns = 256, parts = 2 * cuda::kFp8Parts;
    const CudaScratch lent;
    const OnDevice x(normals<floatX>(rows * columns, 1));
    const std::vector<float> zeros(parts);
    const OnDevice amaxes(zeros), inverse(std::vector<float>{0}), merged(std::vector<float>(4));
    const std::vector<uint8_t> none(rows * columns);
    const OnDevice codes(none), transposed(none);
    const std::vector<floatX> empty(rows * columns);
    const std::vector<real> of_rows(rows);
    const OnDevice out(empty), dact(empty);
    const OnDevice mean(of_rows), rstd(of_rows);
    cuda::Layernorm norm = {.x1 = nullptr, .y = out, .mean = mean, .rstd = rstd, .x = x, .r = nullptr,
                            .bias = nullptr, .w = nullptr, .b = nullptr};
    norm.amaxes = amaxes;
    EXPECT_FLOORS([&] {
        cuda::largest(amaxes, x, rows * columns);
        for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2}) {
            cuda::quantize({codes, inverse, format}, nullptr, x, amaxes, parts, rows, columns);
            cuda::quantize({codes, inverse, format}, transposed, x, amaxes, parts, rows, columns);
        }
        cuda::transpose_codes(transposed, codes, rows, columns);
        cuda::merge_amaxes(merged, nullptr, {amaxes, 2, cuda::kFp8Parts, cuda::kFp8Parts, 1});
        cuda::merge_amaxes(merged, merged + 2, {amaxes, 2, cuda::kFp8Parts, 1, 2});
        for (const Activation f : ::values_of<Activation>()) {
            const int F = has_gate(f) ? columns / 2 : columns;
            cuda::activation_forward(out, x, f, rows, F, amaxes);
            cuda::activation_backward(out, dact, x, f, rows, F, amaxes);
        }
        cuda::layernorm_forward(norm, rows, columns);
    });
}

}  // namespace PRECISION
