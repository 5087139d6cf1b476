// Norms and rotations of queries and keys.
#include "test/rotary.h"

namespace PRECISION {
namespace {

constexpr RotaryShape kShapes[] = {{1, 1, 1, 1, 2, 0},    {6, 3, 2, 2, 16, 0},   {5, 5, 4, 2, 24, 7},
                                   {33, 11, 3, 1, 80, 0}, {300, 100, 2, 1, 34, 3}, {7, 7, 6, 3, 128, 0},
                                   {66, 33, 2, 2, 16, 0, 5}, {9, 3, 3, 1, 32, 0},  {10, 5, 2, 2, 64, 1, 3}};

struct Run {
    RotaryInputs in;
    std::vector<floatX> before;
    cpu::Rotary t;

    Run(const RotaryShape& s, const RotaryKind& k) : in(s, k), before(poisoned<floatX>(in.kept())) {
        t = {.qkv = in.qkv.data(), .before = k.norm != QkNorm::None ? before.data() : nullptr,
             .table = k.rotates ? in.table.data() : nullptr, .q_gain = k.gain ? in.q_gain.data() : nullptr,
             .k_gain = k.gain ? in.k_gain.data() : nullptr, .norm = k.norm, .eps = real(1e-5), .N = s.N,
             .T = s.T, .NH = s.NH, .KV = s.KV, .D = s.D, .stride = in.stride, .t0 = s.t0,
             .positions = s.mean ? in.positions.data() : nullptr};
    }
    Run(const Run&) = delete;
    // Tokens from .. to - 1, where sequences begin at `from`.
    cpu::Rotary part(int from, int to) const {
        cpu::Rotary p = t;
        p.qkv += size_t(from) * t.stride, p.N = to - from;
        if (p.before) p.before += size_t(from) * t.heads() * size_t(t.D);
        return p;
    }
    void run(int threads, int parts = 1) {
        const Lent lent(threads);
        const int sequences = t.N / t.T;
        for (int i = 0; i < parts; i++) {
            const cpu::Rotary p = part(sequences * i / parts * t.T, sequences * (i + 1) / parts * t.T);
            cpu::rotary_forward(p);
            cpu::rotary_backward(in.dqkv.data() + (p.qkv - t.qkv), in.kind.gain ? in.dq_gain.data() : nullptr,
                                 in.kind.gain ? in.dk_gain.data() : nullptr, p);
        }
    }
    bool operator==(const Run& o) const {
        return same_bits(in.qkv, o.in.qkv) && same_bits(in.dqkv, o.in.dqkv) &&
               same_bits(in.dq_gain, o.in.dq_gain) && same_bits(in.dk_gain, o.in.dk_gain);
    }
};

TEST(rotary_matches_the_reference) {
    for (const RotaryShape& s : kShapes)
        for (const RotaryKind& k : kRotaryKinds) {
            Run r(s, k);
            const RotaryInputs in(s, k);
            const RotaryReference expected(in);
            r.run(2);
            EXPECT_CLOSE(r.in.qkv, expected.qkv, expected.qkv_sums);
            EXPECT_CLOSE(r.in.dqkv, expected.dqkv, expected.dqkv_sums, 2);
            EXPECT_CLOSE(r.in.dq_gain, expected.dq_gain, expected.dq_sums);
            EXPECT_CLOSE(r.in.dk_gain, expected.dk_gain, expected.dk_sums);
        }
}

TEST(values_and_what_lies_between_rows_stay) {
    for (const RotaryKind& k : kRotaryKinds) {
        const RotaryShape s = {6, 3, 4, 2, 16, 0};
        Run r(s, k);
        const RotaryInputs in(s, k);
        r.run(1);
        for (int n = 0; n < s.N; n++)
            for (size_t i = in.at(n, in.heads()); i < size_t(n + 1) * in.stride; i++)
                EXPECT(double(r.in.qkv[i]) == double(in.qkv[i]) && double(r.in.dqkv[i]) == double(in.dqkv[i]),
                       "element %zu changed", i);
    }
}

// Sums run in the order of the tokens.
TEST(rotary_bits_do_not_depend_on_threads_or_micro_batches) {
    for (const RotaryKind& k : kRotaryKinds) {
        Run one({300, 100, 2, 1, 34, 3}, k), two({300, 100, 2, 1, 34, 3}, k), cut({300, 100, 2, 1, 34, 3}, k);
        one.run(1), two.run(3), cut.run(2, 3);
        EXPECT(one == two && one == cut);
    }
}

// Queries and keys rotated alike: their product depends on the distance of their positions alone.
TEST_IF(sizeof(floatX) == 8, products_depend_on_distances) {
    const Lent lent(1);
    const auto product = [](int t_q, int t_k) {
        Run r({1, 1, 1, 1, 32, 40}, kRotaryKinds[1]);
        r.t.t0 = t_q;
        cpu::rotary_forward(r.t);
        const std::vector<floatX> q(r.in.qkv.begin(), r.in.qkv.begin() + 32);
        Run s({1, 1, 1, 1, 32, 40}, kRotaryKinds[1]);
        s.t.t0 = t_k;
        cpu::rotary_forward(s.t);
        double sum = 0;
        for (size_t i = 0; i < 32; i++) sum += double(q[i]) * double(s.in.qkv[32 + i]);
        return sum;
    };
    EXPECT_NEAR(product(9, 2), product(30, 23), 1e-12);
    EXPECT(std::fabs(product(9, 2) - product(9, 3)) > 1e-3);
}

TEST_IF(sizeof(floatX) == 8, rotary_gradients_are_slopes) {
    const Lent lent(1);
    for (const RotaryKind& k : kRotaryKinds) {
        const RotaryShape s = {4, 2, 2, 1, 6, 1};
        Run r(s, k);
        RotaryInputs in(s, k);
        for (auto* gains : {&r.in.dq_gain, &r.in.dk_gain}) std::fill(gains->begin(), gains->end(), 0);
        r.run(1);
        const auto loss = [&] {
            Run moved(s, k);
            moved.in.qkv = in.qkv, moved.in.q_gain = in.q_gain, moved.in.k_gain = in.k_gain;
            moved.t.qkv = moved.in.qkv.data();
            if (k.gain) moved.t.q_gain = moved.in.q_gain.data(), moved.t.k_gain = moved.in.k_gain.data();
            cpu::rotary_forward(moved.t);
            double sum = 0;
            for (size_t i = 0; i < in.qkv.size(); i++) sum += double(moved.in.qkv[i]) * double(in.dqkv[i]);
            return sum;
        };
        for (size_t i = 0; i < in.qkv.size(); i++)
            EXPECT_NEAR(double(r.in.dqkv[i]), slope_of(in.qkv[i], loss), 1e-8);
        for (size_t i = 0; k.gain && i < in.q_gain.size(); i++) {
            EXPECT_NEAR(double(r.in.dq_gain[i]), slope_of(in.q_gain[i], loss), 1e-8);
            EXPECT_NEAR(double(r.in.dk_gain[i]), slope_of(in.k_gain[i], loss), 1e-8);
        }
    }
}

}  // namespace
}  // namespace PRECISION
