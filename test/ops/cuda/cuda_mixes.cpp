// The shortcut from the embedding and value embeddings on GPUs.
#include "test/cuda.h"
#include "test/mixes.h"

namespace PRECISION {

static const MixShape kMixes[] = {{1, 8}, {3, 40}, {5, 264, true, false}, {130, 768},
                                  {513, 16, false, false}};
static const ValueShape kValues[] = {{1, 16, 1, 1, 8},     {6, 40, 3, 2, 16},  {33, 64, 11, 3, 48},
                                     {200, 16, 66, 5, 64}, {70, 24, 9, 2, 128}};

struct MixResults {
    std::vector<floatX> kept, out, dx, dx0;
    std::vector<real> dkeep, dadd;
    bool operator==(const MixResults& o) const {
        return same_bits(kept, o.kept) && same_bits(out, o.out) && same_bits(dx, o.dx) &&
               same_bits(dx0, o.dx0) && same_bits(dkeep, o.dkeep) && same_bits(dadd, o.dadd);
    }
};

static MixResults run(const MixShape& s) {
    const MixInputs in(s);
    const CudaScratch lent;
    const OnDevice x(in.x), r(in.r), bias(in.bias), x0(in.x0), keep(in.keep), add(in.add), dx(in.dx),
        dx0(in.dx0), kept(s.residual ? poisoned<floatX>(in.x.size()) : in.x),
        out(poisoned<floatX>(in.x.size()));
    const OnDevice dkeep(in.dkeep), dadd(in.dadd);
    cuda::shortcut_forward({.out = out, .in = kept, .x = x, .r = s.residual ? r.p : nullptr,
                            .bias = s.bias ? bias.p : nullptr, .x0 = x0, .keep = keep, .add = add}, s.N, s.C);
    cuda::shortcut_backward({.dx = dx, .dx0 = dx0, .dkeep = dkeep, .dadd = dadd}, kept, x0, keep, add, s.N,
                            s.C);
    return {kept.host(), out.host(), dx.host(), dx0.host(), dkeep.host(), dadd.host()};
}

TEST(shortcuts_match_the_reference) {
    for (const MixShape& s : kMixes) {
        const MixResults t = run(s);
        const MixReference r(MixInputs(s), t.kept);
        EXPECT_CLOSE(t.kept, r.in, r.in_sums);
        EXPECT_CLOSE(t.out, r.out, r.out_sums);
        EXPECT_CLOSE(t.dx, r.dx, r.dx_sums);
        EXPECT_CLOSE(t.dx0, r.dx0, r.dx0_sums);
        EXPECT_CLOSE(t.dkeep, r.dkeep, r.dkeep_sums);
        EXPECT_CLOSE(t.dadd, r.dadd, r.dadd_sums);
    }
}

struct ValueResults {
    std::vector<floatX> qkv, dqkv, drows, dh;
    std::vector<real> dgates, dgatew;
    bool operator==(const ValueResults& o) const {
        return same_bits(qkv, o.qkv) && same_bits(drows, o.drows) && same_bits(dh, o.dh) &&
               same_bits(dgates, o.dgates) && same_bits(dgatew, o.dgatew);
    }
};

static ValueResults run(const ValueShape& s) {
    const ValueInputs in(s);
    const CudaScratch lent;
    const OnDevice tokens(in.tokens);
    const OnDevice qkv(in.qkv), dqkv(in.dqkv), h(in.h), gatew(in.gatew), table(in.table), dh(in.dh),
        drows(poisoned<floatX>(size_t(s.N) * in.width()));
    const OnDevice dgates(poisoned<real>(size_t(s.N * s.KV))), dgatew(in.dgatew);
    cuda::ValueRows t = {.v = qkv + in.first, .h = h, .gatew = gatew, .table = table, .tokens = tokens,
                         .N = s.N, .C = s.C, .V = s.V, .KV = s.KV, .D = s.D, .stride = in.stride};
    cuda::values_forward(t);
    t.v = dqkv + in.first;
    cuda::values_backward({.drows = drows, .dgates = dgates, .dh = dh, .dgatew = dgatew}, t);
    return {qkv.host(), dqkv.host(), drows.host(), dh.host(), dgates.host(), dgatew.host()};
}

TEST(values_match_the_reference) {
    for (const ValueShape& s : kValues) {
        const ValueInputs in(s);
        const ValueReference r(in);
        const ValueResults t = run(s);
        EXPECT_CLOSE(t.qkv, r.qkv, r.qkv_sums);
        EXPECT_CLOSE(t.drows, r.drows, r.drows_sums);
        EXPECT_CLOSE(t.dgates, r.dgates, r.dgates_sums);
        EXPECT_CLOSE(t.dh, r.dh, r.dh_sums);
        EXPECT_CLOSE(t.dgatew, r.dgatew, r.dgatew_sums);
        EXPECT(same_bits(t.dqkv, in.dqkv), "the gradient of v changed");
    }
}

TEST(order_changes_no_bit) {
    const MixShape mix = {200, 264};
    const ValueShape values = {150, 16, 20, 3, 48};
    const MixResults mixed = run(mix);
    const ValueResults added = run(values);
    in_every_order([&] { EXPECT(run(mix) == mixed && run(values) == added); });
}

TEST(moves_no_more_than_its_floor) {
    EXPECT_FLOORS([] {
        run(MixShape{130, 768}), run(MixShape{130, 768, true, false}), run(MixShape{130, 768, false, false});
    });
    EXPECT_FLOORS([] { run(ValueShape{128, 64, 500, 3, 64}), run(ValueShape{128, 64, 500, 2, 128}); });
}

}  // namespace PRECISION
