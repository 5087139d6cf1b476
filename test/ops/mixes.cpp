// The shortcut from the embedding, and value embeddings.
#include "test/mixes.h"

namespace PRECISION {
namespace {

constexpr MixShape kMixes[] = {{1, 1}, {3, 7}, {5, 40, true, false}, {300, 33}, {513, 16, false, false}};
constexpr ValueShape kValues[] = {{1, 12, 1, 1, 2}, {6, 13, 3, 2, 8}, {33, 40, 11, 3, 17},
                                  {300, 16, 66, 2, 34}};

struct MixRun {
    MixInputs in;
    std::vector<floatX> kept, out;

    explicit MixRun(const MixShape& s)
        : in(s), kept(s.residual ? poisoned<floatX>(in.x.size()) : in.x),
          out(poisoned<floatX>(in.x.size())) {}
    // Of tokens from .. to - 1.
    cpu::Mix part(int from) {
        const size_t at = size_t(from) * size_t(in.s.C);
        return {.out = out.data() + at, .in = kept.data() + at, .x = in.x.data() + at,
                .r = in.s.residual ? in.r.data() + at : nullptr, .bias = in.s.bias ? in.bias.data() : nullptr,
                .x0 = in.x0.data() + at, .keep = in.keep.data(), .add = in.add.data()};
    }
    void forward() { cpu::shortcut_forward(part(0), in.s.N, in.s.C); }
    void backward(int from, int to) {
        const size_t at = size_t(from) * size_t(in.s.C);
        cpu::shortcut_backward({.dx = in.dx.data() + at, .dx0 = in.dx0.data() + at, .dkeep = in.dkeep.data(),
                                .dadd = in.dadd.data()}, kept.data() + at, in.x0.data() + at, in.keep.data(),
                               in.add.data(), to - from, in.s.C);
    }
    bool operator==(const MixRun& o) const {
        return same_bits(kept, o.kept) && same_bits(out, o.out) && same_bits(in.dx, o.in.dx) &&
               same_bits(in.dx0, o.in.dx0) && same_bits(in.dkeep, o.in.dkeep) &&
               same_bits(in.dadd, o.in.dadd);
    }
};

TEST(shortcuts_match_the_reference) {
    const Lent lent(2);
    for (const MixShape& s : kMixes) {
        MixRun t(s);
        t.forward();
        const MixReference r(t.in, t.kept);
        EXPECT_CLOSE(t.kept, r.in, r.in_sums);
        EXPECT_CLOSE(t.out, r.out, r.out_sums);
        t.backward(0, s.N);
        EXPECT_CLOSE(t.in.dx, r.dx, r.dx_sums);
        EXPECT_CLOSE(t.in.dx0, r.dx0, r.dx0_sums);
        EXPECT_CLOSE(t.in.dkeep, r.dkeep, r.dkeep_sums);
        EXPECT_CLOSE(t.in.dadd, r.dadd, r.dadd_sums);
    }
}

// From the stream that was kept, and over it.
TEST(a_shortcut_from_what_was_kept_has_the_same_bits) {
    const Lent lent(1);
    MixRun t({33, 40}), again({33, 40});
    t.forward();
    cpu::Mix m = again.part(0);
    m.x = t.kept.data(), m.r = m.bias = nullptr;
    cpu::shortcut_forward(m, 33, 40);
    EXPECT(same_bits(again.out, t.out));
    m.x = m.out = t.kept.data();
    cpu::shortcut_forward(m, 33, 40);
    EXPECT(same_bits(t.kept, t.out));
}

TEST(shortcuts_of_threads_and_cuts_have_the_same_bits) {
    std::vector<MixRun> runs;
    for (const int threads : {1, 3})
        for (const int cut : {700, 333}) {
            const Lent lent(threads);
            runs.emplace_back(MixShape{700, 24});
            runs.back().forward();
            runs.back().backward(0, cut), runs.back().backward(cut, 700);
        }
    for (const MixRun& r : runs) EXPECT(r == runs[0]);
}

struct ValueRun {
    ValueInputs in;
    std::vector<floatX> drows;
    std::vector<real> dgates;

