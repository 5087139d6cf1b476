#include "test/cuda.h"

#include <sstream>

#include "llmc/ops/cuda/gelu.h"
#include "llmc/ops/cuda/matmul.h"

namespace PRECISION {

struct Shape { int N, C, OC; };
static const Shape kShapes[] = {{1, 8, 8}, {5, 40, 120}, {33, 64, 256}, {70, 104, 48}, {2, 768, 64}};

struct Inputs {
    std::vector<floatX> x, w, bias, dout, pre;
    std::vector<real> dw, db;
    explicit Inputs(const Shape& s)
        : x(normals<floatX>(size_t(s.N) * s.C, 1)),
          w(normals<floatX>(size_t(s.OC) * s.C, 2, 0.2)),
          bias(normals<floatX>(s.OC, 3)),
          dout(normals<floatX>(size_t(s.N) * s.OC, 4)),
          pre(normals<floatX>(size_t(s.N) * s.C, 5)),
          dw(normals<real>(w.size(), 6)),
          db(normals<real>(s.OC, 7)) {}
};

static cuda::ScratchSizes sizes_of(const Shape& s) {
    return {.N = s.N, .T = s.N, .C = s.C, .NH = 1, .D = s.C, .F = s.OC, .chunk = s.N, .Vp = s.OC};
}

struct Results {
    std::vector<floatX> out, plain, pre, act, dx, dpre;
    std::vector<real> dw, dw_bias, db;
    bool operator==(const Results& o) const {
        return same_bits(out, o.out) && same_bits(plain, o.plain) && same_bits(pre, o.pre) &&
               same_bits(act, o.act) && same_bits(dx, o.dx) && same_bits(dpre, o.dpre) &&
               same_bits(dw, o.dw) && same_bits(dw_bias, o.dw_bias) && same_bits(db, o.db);
    }
};

static Results run(const Shape& s) {
    const Inputs in(s);
    const CudaScratch lent(sizes_of(s));
    const int N = s.N, C = s.C, OC = s.OC;
    const size_t large = size_t(N) * OC, small = size_t(N) * C;
    const OnDevice x(in.x), w(in.w), bias(in.bias), dout(in.dout), pre(in.pre);
    const OnDevice out(poisoned<floatX>(large)), plain(poisoned<floatX>(large)),
        gelu_pre(poisoned<floatX>(large)), act(poisoned<floatX>(large)), again(poisoned<floatX>(large)),
        dx(poisoned<floatX>(small)), dpre(poisoned<floatX>(small));
    const OnDevice dw(in.dw), dw_bias(in.dw), db(in.db);
    cuda::matmul_forward(out, x, w, bias, N, C, OC);
    cuda::matmul_forward(plain, x, w, nullptr, N, C, OC);
    cuda::matmul_gelu_forward(act, gelu_pre, x, w, bias, N, C, OC);
    cuda::gelu_forward(again, gelu_pre, large);
    EXPECT(same_bits(again.host(), act.host()), "recomputed GELU differs");
    cuda::matmul_backward_input(dx, dout, w, N, C, OC);
    cuda::matmul_gelu_backward_input(dpre, dout, w, pre, N, C, OC);
    cuda::matmul_backward_weight(dw, dout, x, N, C, OC);
    cuda::matmul_backward_weight_bias(dw_bias, db, dout, x, N, C, OC);
    return {out.host(),  plain.host(), gelu_pre.host(), act.host(), dx.host(),
            dpre.host(), dw.host(),    dw_bias.host(),  db.host()};
}

// The sums of absolute products come from the same operations on absolute values. GELU and its slope amplify
// by at most 1.13.
static void expect_right(const Shape& s, const Results& got) {
    const Inputs in(s);
    const int N = s.N, C = s.C, OC = s.OC;
    const Wide x = wide(in.x), w = wide(in.w), bias = wide(in.bias), dout = wide(in.dout), pre = wide(in.pre);
    const Wide x_abs = absolute(x), w_abs = absolute(w), bias_abs = absolute(bias), dout_abs = absolute(dout);
    const size_t large = size_t(N) * OC, small = size_t(N) * C;
    Wide out(large), plain(large), out_sums(large), act(large),
        gelu_pre = wide(got.pre), dx(small), dpre(small), dx_sums(small), dw = wide(in.dw),
        dw_sums = absolute(dw), db = wide(in.db), db_sums = absolute(db);
    const OracleScratch lent({.N = N, .T = N, .C = C, .NH = 1, .D = C, .F = OC, .chunk = N, .Vp = OC});
    oracle::matmul_forward(out.data(), x.data(), w.data(), bias.data(), N, C, OC);
    oracle::matmul_forward(plain.data(), x.data(), w.data(), nullptr, N, C, OC);
    oracle::matmul_forward(out_sums.data(), x_abs.data(), w_abs.data(), bias_abs.data(), N, C, OC);
    oracle::gelu_forward(act.data(), gelu_pre.data(), large);
    oracle::matmul_backward_input(dx.data(), dout.data(), w.data(), N, C, OC);
    oracle::matmul_backward_input(dx_sums.data(), dout_abs.data(), w_abs.data(), N, C, OC);
    oracle::matmul_gelu_backward_input(dpre.data(), dout.data(), w.data(), pre.data(), N, C, OC);
    oracle::matmul_backward_weight(dw.data(), dout.data(), x.data(), N, C, OC);
    oracle::matmul_backward_weight(dw_sums.data(), dout_abs.data(), x_abs.data(), N, C, OC);
    oracle::bias_backward(db.data(), dout.data(), N, OC);
    oracle::bias_backward(db_sums.data(), dout_abs.data(), N, OC);
    EXPECT_CLOSE(got.out, out, out_sums);
    EXPECT_CLOSE(got.plain, plain, out_sums);
    EXPECT_CLOSE(got.pre, out, out_sums);
    EXPECT_CLOSE(got.act, act, absolute(gelu_pre));
    EXPECT_CLOSE(got.dx, dx, dx_sums);
    EXPECT_CLOSE(got.dpre, dpre, dx_sums);
    EXPECT_CLOSE(got.dw, dw, dw_sums);
    EXPECT_CLOSE(got.dw_bias, dw, dw_sums);
    EXPECT_CLOSE(got.db, db, db_sums);
}

TEST(matches_the_cpu) {
    for (const Shape& s : kShapes) expect_right(s, run(s));
}

// Text that chooses variant and algorithm for every op of these shapes: what cuBLASLt answers to begin with,
// with the variants exchanged.
static std::string with_variant(std::string text, char variant) {
    for (const char* op : {"bias_forward ", "gelu_forward ", "gelu_input ", "weight_bias "})
        for (size_t at = 0; (at = text.find(op, at)) != std::string::npos;) {
            for (int spaces = 0; spaces < 4; at++) spaces += text[at] == ' ';
            text[at] = variant;
        }
    return text;
}

TEST(every_variant_matches_the_cpu) {
    const Shape s = {33, 64, 256};
    const Results first = run(s);
    const std::string fused = cuda::matmul_choices(), other = with_variant(fused, '1');
    EXPECT(fused != other && with_variant(fused, '0') == fused);
    EXPECT(cuda::use_matmul_choices(other) > 0);
    EXPECT(cuda::matmul_choices() == other);
    const Results second = run(s);
    expect_right(s, second);
    EXPECT(sizeof(floatX) == 4 || !same_bits(second.dpre, first.dpre), "the variant was not taken");
    EXPECT(cuda::use_matmul_choices(fused) > 0);
    EXPECT(run(s) == first);
    EXPECT(cuda::use_matmul_choices("matmul of another GPU\n" + fused) == 0);
    EXPECT(cuda::matmul_choices() == fused);
}

// cuBLASLt's guesses and plain cuBLAS: other bits, the same values.
TEST(plain_cublas_matches_the_cpu) {
    const Shape s = {33, 64, 256};
    const Results first = run(s);
    const std::string before = cuda::matmul_choices(), word(16, 'f');
    std::string plain;
    std::istringstream lines(before);
    for (std::string line; std::getline(lines, line); plain += line + '\n') {
        const bool fused = line.find(" 0 ") != std::string::npos && line.find("_") < line.find(' ');
        if (line.starts_with("matmul ") || fused) continue;
        line.resize(line.size() - 8 * (word.size() + 1));
        for (int i = 0; i < 8; i++) line += ' ' + word;
    }
    EXPECT(cuda::use_matmul_choices(plain) > 0 && cuda::matmul_choices() == plain);
    const Results second = run(s);
    expect_right(s, second);
#ifdef CUDA_EMU         // where it adds in another order for sure
    EXPECT(sizeof(floatX) == 2 || !same_bits(second.plain, first.plain), "plain cuBLAS was not taken");
#endif
    EXPECT(cuda::use_matmul_choices(before) > 0 && run(s) == first);
}

TEST(order_changes_no_bit) {
    const Shape s = {70, 104, 48};
    const Results first = run(s);
    in_every_order([&] { EXPECT(run(s) == first); });
}

TEST(tuning_times_every_way_and_chooses) {
    const Shape s = {16, 32, 64};
    const cuda::ScratchSizes sizes = sizes_of(s);
    const CudaScratch lent(sizes);
    const size_t bytes = cuda::matmul_tuning_bytes(sizes);
    void* memory = cuda::device_allocate(bytes);
    const auto timings = cuda::matmul_tune(sizes, memory, 1);
    cuda::device_free(memory, bytes);
    for (const char* op :
         {"bias_forward 16 32 96", "gelu_forward 16 32 64", "gelu_input 16 64 32", "weight_bias 16 32 96"}) {
        int ways[2] = {}, plain = 0;
        for (const auto& t : timings)
            if (t.what == op && t.microseconds > 0)
                ways[t.variant == std::string("unfused")]++, plain += t.plain;
        EXPECT(ways[0] > 0 && ways[1] > 1 && plain == 1, "%s: %d fused, %d not, %d of them plain cuBLAS", op,
               ways[0], ways[1], plain);
        EXPECT(cuda::matmul_choices().find(op) != std::string::npos);
    }
    expect_right(s, run(s));
}

TEST(moves_no_more_than_its_floor) {
    const Shape s = {33, 64, 256};
    const CudaScratch lent(sizes_of(s));
    const OnDevice out(normals<floatX>(size_t(s.N) * s.OC, 1)), bias(normals<floatX>(s.OC, 2)),
        act(poisoned<floatX>(size_t(s.N) * s.OC));
    EXPECT_FLOORS([&] {
        cuda::add_bias(out, bias, s.N, s.OC);
        cuda::add_bias_gelu(act, out, bias, s.N, s.OC);
    });
}

}  // namespace PRECISION
