// Rows that pack documents compute what the documents by themselves do, on CPUs.
#include "test/attention.h"
#include "test/documents.h"

namespace PRECISION {

using test::PackedRows;

static AttentionDims of_document(AttentionDims d, int rows) {
    d.B = 1, d.Tq = d.Tk = rows, d.documents = {};
    return d;
}

// The rows of a document, as a sequence; what is missing of `t` it takes from there.
static void run_alone(const Tensors& t, const AttentionDims& d, size_t row, Tensors& to) {
    const size_t C = size_t(d.NH) * size_t(d.D), q = row * d.q_stride, k = row * d.kv_stride;
    std::vector<real> lse(size_t(d.NH) * size_t(d.Tq));
    cpu::attention_forward(&to.out[row * C], lse.data(), &t.q[q], &t.k[k], &t.v[k], d);
    cpu::attention_backward({.dq = &to.dq[q], .dk = &to.dk[k], .dv = &to.dv[k], .dout = &t.dout[row * C],
                             .out = &to.out[row * C], .lse = lse.data(), .q = &t.q[q], .k = &t.k[k],
                             .v = &t.v[k]}, d);
}

struct Row { Shape s; int mean; };
static const Row kRows[] = {{{1, 70, 70, 2, 32, 0, 0}, 9},          {{2, 130, 130, 3, 24, 0, 0}, 40},
                            {{2, 200, 200, 4, 32, 0, 0, 2, 37}, 50}, {{1, 256, 256, 1, 17, 0, 0}, 64},
                            {{1, 300, 300, 2, 16, 0, 0}, 1},         {{1, 150, 150, 4, 16, 0, 0, 4}, 150}};

TEST(attention_of_packed_rows_is_that_of_the_documents) {
    const Lent lent(2);
    const double near = sizeof(floatX) == 8 ? 1e-13 : sizeof(floatX) == 4 ? 1e-5 : 0.05;
    for (const auto& [s, mean] : kRows) {
        const PackedRows rows(s.B, s.Tq, mean);
        Tensors packed(s), alone(s);
        packed.d.documents = {rows.positions.data(), rows.ends.data()};
        packed.run();
        rows.each([&](int b, int t, int n) {
            run_alone(packed, of_document(packed.d, n), size_t(b) * size_t(s.Tq) + size_t(t), alone);
        });
        const auto expect = [&](const char* what, const auto& a, const auto& b) {
            for (size_t i = 0; i < a.size(); i++)
                EXPECT(std::isnan(double(a[i])) == std::isnan(double(b[i])) &&
                       !(std::fabs(double(a[i]) - double(b[i])) > near * (1 + std::fabs(double(b[i])))),
                       "%s[%zu] of T %d, mean %d: %g, expected %g", what, i, s.Tq, mean, double(a[i]),
                       double(b[i]));
        };
        expect("out", packed.out, alone.out), expect("dq", packed.dq, alone.dq);
        expect("dk", packed.dk, alone.dk), expect("dv", packed.dv, alone.dv);
    }
}

// NaN in the other documents reaches nothing: their blocks are skipped.
TEST(other_documents_are_not_read) {
    const Lent lent(2);
    const Shape s = {1, 512, 512, 2, 32, 0, 0};
    Tensors t(s);
    std::vector<int32_t> positions, ends;
    for (int i = 0; i < s.Tq; i++) positions.push_back(i % 256), ends.push_back(i / 256 * 256 + 256);
    t.d.documents = {positions.data(), ends.data()};
    for (size_t i = 0; i < 256 * t.d.kv_stride; i++) t.k[i] = t.v[i] = floatX(real(NAN));
    for (size_t i = 0; i < 256 * t.d.q_stride; i++) t.q[i] = floatX(real(NAN));
    t.run();
    const size_t C = size_t(s.NH) * size_t(s.D);
    for (size_t i = 256 * C; i < t.out.size(); i++) EXPECT(std::isfinite(double(t.out[i])), "out[%zu]", i);
    for (size_t row = 256; row < 512; row++)
        for (size_t c = 0; c < C; c++)
            EXPECT(std::isfinite(double(t.dk[row * t.d.kv_stride + c])) &&
                   std::isfinite(double(t.dq[row * t.d.q_stride + c])), "gradients of row %zu", row);
}

TEST(one_document_changes_no_bit) {
    const Lent lent(2);
    const Shape s = {2, 130, 130, 2, 40, 0, 0};
    Tensors plain(s), one(s);
    std::vector<int32_t> positions, ends(260, 130);
    for (int i = 0; i < 260; i++) positions.push_back(i % 130);
    one.d.documents = {positions.data(), ends.data()};
    plain.run(), one.run();
    EXPECT(same_bits(plain.out, one.out) && same_bits(plain.lse, one.lse) && same_bits(plain.dq, one.dq) &&
           same_bits(plain.dk, one.dk) && same_bits(plain.dv, one.dv));
}

// A token's position is that in its document: the same bits as for the document by itself.
TEST(positions_begin_anew) {
    const Lent lent(2);
    const int B = 2, T = 37, C = 24, V = 19, N = B * T;
    const PackedRows rows(B, T, 6);
    std::vector<int32_t> tokens;
    for (int n = 0; n < N; n++) tokens.push_back(n * 7 % V);
    const auto wte = normals<floatX>(size_t(V * C), 1), wpe = normals<floatX>(size_t(T * C), 2),
               dout = normals<floatX>(size_t(N * C), 3);
    const cpu::Encoder packed = {.tokens = tokens.data(), .v0 = 0, .V = V, .N = N, .T = T, .C = C, .t0 = 0,
                                 .positions = rows.positions.data()};
    std::vector<floatX> out(size_t(N * C)), alone(out);
    std::vector<real> dwte(wte.size()), dwpe(wpe.size()), dwte_alone(dwte), dwpe_alone(dwpe);
    cpu::encoder_forward(out.data(), wte.data(), wpe.data(), packed);
    cpu::encoder_backward(dwte.data(), dwpe.data(), dout.data(), packed);
    rows.each([&](int b, int t, int n) {
        const int row = b * T + t;
        const cpu::Encoder e = {.tokens = &tokens[size_t(row)], .v0 = 0, .V = V, .N = n, .T = n, .C = C,
                                .t0 = 0};
        cpu::encoder_forward(&alone[size_t(row * C)], wte.data(), wpe.data(), e);
        cpu::encoder_backward(dwte_alone.data(), dwpe_alone.data(), &dout[size_t(row * C)], e);
    });
    EXPECT(same_bits(out, alone) && same_bits(dwte, dwte_alone) && same_bits(dwpe, dwpe_alone));

    const int D = 8, heads = C / D;
    const auto table = normals<real>(size_t(T * D), 4);
    auto x = normals<floatX>(size_t(N * C), 5), y = x;
    cpu::Rotary r = {.qkv = x.data(), .before = nullptr, .table = table.data(), .q_gain = nullptr,
                     .k_gain = nullptr, .norm = QkNorm::None, .eps = 0, .N = N, .T = T, .NH = heads, .KV = 0,
                     .D = D, .stride = size_t(C), .t0 = 0, .positions = rows.positions.data()};
    cpu::rotary_forward(r);
    rows.each([&](int b, int t, int n) {
        cpu::Rotary one = r;
        one.qkv = &y[size_t((b * T + t) * C)], one.N = one.T = n, one.positions = nullptr;
        cpu::rotary_forward(one);
    });
    EXPECT(same_bits(x, y), "rotated");
    cpu::rotary_backward(x.data(), nullptr, nullptr, r);
    r.positions = nullptr;
    rows.each([&](int b, int t, int n) {
        cpu::Rotary one = r;
        one.N = one.T = n;
        cpu::rotary_backward(&y[size_t((b * T + t) * C)], nullptr, nullptr, one);
    });
    EXPECT(same_bits(x, y), "rotated back");
}

}  // namespace PRECISION
