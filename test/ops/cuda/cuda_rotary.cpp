// Norms and rotations of queries and keys on GPUs.
#include "test/cuda.h"
#include "test/rotary.h"

namespace PRECISION {

static const RotaryShape kShapes[] = {{6, 3, 2, 2, 16, 0},   {5, 5, 4, 2, 48, 7},  {33, 11, 3, 1, 80, 0},
                                      {200, 100, 2, 1, 32, 3}, {7, 7, 6, 3, 128, 0}, {64, 32, 4, 1, 64, 0},
                                      {66, 33, 2, 2, 16, 0, 5}, {150, 50, 2, 1, 48, 0, 9}};

struct Results {
    std::vector<floatX> qkv, before, dqkv;
    std::vector<real> dq_gain, dk_gain;
    bool operator==(const Results& o) const {
        return same_bits(qkv, o.qkv) && same_bits(dqkv, o.dqkv) && same_bits(dq_gain, o.dq_gain) &&
               same_bits(dk_gain, o.dk_gain);
    }
};

static Results run(const RotaryShape& s, const RotaryKind& k) {
    const RotaryInputs in(s, k);
    const CudaScratch lent;
    const OnDevice positions(in.positions);
    const OnDevice qkv(in.qkv), dqkv(in.dqkv), q_gain(in.q_gain), k_gain(in.k_gain),
        before(poisoned<floatX>(in.kept()));
    const OnDevice table(in.table), dq_gain(in.dq_gain), dk_gain(in.dk_gain);
    const bool normed = k.norm != QkNorm::None;
    const cuda::Rotary t = {.qkv = qkv, .before = normed ? before.p : nullptr,
                            .table = k.rotates ? table.p : nullptr, .q_gain = k.gain ? q_gain.p : nullptr,
                            .k_gain = k.gain ? k_gain.p : nullptr, .norm = k.norm, .eps = real(1e-5),
                            .N = s.N, .T = s.T, .NH = s.NH, .KV = s.KV, .D = s.D, .stride = in.stride,
                            .t0 = s.t0, .positions = s.mean ? positions.p : nullptr};
    cuda::rotary_forward(t);
    cuda::rotary_backward(dqkv, k.gain ? dq_gain.p : nullptr, k.gain ? dk_gain.p : nullptr, t);
    return {qkv.host(), before.host(), dqkv.host(), dq_gain.host(), dk_gain.host()};
}

TEST(rotary_matches_the_reference) {
    for (const RotaryShape& s : kShapes)
        for (const RotaryKind& k : kRotaryKinds) {
            const RotaryInputs in(s, k);
            const RotaryReference expected(in);
            const Results r = run(s, k);
            EXPECT_CLOSE(r.qkv, expected.qkv, expected.qkv_sums);
            EXPECT_CLOSE(r.dqkv, expected.dqkv, expected.dqkv_sums, 2);
            EXPECT_CLOSE(r.dq_gain, expected.dq_gain, expected.dq_sums);
            EXPECT_CLOSE(r.dk_gain, expected.dk_gain, expected.dk_sums);
            if (k.norm == QkNorm::None) continue;
            for (size_t i = 0; i < in.kept(); i++) {
                const size_t row = in.heads() * size_t(s.D), at = i / row * in.stride + i % row;
                EXPECT(double(r.before[i]) == double(in.qkv[at]), "before[%zu]", i);
            }
        }
}

TEST(order_changes_no_bit) {
    for (const RotaryKind& k : kRotaryKinds) {
        const RotaryShape s = {70, 35, 2, 1, 32, 3};
        const Results first = run(s, k);
        in_every_order([&] { EXPECT(run(s, k) == first); });
    }
}

TEST(moves_no_more_than_its_floor) {
    EXPECT_FLOORS([&] {
        for (const RotaryKind& k : kRotaryKinds) run({64, 32, 4, 1, 64, 0}, k);
    });
}

}  // namespace PRECISION
