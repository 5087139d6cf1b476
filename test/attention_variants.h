// The variants of attention by tensor cores, and a run of one with the tensors that it reads and writes.
#pragma once
#include "llmc/ops/cuda/attention/attention.h"
#include "test/cuda_attention.h"

namespace PRECISION {

inline constexpr int kHeadSizes[] = {32, 64, 80, 96, 128, 160};

// Tensors that forward leaves for backward: out rounded, lse in FP32.
struct AttentionCase {
    TestedAttention s;
    AttentionInputs in;
    AttentionByFormula exact, alike;
    std::vector<floatX> out;
    std::vector<real> lse;

    explicit AttentionCase(const TestedAttention& s, double size = 1)
        : s(s), in(s, size), exact(s, false), alike(s, true) {
        const Wide q = wide(in.q), k = wide(in.k), v = wide(in.v), dout = wide(in.dout);
        exact.forward(q, k, v), alike.forward(q, k, v);
        for (const double x : exact.out) out.push_back(floatX(real(x)));
        for (const double x : exact.lse) lse.push_back(real(x));
        for (AttentionByFormula* f : {&exact, &alike}) f->backward(q, k, v, dout, wide(out), wide(lse));
    }
    cuda::AttentionDims dims() const { return dims_of<cuda::AttentionDims>(s); }
};

struct AttentionResults {
    std::vector<floatX> out, dq, dk, dv;
    std::vector<real> lse, dbias = {};
    bool operator==(const AttentionResults& o) const {
        return same_bits(out, o.out) && same_bits(dq, o.dq) && same_bits(dk, o.dk) && same_bits(dv, o.dv) &&
               same_bits(lse, o.lse) && same_bits(dbias, o.dbias);
    }
};
using Forward = cuda::AttentionVariant<cuda::AttentionForward>;
using Backward = cuda::AttentionVariant<cuda::AttentionGradients>;

inline AttentionResults run(const AttentionCase& c, const Forward& forward) {
    const OnDevice q(c.in.q), k(c.in.k), v(c.in.v), out(poisoned<floatX>(c.out.size()));
    const OnDevice lse(poisoned<real>(c.lse.size()));
    forward.run({out, lse, q, k, v}, DeviceDims(c.s).d);
    return {.out = out.host(), .dq = {}, .dk = {}, .dv = {}, .lse = lse.host()};
}
inline AttentionResults run(const AttentionCase& c, const Backward& queries, const Backward& keys,
                            bool sums = false) {
    const OnDevice q(c.in.q), k(c.in.k), v(c.in.v), out(c.out), dout(c.in.dout);
    const OnDevice dq(poisoned<floatX>(c.in.q.size())), dk(poisoned<floatX>(c.in.k.size())),
        dv(poisoned<floatX>(c.in.v.size()));
    const OnDevice lse(c.lse), deltas(poisoned<real>(c.lse.size())), dbias(dbias_before(c.s));
    const DeviceDims dims(c.s);
    const OnDevice partial(poisoned<float>(cuda::attention_sums(dims.d) / sizeof(float)));
    const cuda::AttentionGradients g = {
        {.dq = dq, .dk = dk, .dv = dv, .dout = dout, .out = out, .lse = lse, .q = q, .k = k, .v = v,
         .dbias = sums ? dbias.p : nullptr},
        reinterpret_cast<float*>(deltas.p), sums ? partial.p : nullptr};
    queries.run(g, dims.d);
    keys.run(g, dims.d);
    return {.out = {}, .dq = dq.host(), .dk = dk.host(), .dv = dv.host(), .lse = {}, .dbias = dbias.host()};
}

// f(forward), g(queries, keys) for every variant with heads of D channels; the shorter table is repeated.
template <class F, class G> void for_variants(int D, F f, G g) {
    const auto fitting = [&](const auto& all) {
        std::vector<std::remove_cvref_t<decltype(all[0])>> some;
        for (const auto& v : all)
            if (v.supports(D)) some.push_back(v);
        return some;
    };
    const auto forward = fitting(cuda::attention_forward_variants());
    const auto queries = fitting(cuda::attention_queries_variants());
    const auto keys = fitting(cuda::attention_keys_variants());
    const bool compiled = sizeof(floatX) == 2;
    EXPECT(forward.empty() != compiled && queries.empty() != compiled && keys.empty() != compiled,
           "heads of %d: %zu, %zu and %zu variants", D, forward.size(), queries.size(), keys.size());
    for (const Forward& v : forward) f(v);
    for (size_t i = 0; compiled && i < std::max(queries.size(), keys.size()); i++)
        g(queries[i % queries.size()], keys[i % keys.size()]);
}

// AddressSanitizer is ten times slower; make coverage checks every access of kernels.
inline bool few(int D) { return test::kAddressSanitizer && D != 64; }

}  // namespace PRECISION
