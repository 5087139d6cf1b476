// Blocks of keys and queries outside a document are skipped: what other documents hold is neither multiplied
// nor read.
#include "llmc/ops/cuda/attention/attention.h"
#include "test/cuda_attention.h"

namespace PRECISION {

// Three documents, each of whole tiles of every kernel.
static constexpr int kRows = 128, kT = 3 * kRows;

// In one sequence, or as a sequence each.
struct Rows {
    TestedAttention s;
    AttentionInputs in;
    std::vector<int32_t> positions = {}, ends = {};
    static Rows packed(int D) {
        const TestedAttention s = {1, kT, kT, 2, D, 0, 0, 2};
        Rows rows{.s = s, .in = {s, 1}};
        for (int t = 0; t < kT; t++) {
            rows.positions.push_back(t % kRows);
            rows.ends.push_back(t / kRows * kRows + kRows);
        }
        return rows;
    }
    static Rows apart(int D) {
        const TestedAttention s = {3, kRows, kRows, 2, D, 0, 0, 2};
        return {.s = s, .in = {s, 1}};
    }
    // NaN, which a masked product of the block would spread: 0 times NaN is NaN.
    void poison_the_second() {
        for (auto* m : {&in.q, &in.k, &in.v, &in.dout}) {
            const size_t third = m->size() / 3;
            std::fill_n(m->begin() + ptrdiff_t(third), third, floatX(real(NAN)));
        }
    }
};

using ForwardOp = void (*)(const cuda::AttentionForward&, const cuda::AttentionDims&);
using BackwardOp = void (*)(const cuda::AttentionGradients&, const cuda::AttentionDims&);

struct Results { std::vector<floatX> out, dq, dk, dv; };
static Results run(const Rows& p, ForwardOp forward, BackwardOp queries, BackwardOp keys) {
    const OnDevice positions(p.positions), ends(p.ends);
    auto d = dims_of<cuda::AttentionDims>(p.s);
    if (!p.ends.empty()) d.documents = {positions, ends};
    const OnDevice q(p.in.q), k(p.in.k), v(p.in.v), dout(p.in.dout), out(poisoned<floatX>(p.in.dout.size()));
    const OnDevice dq(poisoned<floatX>(p.in.q.size())), dk(poisoned<floatX>(p.in.k.size())),
        dv(poisoned<floatX>(p.in.v.size()));
    const OnDevice lse(poisoned<real>(size_t(p.s.NH) * kT)), deltas(poisoned<real>(size_t(p.s.NH) * kT));
    const cuda::AttentionGradients g = {
        {.dq = dq, .dk = dk, .dv = dv, .dout = dout, .out = out, .lse = lse, .q = q, .k = k, .v = v},
        reinterpret_cast<float*>(deltas.p)};
    forward({out, lse, q, k, v}, d);
    queries(g, d);
    if (keys) keys(g, d);
    return {out.host(), dq.host(), dk.host(), dv.host()};
}

// The first document and the third, in rows of `stride` elements that begin with `width` of the heads.
static void expect_untouched(const std::string& what, const std::vector<floatX>& got,
                             const std::vector<floatX>& clean, size_t stride, size_t width) {
    size_t wrong = 0;
    for (size_t row = 0; row < kT; row++)
        for (size_t c = 0; c < width && row / kRows != 1; c++) {
            const double a = double(got[row * stride + c]), b = double(clean[row * stride + c]);
            wrong += !(a == b);
        }
    EXPECT(wrong == 0, "%s: another document changes %zu elements", what.c_str(), wrong);
}

#ifdef CUDA_EMU
struct Work { uint64_t bytes = 0, mma_flops = 0; };
template <class F> static Work work_of(F f) {
    Work work;
    emulator::settings.count = true;
    emulator::reset_counts();
    f();
    emulator::settings.count = false;
    for (const auto& [name, count] : emulator::counts())
        work.bytes += count.bytes, work.mma_flops += count.mma_flops;
    return work;
}

// Besides what documents take by themselves, each block reads the table of its rows.
static void expect_the_work_of_the_documents(const std::string& what, int D, ForwardOp forward,
                                             BackwardOp queries, BackwardOp keys) {
    if (kAgain) return;
    const Rows packed = Rows::packed(D), apart = Rows::apart(D);
    const Work got = work_of([&] { run(packed, forward, queries, keys); }),
               alone = work_of([&] { run(apart, forward, queries, keys); });
    EXPECT(got.mma_flops == alone.mma_flops, "%s, D = %d: %.0f FLOPs, of the documents %.0f", what.c_str(), D,
           double(got.mma_flops), double(alone.mma_flops));
    EXPECT(alone.bytes > 0 && double(got.bytes) < 1.02 * double(alone.bytes) + 64 * kT,
           "%s, D = %d: %.0f bytes, of the documents %.0f", what.c_str(), D, double(got.bytes),
           double(alone.bytes));
}
#else
static void expect_the_work_of_the_documents(const std::string&, int, ForwardOp, BackwardOp, BackwardOp) {}
#endif

static void expect_skipped(const std::string& what, int D, ForwardOp forward, BackwardOp queries,
                           BackwardOp keys) {
    Rows p = Rows::packed(D);
    const Results clean = run(p, forward, queries, keys);
    p.poison_the_second();
    const Results got = run(p, forward, queries, keys);
    const auto d = dims_of<cuda::AttentionDims>(p.s);
    const size_t C = size_t(p.s.NH) * size_t(D), CK = C / size_t(p.s.group);
    const auto name = [&](const char* tensor) { return fmt::format("{} of {}, D = {}", tensor, what, D); };
    expect_untouched(name("out"), got.out, clean.out, C, C);
    expect_untouched(name("dq"), got.dq, clean.dq, d.q_stride, C);
    expect_untouched(name("dk"), got.dk, clean.dk, d.kv_stride, CK);
    expect_untouched(name("dv"), got.dv, clean.dv, d.kv_stride, CK);
    expect_the_work_of_the_documents(what, D, forward, queries, keys);
}

TEST(plain_kernels_skip_other_documents) {
    expect_skipped(
        "plain kernels", 40,
        [](const auto& t, const auto& d) { cuda::attention_plain_forward(t.out, t.lse, t.q, t.k, t.v, d); },
        [](const auto& g, const auto& d) {
            const CudaScratch lent;
            cuda::attention_plain_backward(g.t, d);
        },
        nullptr);
}

// Each variant once, with the others in turn.
TEST_IF(sizeof(floatX) == 2, variants_by_tensor_cores_skip_other_documents) {
    int seen = 0;
    const auto fitting = [](const auto& all, int D) {
        std::vector<std::remove_cvref_t<decltype(all[0])>> some;
        for (const auto& v : all)
            if (v.supports(D)) some.push_back(v);
        return some;
    };
    for (const int D : {32, 64, 80, 96, 128, 160}) {
        if (kAgain && D != 64) continue;
        const auto forward = fitting(cuda::attention_forward_variants(), D);
        const auto queries = fitting(cuda::attention_queries_variants(), D);
        const auto keys = fitting(cuda::attention_keys_variants(), D);
        for (size_t i = 0; i < std::max({forward.size(), queries.size(), keys.size()}); i++, seen++) {
            const auto& f = forward[i % forward.size()];
            const auto &q = queries[i % queries.size()], &k = keys[i % keys.size()];
            expect_skipped(fmt::format("{}, {} and {}", f.name, q.name, k.name), D, f.run, q.run, k.run);
        }
    }
    EXPECT(seen >= (kAgain ? 1 : 5), "%d variants", seen);
}

}  // namespace PRECISION
