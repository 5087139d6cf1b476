// Attention within a window, on CPUs.
#include "test/attention.h"

namespace PRECISION {

static const Shape kShapes[] = {
    {1, 70, 70, 2, 32, 0, 0, 1, 1},    {2, 130, 130, 3, 24, 0, 0, 1, 1000},
    {1, 200, 200, 4, 32, 0, 0, 2, 37}, {1, 256, 256, 1, 32, 0, 0, 1, 64},
    {2, 3, 40, 2, 32, 37, 0, 1, 5},    {1, 700, 700, 2, 16, 0, 0, 2, 130},
    {1, 5, 11, 1, 17, 10, 4, 1, 3},    {1, 150, 600, 1, 16, 449, 0, 1, 64},
    {1, 300, 300, 1, 24, 0, 0, 1, 299},
};

TEST(matches_the_reference) {
    for (const Shape& s : kShapes)
        for (const double size : {1., 3.}) expect_the_reference(s, size);
}

TEST(a_window_over_everything_changes_no_bit) {
    for (const Shape& s : {Shape{2, 130, 130, 2, 40, 0, 0}, Shape{1, 200, 200, 2, 32, 0, 0, 2}}) {
        const Lent lent(2);
        Tensors plain(s), wide(s), narrow(s);
        wide.d.window = s.Tk, narrow.d.window = s.Tk - 1;
        for (Tensors* t : {&plain, &wide, &narrow}) t->run();
        EXPECT(same_bits(plain.out, wide.out) && same_bits(plain.lse, wide.lse));
        EXPECT(same_bits(plain.dq, wide.dq) && same_bits(plain.dk, wide.dk) && same_bits(plain.dv, wide.dv));
        EXPECT(!same_bits(plain.out, narrow.out), "the first key of the last query is still seen");
    }
}

// Blocks of keys before the window are not read: NaN there reaches nothing.
TEST(keys_before_the_window_are_skipped) {
    for (const Shape& s :
         {Shape{1, 3, 600, 2, 32, 597, 0, 1, 20}, Shape{1, 100, 700, 2, 32, 600, 0, 1, 40}}) {
        const Lent lent(2);
        Tensors t(s);
        for (size_t i = 0; i < 512 * t.d.kv_stride; i++) t.k[i] = t.v[i] = floatX(real(NAN));
        t.run();
        for (const floatX x : t.out) EXPECT(std::isfinite(double(x)), "out");
        for (const floatX x : columns(t.dq, t.d.q_stride, 0, size_t(s.NH) * s.D))
            EXPECT(std::isfinite(double(x)), "dq");
        for (size_t i = 0; i < 512 * t.d.kv_stride; i++)
            if (i % t.d.kv_stride < size_t(s.NH) * s.D)
                EXPECT(double(t.dk[i]) == 0 && double(t.dv[i]) == 0, "dk or dv of a key that no query sees");
    }
}

TEST(pairs_are_those_of_the_window) {
    for (const Shape& s : kShapes) {
        const Tensors t(s);
        double pairs = 0;
        for (int i = 0; i < s.Tq; i++)
            for (int u = 0; u < s.Tk; u++) {
                const int before = s.q_offset + i - s.k_offset - u;
                pairs += before >= 0 && (s.window == 0 || before < s.window);
            }
        EXPECT_NEAR(cpu::attention_pairs(t.d), pairs * s.B * s.NH, 0);
    }
}

}  // namespace PRECISION
