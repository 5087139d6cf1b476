#include "test/cuda.h"

#include <cublasLt.h>

#include <thread>

#include "llmc/ops/cuda/products/activation.h"
#include "llmc/ops/cuda/tuning/workload.h"

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
    const CudaScratch lent;
    const int N = s.N, C = s.C, OC = s.OC;
    const size_t large = size_t(N) * OC, small = size_t(N) * C;
    const OnDevice x(in.x), w(in.w), bias(in.bias), dout(in.dout), pre(in.pre);
    const OnDevice out(poisoned<floatX>(large)), plain(poisoned<floatX>(large)),
        gelu_pre(poisoned<floatX>(large)), act(poisoned<floatX>(large)), again(poisoned<floatX>(large)),
        dx(poisoned<floatX>(small)), dpre(poisoned<floatX>(small));
    const OnDevice dw(in.dw), dw_bias(in.dw), db(in.db);
    cuda::matmul_forward(out, x, w, bias, N, C, OC);
    cuda::matmul_forward(plain, x, w, nullptr, N, C, OC);
    cuda::matmul_activation_forward(act, gelu_pre, x, w, bias, Activation::Gelu, N, C, OC);
    cuda::activation_forward(again, gelu_pre, Activation::Gelu, N, OC);
    EXPECT(same_bits(again.host(), act.host()), "recomputed GELU differs");
    cuda::matmul_backward_input(dx, dout, w, N, C, OC);
    cuda::matmul_activation_backward_input(dpre, nullptr, dout, w, pre, Activation::Gelu, N, C, OC);
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
    const OracleScratch lent;
    oracle::matmul_forward(out.data(), x.data(), w.data(), bias.data(), N, C, OC);
    oracle::matmul_forward(plain.data(), x.data(), w.data(), nullptr, N, C, OC);
    oracle::matmul_forward(out_sums.data(), x_abs.data(), w_abs.data(), bias_abs.data(), N, C, OC);
    oracle::activation_forward(act.data(), gelu_pre.data(), Activation::Gelu, N, OC);
    oracle::matmul_backward_input(dx.data(), dout.data(), w.data(), N, C, OC);
    oracle::matmul_backward_input(dx_sums.data(), dout_abs.data(), w_abs.data(), N, C, OC);
    oracle::matmul_activation_backward_input(dpre.data(), nullptr, dout.data(), w.data(), pre.data(),
                                             Activation::Gelu, N, C, OC);
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

static const cuda::Op kOps[] = {cuda::Op::Forward,   cuda::Op::BiasForward, cuda::Op::GeluForward,
                                cuda::Op::Input,     cuda::Op::GeluInput,   cuda::Op::Weight,
                                cuda::Op::WeightBias};

static constexpr int kEpilogues = 4;

// Chooses, for each op of this shape, the first candidate that `wanted` accepts, where there is one.
template <class F> static int choose_first(const Shape& s, F wanted) {
    int chosen = 0;
    for (const cuda::Op op : kOps) {
        const cuda::Task task = {op, {s.N, s.C, s.OC}};
        const auto candidates = cuda::candidates_of(task);
        const auto found = std::find_if(candidates.begin(), candidates.end(), wanted);
        if (found != candidates.end()) cuda::choose(task, *found), chosen++;
    }
    return chosen;
}

TEST(every_candidate_matches_the_cpu) {
    const Shape s = {33, 64, 256};
    const Results first = run(s);
    const auto is = [](const char* kernel) {
        return [=](const cuda::Candidate& c) { return c.kernel == kernel; };
    };
    EXPECT(choose_first(s, is("unfused")) == int(std::size(kOps)));
    const Results second = run(s);
    expect_right(s, second);
    EXPECT(sizeof(floatX) == 4 || !same_bits(second.dpre, first.dpre), "the choice was not taken");
    const int fused = choose_first(s, is("fused"));
#ifndef CUDA_EMU
    if (fused < kEpilogues)
        return test::skip("cuBLASLt has %d of %d epilogues in %s here", fused, kEpilogues,
                          name_of(dtype_of<floatX>));
#endif
    EXPECT(fused == kEpilogues);
    EXPECT(run(s) == first, "fused is not the default");
}

// cuBLASLt's guesses and plain cuBLAS: other bits, the same values.
TEST(plain_cublas_matches_the_cpu) {
    const Shape s = {33, 64, 256};
    choose_first(s, [](const cuda::Candidate&) { return true; });
    const Results first = run(s);
    EXPECT(choose_first(s, [](const cuda::Candidate& c) { return c.algorithm == kPlainCublas; }) ==
           int(std::size(kOps)));
    const Results second = run(s);
    expect_right(s, second);
#ifdef CUDA_EMU         // where it adds in another order for sure
    EXPECT(sizeof(floatX) == 2 || !same_bits(second.plain, first.plain), "plain cuBLAS was not taken");
#endif
    choose_first(s, [](const cuda::Candidate&) { return true; });
    EXPECT(run(s) == first);
}

#ifdef CUDA_EMU
// Any refusal by cuBLASLt, of an epilogue or of the product itself: the op takes another candidate.
TEST(what_cublaslt_refuses_is_computed_otherwise) {
    const Shape s = {33, 64, 256};
    using emulator::Settings;
    const emulator::Settings before = emulator::settings;
    for (const int status : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE,
                             CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_INTERNAL_ERROR})
        for (int Settings::*const refused : {&Settings::refused_epilogue, &Settings::refused_product,
                                             &Settings::refused_attribute}) {
            emulator::settings.*refused = status;
            std::thread([&] {           // a rank that has not asked before
                context.throw_on_fatal = true;
                const Fatal e = test::fatal_of([&] { expect_right(s, run(s)); });
                EXPECT(e.code == 0, "status %d: %s", status, e.what());
                for (const cuda::Op op : kOps) {
                    const auto candidates = cuda::candidates_of({op, {s.N, s.C, s.OC}});
                    const cuda::Candidate& first = candidates.at(0);
                    const bool plain = first.algorithm == kPlainCublas;
                    EXPECT(refused == &Settings::refused_product ? plain == (first.kernel == "unfused")
                                                                 : first.kernel == "unfused" && !plain);
                }
            }).join();
            emulator::settings = before;
        }
}
#endif

TEST(order_changes_no_bit) {
    const Shape s = {70, 104, 48};
    const Results first = run(s);
    in_every_order([&] { EXPECT(run(s) == first); });
}

TEST(moves_no_more_than_its_floor) {
    const Shape s = {33, 64, 256};
    const CudaScratch lent;
    const OnDevice out(normals<floatX>(size_t(s.N) * s.OC, 1)), bias(normals<floatX>(s.OC, 2)),
        act(poisoned<floatX>(size_t(s.N) * s.OC));
    EXPECT_FLOORS([&] {
        cuda::add_bias(out, bias, s.N, s.OC);
        cuda::add_bias_gelu(act, out, bias, s.N, s.OC);
    });
}

}  // namespace PRECISION