    explicit ValueRun(const ValueShape& s)
        : in(s), drows(poisoned<floatX>(size_t(s.N) * in.width())),
          dgates(poisoned<real>(size_t(s.N * s.KV))) {}
    cpu::ValueRows rows(std::vector<floatX>& of, int from, int to) const {
        const ValueShape& s = in.s;
        return {.v = of.data() + size_t(from) * in.stride + in.first,
                .h = in.h.data() + size_t(from) * size_t(s.C), .gatew = in.gatew.data(),
                .table = in.table.data(), .tokens = in.tokens.data() + from, .N = to - from, .C = s.C,
                .V = s.V, .KV = s.KV, .D = s.D, .stride = in.stride};
    }
    void forward() { cpu::values_forward(rows(in.qkv, 0, in.s.N)); }
    void backward(int from, int to) {
        const size_t at = size_t(from);
        cpu::values_backward({.drows = drows.data() + at * in.width(),
                              .dgates = dgates.data() + at * size_t(in.s.KV),
                              .dh = in.dh.data() + at * size_t(in.s.C), .dgatew = in.dgatew.data()},
                             rows(in.dqkv, from, to));
    }
    bool operator==(const ValueRun& o) const {
        return same_bits(in.qkv, o.in.qkv) && same_bits(drows, o.drows) && same_bits(in.dh, o.in.dh) &&
               same_bits(in.dgatew, o.in.dgatew);
    }
};

TEST(values_match_the_reference) {
    const Lent lent(2);
    for (const ValueShape& s : kValues) {
        ValueRun t(s);
        const ValueReference r(t.in);
        const std::vector<floatX> dqkv = t.in.dqkv;
        t.forward();
        t.backward(0, s.N);
        EXPECT_CLOSE(t.in.qkv, r.qkv, r.qkv_sums);
        EXPECT_CLOSE(t.drows, r.drows, r.drows_sums);
        EXPECT_CLOSE(t.dgates, r.dgates, r.dgates_sums);
        EXPECT_CLOSE(t.in.dh, r.dh, r.dh_sums);
        EXPECT_CLOSE(t.in.dgatew, r.dgatew, r.dgatew_sums);
        EXPECT(same_bits(t.in.dqkv, dqkv), "the gradient of v changed");
    }
}

TEST(values_of_threads_and_cuts_have_the_same_bits) {
    std::vector<ValueRun> runs;
    for (const int threads : {1, 3})
        for (const int cut : {300, 101}) {
            const Lent lent(threads);
            runs.emplace_back(ValueShape{300, 16, 66, 2, 34});
            runs.back().forward();
            runs.back().backward(0, cut), runs.back().backward(cut, 300);
        }
    for (const ValueRun& r : runs) EXPECT(r == runs[0]);
}

// The loss is the product of out, or of v, with its gradient.
TEST_IF(sizeof(floatX) == 8, gradients_of_mixes_are_slopes) {
    const Lent lent(1);
    MixRun t({4, 5});
    t.forward();
    std::vector<floatX> weights = t.in.dx, keep = t.in.keep, add = t.in.add, x0 = t.in.x0, x = t.in.x;
    std::fill(t.in.dx0.begin(), t.in.dx0.end(), floatX(0)), t.in.dkeep = t.in.dadd = {0};
    t.backward(0, 4);
    const auto loss = [&] {
        MixRun moved({4, 5});
        moved.in.x = x, moved.in.x0 = x0, moved.in.keep = keep, moved.in.add = add;
        moved.forward();
        double sum = 0;
        for (size_t i = 0; i < weights.size(); i++) sum += double(moved.out[i]) * double(weights[i]);
        return sum;
    };
    EXPECT_NEAR(double(t.in.dkeep[0]), slope_of(keep[0], loss), 1e-8);
    EXPECT_NEAR(double(t.in.dadd[0]), slope_of(add[0], loss), 1e-8);
    for (size_t i = 0; i < x.size(); i++) {
        EXPECT_NEAR(double(t.in.dx[i]), slope_of(x[i], loss), 1e-8);
        EXPECT_NEAR(double(t.in.dx0[i]), slope_of(x0[i], loss), 1e-8);
    }
}

TEST_IF(sizeof(floatX) == 8, gradients_of_values_are_slopes) {
    const Lent lent(1);
    const ValueShape s = {5, 13, 3, 2, 4};
    ValueRun t(s);
    std::fill(t.in.dh.begin(), t.in.dh.end(), floatX(0));
    std::fill(t.in.dgatew.begin(), t.in.dgatew.end(), 0);
    t.backward(0, s.N);
    std::vector<real> dtable(t.in.table.size(), 0);
    cpu::encoder_backward(dtable.data(), nullptr, t.drows.data(),
                          {.tokens = t.in.tokens.data(), .v0 = 0, .V = s.V, .N = s.N, .T = s.N,
                           .C = s.KV * s.D, .t0 = 0});
    std::vector<floatX> h = t.in.h, gatew = t.in.gatew, table = t.in.table;
    const auto loss = [&] {
        ValueRun moved(s);
        moved.in.h = h, moved.in.gatew = gatew, moved.in.table = table;
        moved.forward();
        double sum = 0;
        for (int n = 0; n < s.N; n++)
            for (size_t i = size_t(n) * t.in.stride + t.in.first; i < size_t(n + 1) * t.in.stride; i++)
                sum += double(moved.in.qkv[i]) * double(t.in.dqkv[i]);
        return sum;
    };
    for (size_t i = 0; i < h.size(); i++) EXPECT_NEAR(double(t.in.dh[i]), slope_of(h[i], loss), 1e-8);
    for (size_t i = 0; i < gatew.size(); i++)
        EXPECT_NEAR(double(t.in.dgatew[i]), slope_of(gatew[i], loss), 1e-8);
    for (size_t i = 0; i < table.size(); i++) EXPECT_NEAR(double(dtable[i]), slope_of(table[i], loss), 1e-8);
}

}  // namespace
}  // namespace PRECISION
