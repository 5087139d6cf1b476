// Attention over ranks that share rows, against the op on whole rows.
#include <map>

#include "llmc/comm/launch/launch.h"
#include "llmc/model/cp_attention.h"
#include "test/compare.h"
#include "test/documents.h"
#include "test/ranks.h"
#include "test/tiny.h"

namespace PRECISION {

struct Sizes { int B, T, NH, KV, D, window, mean; };

// Packed rows of q, k and v, and what attention makes of them.
struct Whole {
    Sizes s;
    test::PackedRows rows{s.B, s.T, s.mean};
    int A = s.NH * s.D, K = s.KV * s.D, W = A + 2 * K;
    size_t N = size_t(s.B * s.T);
    std::vector<floatX> qkv = normals<floatX>(N * size_t(W), 1), dout = normals<floatX>(N * size_t(A), 2);
    std::vector<floatX> out = poisoned<floatX>(N * size_t(A)), dqkv = poisoned<floatX>(N * size_t(W));
    std::vector<real> lse = poisoned<real>(N * size_t(s.NH));

    ops::AttentionDims dims(int T) const {
        ops::AttentionDims d = {.B = s.B, .Tq = T, .Tk = T, .NH = s.NH, .D = s.D, .q_stride = size_t(W),
                                .kv_stride = size_t(W), .q_offset = 0, .k_offset = 0, .key_heads = s.KV,
                                .window = s.window};
        if (s.mean) d.documents = {rows.positions.data(), rows.ends.data()};
        return d;
    }
    ops::AttentionBackward backward(floatX* dqkv_, const floatX* dout_, const floatX* out_, const real* lse_,
                                    const floatX* qkv_) const {
        return {.dq = dqkv_, .dk = dqkv_ + A, .dv = dqkv_ + A + K, .dout = dout_, .out = out_, .lse = lse_,
                .q = qkv_, .k = qkv_ + A, .v = qkv_ + A + K};
    }
    void run() {
        const Lent lent(1);
        ops::attention_forward(out.data(), lse.data(), qkv.data(), &qkv[size_t(A)], &qkv[size_t(A + K)],
                               dims(s.T));
        ops::attention_backward(backward(dqkv.data(), dout.data(), out.data(), lse.data(), qkv.data()),
                                dims(s.T));
    }
};

// The rows of a matrix that a rank has, and back.
template <class T> static std::vector<T> part_of(const std::vector<T>& whole, const Sizes& s, RowPart part) {
    const size_t width = whole.size() / size_t(s.B * s.T);
    std::vector<T> own;
    for (int b = 0; b < s.B; b++)
        for (int i = 0; i < part.chunks(); i++) {
            const auto from = whole.begin() + ptrdiff_t(size_t(b * s.T + part.begin(i, s.T)) * width);
            own.insert(own.end(), from, from + ptrdiff_t(size_t(part.length(s.T)) * width));
        }
    return own;
}

struct Found { std::vector<floatX> out, dqkv; };

static Found run_rank(const Whole& w, CpKind kind, const Mesh& mesh) {
    const RowPart part = {mesh.cp.index, mesh.cp.size};
    Dims d = {};
    d.NH = w.s.NH, d.KV = w.s.KV, d.D = w.s.D, d.A = w.A, d.K = w.K, d.W = w.W;
    CpAttention attention = {.cp = mesh.cp, .kind = kind};
    Arena arena;
    const size_t N = w.N / size_t(part.size), staging = attention.reduction_bytes(d, N);
    std::byte* lent_staging = nullptr;
    attention.add_to(arena.of(Purpose::Activations), d, N, true);
    arena.add("staging", &lent_staging, mesh.cp.reduce_staging(staging));
    if (arena.bytes()) arena.allocate(ops::device_allocate, ops::device_free);
    mesh.cp.lend_staging(lent_staging, mesh.cp.reduce_staging(staging));
    const Lent lent(1);
    const auto qkv = part_of(w.qkv, w.s, part), dout = part_of(w.dout, w.s, part);
    Found f{poisoned<floatX>(dout.size()), poisoned<floatX>(qkv.size())};
    std::vector<real> lse(N * size_t(w.s.NH));
    const ops::AttentionDims dims = w.dims(part.here(w.s.T));
    attention.forward(f.out.data(), lse.data(), qkv.data(), &qkv[size_t(w.A)], &qkv[size_t(w.A + w.K)], dims);
    attention.backward(w.backward(f.dqkv.data(), dout.data(), f.out.data(), lse.data(), qkv.data()), dims);
    return f;
}

static void expect_whole_rows(const Sizes& s, CpKind kind, int cp) {
    Whole whole{s};
    whole.run();
    std::map<int, Found> found;
    std::mutex mutex;
    Config c = config_of(cp);
    c.parallel.cp = cp;
    const auto rank = [&](const Mesh& mesh) {
        Found f = run_rank(whole, kind, mesh);
        const std::lock_guard lock(mutex);
        found[mesh.cp.index] = std::move(f);
    };
    if (cp == 1) rank(Mesh());
    else run_threads(c, [&](Config, const Mesh& mesh) { rank(mesh); return 0; });
    const double near = sizeof(floatX) == 8 ? 1e-13 : sizeof(floatX) == 4 ? 2e-5 : 0.06;
    for (const auto& [index, f] : found) {
        const auto want_out = part_of(whole.out, s, {index, cp}), want = part_of(whole.dqkv, s, {index, cp});
        const auto text = fmt::format("cp {}, {} rows of {}, heads {} and {}, window {}, documents {}", cp,
                                      s.B, s.T, s.NH, s.KV, s.window, s.mean);
        if (kind == CpKind::Heads || cp == 1) {
            EXPECT(same_bits(f.out, want_out) && same_bits(f.dqkv, want), "other bits: %s", text.c_str());
            continue;
        }
        const auto far = [&](const auto& a, const auto& b) {
            double most = 0;
            for (size_t i = 0; i < a.size(); i++)
                most = std::max(most, std::fabs(double(a[i]) - double(b[i])) / (1 + std::fabs(double(b[i]))));
            return most;
        };
        EXPECT(far(f.out, want_out) <= near && far(f.dqkv, want) <= near, "%s: %.2g and %.2g", text.c_str(),
               far(f.out, want_out), far(f.dqkv, want));
    }
}

static const Sizes kSizes[] = {{1, 24, 4, 4, 8, 0, 0}, {2, 48, 4, 4, 16, 0, 0},  {2, 48, 8, 4, 8, 7, 0},
                               {2, 96, 4, 4, 8, 0, 9}, {1, 360, 4, 4, 32, 90, 70}};

TEST(gathered_keys_are_those_of_whole_rows) {
    for (const Sizes& s : kSizes)
        for (const int cp : {1, 2, 3, 4}) expect_whole_rows(s, CpKind::Gather, cp);
}

TEST(whole_rows_of_some_heads_change_no_bit) {
    for (const Sizes& s : kSizes)
        for (const int cp : {1, 2, 4}) expect_whole_rows(s, CpKind::Heads, cp);
}

}  // namespace PRECISION
