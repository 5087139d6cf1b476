#include "test/attention.h"

namespace PRECISION {

static const Shape kShapes[] = {
    {1, 1, 1, 1, 8, 0, 0},     {3, 5, 5, 2, 16, 0, 0},     {2, 64, 64, 1, 64, 0, 0},
    {1, 65, 65, 2, 32, 0, 0},  {2, 130, 130, 3, 24, 0, 0}, {1, 200, 200, 1, 128, 0, 0},
    {2, 70, 70, 2, 5, 0, 0},   {1, 129, 129, 1, 80, 0, 0}, {1, 1, 77, 2, 64, 76, 0},
    {2, 3, 40, 2, 32, 37, 0},  {1, 5, 11, 1, 17, 10, 4},   {1, 70, 40, 1, 16, 3, 0},
    {1, 33, 33, 25, 64, 0, 0}, {1, 300, 300, 2, 32, 0, 0}, {1, 150, 600, 1, 16, 449, 0},
    {2, 70, 70, 6, 24, 0, 0, 3}, {1, 300, 300, 4, 32, 0, 0, 4}, {2, 3, 40, 4, 16, 37, 0, 2},
};

TEST(matches_the_reference) {
    for (const Shape& s : kShapes) expect_the_reference(s, 1);
}
// Queries and keys of a trained model are larger than 1: a softmax that few keys share.
TEST(matches_the_reference_at_larger_scores) {
    for (const double size : {2., 3., 4.})
        for (const Shape& s : kShapes) expect_the_reference(s, size);
}

TEST(threads_change_no_bit) {
    for (const int window : {0, 50}) {
        const Shape s = {3, 130, 130, 2, 40, 0, 0, 1, window};
        std::vector<Tensors> runs;
        for (const int threads : {1, 2, 3}) {
            const Lent lent(threads);
            runs.emplace_back(s);
            runs.back().run();
        }
        for (const Tensors& t : runs) {
            EXPECT(same_bits(t.out, runs[0].out) && same_bits(t.lse, runs[0].lse));
            EXPECT(same_bits(t.dq, runs[0].dq) && same_bits(t.dk, runs[0].dk) && same_bits(t.dv, runs[0].dv));
        }
    }
}

// A sequence gives the same bits alone and among others.
TEST(sequences_do_not_meet) {
    const Shape s = {3, 70, 70, 2, 16, 0, 0};
    const Lent lent(2);
    Tensors all(s);
    all.run();
    Shape one = s;
    one.B = 1;
    for (int b = 0; b < s.B; b++) {
        Tensors t(one);
        auto part = [&](auto& small, const auto& large) {
            small.assign(large.begin() + b * small.size(), large.begin() + (b + 1) * small.size());
        };
        part(t.q, all.q), part(t.k, all.k), part(t.v, all.v), part(t.dout, all.dout);
        t.run();
        Tensors want(one);
        part(want.out, all.out), part(want.lse, all.lse), part(want.dq, all.dq), part(want.dk, all.dk),
            part(want.dv, all.dv);
        EXPECT(same_bits(t.out, want.out) && same_bits(t.lse, want.lse), "sequence %d", b);
        EXPECT(same_bits(t.dq, want.dq) && same_bits(t.dk, want.dk) && same_bits(t.dv, want.dv),
               "sequence %d", b);
    }
}

// One query against the keys so far, as generation asks, gives its row of the whole.
TEST(cached_rows) {
    const Shape s = {1, 150, 150, 2, 32, 0, 0};
    const Lent lent(2);
    Tensors t(s);
    t.run();
    const int C = s.NH * s.D;
    for (int i = 0; i < s.Tq; i += 7) {
        AttentionDims d = t.d;
        d.Tq = 1, d.Tk = i + 1, d.q_offset = i;
        std::vector<floatX> row(C);
        std::vector<real> lse(s.NH);
        cpu::attention_forward(row.data(), lse.data(), t.q.data() + i * d.q_stride, t.k.data(), t.v.data(),
                               d);
        const double tolerance = sizeof(real) == 8 ? 1e-12 : sizeof(floatX) == 4 ? 1e-5 : 1e-2;
        for (int c = 0; c < C; c++) EXPECT_NEAR(row[c], t.out[i * C + c], tolerance);
    }
}

// Scores of some thousands: no overflow, and the largest takes all.
TEST(large_scores) {
    const Shape s = {1, 80, 80, 1, 64, 0, 0};
    const Lent lent(1);
    Tensors t(s, 40);
    t.run();
    for (const auto* m : {&t.out, &t.dq, &t.dk, &t.dv})
        for (const floatX x : columns(*m, m->size() / 80, 0, 64)) EXPECT(std::isfinite(double(x)));
    for (int c = 0; c < 64; c++) EXPECT_NEAR(t.out[c], t.v[c], 1e-6);
}

TEST_IF(sizeof(floatX) == 8, finite_differences) {
    for (const Shape& s : {Shape{1, 9, 9, 2, 4, 0, 0}, Shape{2, 3, 7, 1, 8, 4, 0}}) {
        const Lent lent(1);
        Tensors t(s);
        t.run();
        auto loss = [&] {
            Tensors u = t;
            u.run();
            double sum = 0;
            for (size_t i = 0; i < u.out.size(); i++) sum += double(u.out[i]) * double(u.dout[i]);
            return sum;
        };
        const size_t C = size_t(s.NH) * s.D;
        auto check = [&](std::vector<floatX>& x, const std::vector<floatX>& dx, size_t stride) {
            for (size_t i = 0; i < x.size(); i += 3)
                if (i % stride < C) EXPECT_NEAR(dx[i], slope_of(x[i], loss), 1e-8);
        };
        check(t.q, t.dq, t.d.q_stride), check(t.k, t.dk, t.d.kv_stride), check(t.v, t.dv, t.d.kv_stride);
    }
}

TEST(little_scratch_is_an_error) {
    Tensors t({1, 1, 1, 1, 8, 0, 0});
    const Context before = context;
    cpu::lend_scratch(nullptr, 0);
    const Fatal f = test::fatal_of([&] { t.run(); });
    EXPECT(std::string(f.what()).find("scratch") != std::string::npos, "%s", f.what());
    context = before;
}

// Twice the scale are twice the queries: powers of two change no bit. 200 tokens: by BF16 products as well.
TEST(a_scale_is_a_factor_of_the_queries) {
    for (const Shape& s : {Shape{1, 200, 200, 2, 64, 0, 0}, Shape{2, 33, 40, 1, 16, 7, 0}}) {
        const Lent lent(2);
        Tensors plain(s), scaled(s), larger(s);
        scaled.d.scale = 2 / std::sqrt(double(s.D));
        for (floatX& x : larger.q) x = floatX(real(2 * double(x)));
        for (Tensors* t : {&plain, &scaled, &larger}) t->run();
        EXPECT(same_bits(scaled.out, larger.out) && same_bits(scaled.lse, larger.lse), "D %d: out", s.D);
        EXPECT(same_bits(scaled.dk, larger.dk) && same_bits(scaled.dv, larger.dv), "D %d: dk, dv", s.D);
        EXPECT(!same_bits(scaled.out, plain.out), "D %d: the scale has no effect", s.D);
        for (size_t row = 0; row < size_t(s.B) * s.Tq; row++)
            for (size_t c = 0; c < size_t(s.NH) * s.D; c++) {
                const size_t i = row * scaled.d.q_stride + c;
                EXPECT(double(scaled.dq[i]) == 2 * double(larger.dq[i]), "D %d: dq[%zu]", s.D, i);
            }
    }
}

}  // namespace PRECISION
