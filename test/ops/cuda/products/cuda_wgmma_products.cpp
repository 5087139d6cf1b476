// Products by wgmma with what follows them in the same kernel.
#include <algorithm>

#include "llmc/ops/cuda/products/activation.h"
#include "llmc/ops/cuda/products/fused_products.h"
#include "llmc/ops/cuda/tuning/workload.h"
#include "test/activations.h"
#include "test/cuda.h"

namespace PRECISION {

// The block has more tiles than one, some of whose rows, columns and terms lie outside of the tensors.
struct Shape { int N, C, F, OC; };
static const Shape kShapes[] = {{1, 8, 8, 16}, {150, 72, 280, 136}, {40, 328, 520, 24}};
static const char* const kNames[] = {"wgmma_128x256", "wgmma_128x192"};
static constexpr bool kBf16 = sizeof(floatX) == 2;

static bool is_hopper() { return kBf16 && cuda_device().arch == 90; }

// The kernel of this name for each op of a shape.
static void choose_all(const char* name, const Shape& s) {
    for (const int width : {s.F, 2 * s.F})
        for (const cuda::Op op : {cuda::Op::Forward, cuda::Op::BiasForward})
            cuda::choose({op, {s.N, s.C, width}}, {name});
    for (const cuda::Op op : {cuda::Op::GeluForward, cuda::Op::Relu2Forward, cuda::Op::SwigluForward})
        cuda::choose({op, {s.N, s.C, s.F}}, {name});
    for (const cuda::Op op :
         {cuda::Op::Input, cuda::Op::GeluInput, cuda::Op::Relu2Input, cuda::Op::SwigluInput})
        cuda::choose({op, {s.N, s.F, s.OC}}, {name});
}

struct Inputs {
    std::vector<floatX> x, w, bias, pre, dout, wproj;
    explicit Inputs(const Shape& s)
        : x(normals<floatX>(size_t(s.N) * s.C, 1)), w(normals<floatX>(size_t(2 * s.F) * s.C, 2, 0.3)),
          bias(normals<floatX>(size_t(2 * s.F), 3)), pre(normals<floatX>(size_t(s.N) * 2 * s.F, 4)),
          dout(normals<floatX>(size_t(s.N) * s.OC, 5)), wproj(normals<floatX>(size_t(s.OC) * s.F, 6, 0.3)) {}
};

// Activations in the kernel of a product, or by kernels of their own behind products of the same tiles.
struct Results {
    std::vector<floatX> out, biased, dx;
    std::vector<floatX> pre[3], act[3], dpre[3];            // by activation
    std::vector<real> dbias[3];                             // summed in another order
    bool operator==(const Results& o) const {
        bool same = same_bits(out, o.out) && same_bits(biased, o.biased) && same_bits(dx, o.dx);
        for (int i = 0; i < 3; i++)
            same = same && same_bits(pre[i], o.pre[i]) && same_bits(act[i], o.act[i]) &&
                   same_bits(dpre[i], o.dpre[i]);
        return same;
    }
};

static Results run(const Shape& s, bool in_one) {
    const Inputs in(s);
    const CudaScratch lent;
    const OnDevice x(in.x), w(in.w), bias(in.bias), in_pre(in.pre), dout(in.dout), wproj(in.wproj);
    const size_t features = size_t(s.N) * s.F;
    const OnDevice out(poisoned<floatX>(2 * features)), biased(poisoned<floatX>(2 * features)),
        dx(poisoned<floatX>(features));
    cuda::matmul_forward(out, x, w, nullptr, s.N, s.C, 2 * s.F);
    cuda::matmul_forward(biased, x, w, bias, s.N, s.C, 2 * s.F);
    cuda::matmul_backward_input(dx, dout, wproj, s.N, s.F, s.OC);
    Results r = {out.host(), biased.host(), dx.host(), {}, {}, {}, {}};
    for (const Activation f : kActivations) {
        const int P = cuda::pre_width(f, s.F), i = int(f);
        const OnDevice pre(poisoned<floatX>(size_t(s.N) * P)), dpre(poisoned<floatX>(pre.count)),
            act(poisoned<floatX>(features)), dact(poisoned<floatX>(features));
        const OnDevice dbias(normals<real>(size_t(P), 7));
        const floatX* const b = f == Activation::Gelu ? bias.p : nullptr;
        if (in_one) {
            cuda::matmul_activation_forward(act, pre, x, w, b, f, s.N, s.C, s.F);
            cuda::matmul_activation_backward_input(dpre, dact, dout, wproj, in_pre, f, s.N, s.F, s.OC, dbias);
            EXPECT(same_bits(dact.host(), poisoned<floatX>(features)), "dact went to memory");
        } else {
            cuda::matmul_forward(pre, x, w, b, s.N, s.C, P);
            cuda::activation_forward(act, pre, f, s.N, s.F);
            cuda::matmul_backward_input(dact, dout, wproj, s.N, s.F, s.OC);
            cuda::activation_backward(dpre, dact, in_pre, f, s.N, s.F);
            cuda::bias_backward(dbias, dpre, s.N, P);
        }
        r.pre[i] = pre.host(), r.act[i] = act.host(), r.dpre[i] = dpre.host(), r.dbias[i] = dbias.host();
    }
    return r;
}

static void expect_right(const Shape& s, const Results& got) {
    const Inputs in(s);
    const Wide x = wide(in.x), w = wide(in.w), bias = wide(in.bias), dout = wide(in.dout);
    const Wide wp = wide(in.wproj);
    Wide out(got.out.size()), biased(out), sums(out), dx(got.dx.size()), dx_sums(dx);
    const OracleScratch lent;
    oracle::matmul_forward(out.data(), x.data(), w.data(), nullptr, s.N, s.C, 2 * s.F);
    oracle::matmul_forward(biased.data(), x.data(), w.data(), bias.data(), s.N, s.C, 2 * s.F);
    oracle::matmul_forward(sums.data(), absolute(x).data(), absolute(w).data(), absolute(bias).data(), s.N,
                           s.C, 2 * s.F);
    oracle::matmul_backward_input(dx.data(), dout.data(), wp.data(), s.N, s.F, s.OC);
    oracle::matmul_backward_input(dx_sums.data(), absolute(dout).data(), absolute(wp).data(), s.N, s.F, s.OC);
    EXPECT_CLOSE(got.out, out, sums);
    EXPECT_CLOSE(got.biased, biased, sums);
    EXPECT_CLOSE(got.dx, dx, dx_sums);
}

static void expect_sums(const Results& got) {
    for (int i = 0; i < 3; i++) {
        const size_t P = got.dbias[i].size();
        const Wide dpre = wide(got.dpre[i]);
        Wide sums = wide(normals<real>(P, 7)), absolute_sums = absolute(sums);
        for (size_t k = 0; k < dpre.size(); k++) {
            sums[k % P] += dpre[k];
            absolute_sums[k % P] += std::fabs(dpre[k]);
        }
        EXPECT_CLOSE(got.dbias[i], sums, absolute_sums);
    }
}

// Every bit of pre, act and dpre is that of the kernels apart: so it is at every recompute level.
TEST_IF(kBf16, activations_in_the_kernel_of_a_product_change_no_bit) {
    if (!is_hopper()) return test::skip("kernels for sm_90a");
    for (const char* name : kNames)
        for (const Shape& s : kShapes) {
            choose_all(name, s);
            const Results apart = run(s, false);
            expect_right(s, apart);
            const Results in_one = run(s, true);
            EXPECT(in_one == apart, "%s, N = %d", name, s.N);
            expect_sums(in_one), expect_sums(apart);
        }
}

TEST_IF(kBf16, order_changes_no_bit) {
    if (!is_hopper()) return test::skip("kernels for sm_90a");
    const Shape s = kShapes[1];
    for (const char* name : kNames) {
        choose_all(name, s);
        const Results first = run(s, true);
        in_every_order([&] {
            const Results again = run(s, true);
            EXPECT(again == first, "%s", name);
            for (int i = 0; i < 3; i++) EXPECT(same_bits(again.dbias[i], first.dbias[i]), "%s", name);
        });
    }
}

TEST_IF(kBf16, moves_no_more_than_its_floor) {
    if (!is_hopper()) return test::skip("kernels for sm_90a");
    const Shape s = {150, 128, 288, 64};
    const OnDevice some(normals<floatX>(64, 1)), out(some.host());
    const CudaScratch lent;
    for (const char* name : kNames) {
        choose_all(name, s);
        EXPECT_FLOORS([&] {
            run(s, true);
            cuda::matmul_forward(out, some, some, nullptr, 8, 8, 8);    // in the scratch that all ops state
        });
    }
}

static const cuda::Op kOps[] = {cuda::Op::Forward,       cuda::Op::BiasForward, cuda::Op::GeluForward,
                                cuda::Op::Relu2Forward,  cuda::Op::SwigluForward, cuda::Op::Input,
                                cuda::Op::GeluInput,     cuda::Op::Relu2Input,  cuda::Op::SwigluInput};

// Each is a candidate behind cuBLASLt's, of single products on Hopper; tuning runs and checks it.
TEST(candidates_on_hopper_alone) {
    for (const int arch : {80, 89, 90, 100, 120})
        for (const cuda::Op op : kOps)
            for (const int batch : {0, 3}) {
                if (batch && op != cuda::Op::Forward && op != cuda::Op::Input) continue;
                const int before = std::exchange(cuda_device().arch, arch);
                const size_t shared = std::exchange(cuda_device().shared_limit, 227 << 10);
                const auto candidates = cuda::candidates_of({op, {64, 64, 128, batch}});
                cuda_device().arch = before, cuda_device().shared_limit = shared;
                const auto ours = [](const cuda::Candidate& c) { return c.kernel.starts_with("wgmma"); };
                const long count = std::ranges::count_if(candidates, ours);
                EXPECT(count == (kBf16 && arch == 90 && !batch ? 2 : 0), "sm_%d, batch of %d: %ld", arch,
                       batch, count);
                EXPECT(!ours(candidates.at(0)), "not cuBLASLt's by default");
            }
    for (const cuda::Op op : kOps)
        for (const char* name : kNames)
            EXPECT(cuda::product_kernels().find(fmt::format("{}:{}", int(op), name)) != std::string::npos);
}

TEST_IF(kBf16, tuning_compares_every_candidate) {
    if (!is_hopper()) return test::skip("kernels for sm_90a");
    const CudaScratch lent;
    for (const cuda::Op op : kOps) {
        const cuda::Task task = {op, {40, 72, 136}};
        const OnDevice memory(std::vector<std::byte>(cuda::workload_bytes(task)));
        for (const cuda::Candidate& candidate : cuda::candidates_of(task)) {
            const std::string wrong = cuda::differences(task, candidate, memory);
            EXPECT(wrong.empty(), "%s: %s", candidate.kernel.c_str(), wrong.c_str());
        }
    }
}

// A run's file may name a kernel that this build has not.
TEST(an_unknown_kernel_is_the_default) {
    const Shape s = {5, 24, 40, 16};
    const Results by_default = run(s, false);
    choose_all("wgmma_1x1", s);
    EXPECT(run(s, false) == by_default);
}

}  // namespace PRECISION
