#include "test/cuda.h"
#include "test/documents.h"

namespace PRECISION {

// This rank has rows v0 .. v0 + V of wte; tokens are from 0 .. all. Several tiles and digits of the sort; a
// single token; no token of this rank. mean: of the lengths of documents, 0: none
struct Shape {
    int B, T, C, v0, V, all, t0, mean = 0;
};
static const Shape kShapes[] = {
    {1, 1, 8, 0, 1, 1, 0},           {3, 7, 40, 0, 11, 11, 0},     {2, 5, 1600, 0, 6, 6, 2},
    {2, 33, 24, 4, 5, 14, 0},        {5, 64, 768, 0, 100, 100, 3}, {1, 2100, 8, 0, 300, 300, 0},
    {1, 70, 16, 0, 70000, 70000, 0}, {30, 64, 8, 0, 50, 1, 0},     {2, 40, 8, 10, 7, 9, 0},
    {2, 300, 24, 0, 9, 9, 0, 20},    {3, 64, 40, 4, 5, 14, 0, 5}};

template <class T> struct Tensors {
    std::vector<int32_t> tokens;
    std::vector<T> wte, wpe, dout;
    std::vector<real> dwte, dwpe;

    explicit Tensors(const Shape& s)
        : wte(normals<T>(size_t(s.V) * s.C, 1)), wpe(normals<T>(size_t(s.t0 + s.T) * s.C, 2)),
          dout(normals<T>(size_t(s.B) * s.T * s.C, 3)), dwte(normals<real>(wte.size(), 4)),
          dwpe(normals<real>(wpe.size(), 5)) {
        for (int n = 0; n < s.B * s.T; n++) tokens.push_back(int32_t(uniform(1, 2, n) * s.all));
    }
};

struct Results {
    std::vector<floatX> out;
    std::vector<real> dwte, dwpe;
};

static Results run(const Shape& s) {
    const Tensors<floatX> t(s);
    const int N = s.B * s.T;
    const CudaScratch lent;
    const OnDevice tokens(t.tokens);
    const OnDevice wte(t.wte), wpe(t.wpe), dout(t.dout), out(poisoned<floatX>(t.dout.size()));
    const OnDevice dwte(t.dwte), dwpe(t.dwpe);
    const OnDevice positions(test::PackedRows(s.B, s.T, s.mean).positions);
    const cuda::Encoder e = {.tokens = tokens, .v0 = s.v0, .V = s.V, .N = N, .T = s.T, .C = s.C, .t0 = s.t0,
                             .positions = s.mean ? positions.p : nullptr};
    cuda::encoder_forward(out, wte, wpe, e);
    cuda::encoder_backward(dwte, dwpe, dout, e);
    return {out.host(), dwte.host(), dwpe.host()};
}

TEST(matches_the_cpu) {
    for (const Shape& s : kShapes) {
        const Tensors<floatX> t(s);
        const test::PackedRows rows(s.B, s.T, s.mean);
        const oracle::Encoder e = {.tokens = t.tokens.data(), .v0 = s.v0, .V = s.V, .N = s.B * s.T, .T = s.T,
                                   .C = s.C, .t0 = s.t0,
                                   .positions = s.mean ? rows.positions.data() : nullptr};
        Wide out(t.dout.size()), dwte = wide(t.dwte), dwpe = wide(t.dwpe), out_sums(out.size()),
             dwte_sums = absolute(dwte), dwpe_sums = absolute(dwpe);
        const Wide wte = wide(t.wte), wpe = wide(t.wpe), dout = wide(t.dout);
        oracle::encoder_forward(out.data(), wte.data(), wpe.data(), e);
        oracle::encoder_backward(dwte.data(), dwpe.data(), dout.data(), e);
        oracle::encoder_forward(out_sums.data(), absolute(wte).data(), absolute(wpe).data(), e);
        oracle::encoder_backward(dwte_sums.data(), dwpe_sums.data(), absolute(dout).data(), e);
        const Results r = run(s);
        EXPECT_CLOSE(r.out, out, out_sums);
        EXPECT_CLOSE(r.dwte, dwte, dwte_sums);
        EXPECT_CLOSE(r.dwpe, dwpe, dwpe_sums);
    }
}

TEST(order_changes_no_bit) {
    for (const Shape& s : {Shape{4, 300, 16, 0, 290, 290, 0}, Shape{4, 300, 16, 0, 290, 290, 0, 30}}) {
        const Results first = run(s);
        in_every_order([&] {
            const Results r = run(s);
            EXPECT(same_bits(r.out, first.out) && same_bits(r.dwte, first.dwte) &&
                   same_bits(r.dwpe, first.dwpe));
        });
    }
}

TEST(moves_no_more_than_its_floor) {
    EXPECT_FLOORS([] { run({4, 64, 768, 0, 500, 500, 0}); });
    EXPECT_FLOORS([] { run({4, 64, 768, 0, 500, 500, 0, 20}); });
}

}  // namespace PRECISION
