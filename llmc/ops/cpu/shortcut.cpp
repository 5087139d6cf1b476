// Backward goes over chunks of tokens: each leaves two sums, which are then added in the order of the tokens.
#include <algorithm>

#include "llmc/base/context.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

static constexpr int kMixedTokens = 256;      // tokens

// The stream before the block, rounded.
static Vector<real> summed(const Mix& t, size_t at, int i, int left) {
    const auto x = load(t.x + at, left);
    if (!t.r) return x;
    const auto r = load(t.r + at, left);
    const auto sum = x + (t.bias ? r + load(t.bias + i, left) : r);
    floatX rounded[kVectorBytes / sizeof(float)];
    store(rounded, sum);
    return load(rounded);
}

void shortcut_forward(const Mix& t, int N, int C) {
    if (walked(shortcut_forward_cost, t, N, C)) return;
    const real keep = real(*t.keep), add = real(*t.add);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < N; n++)
        for (int i = 0; i < C; i += W) {
            const size_t at = size_t(n) * size_t(C) + size_t(i);
            const auto in = summed(t, at, i, C - i), x0 = load(t.x0 + at, C - i);
            if (t.r && t.in) store(t.in + at, in, C - i);
            store(t.out + at, keep * in + add * x0, C - i);
        }
}

void shortcut_backward(const MixGrads& g, const floatX* in, const floatX* x0, const floatX* keep,
                       const floatX* add, int N, int C) {
    if (walked(shortcut_backward_cost, N, C)) return;
    const real r = real(*keep), z = real(*add);
    real of_in[kMixedTokens], of_x0[kMixedTokens];
    for (int start = 0; start < N; start += kMixedTokens) {
        const int rows = std::min(kMixedTokens, N - start);
        #pragma omp parallel for schedule(static) num_threads(context.threads)
        for (int n = 0; n < rows; n++) {
            const size_t at = size_t(start + n) * size_t(C);
            const auto dot = [&](const floatX* with) {
                return sum<real>(C, [&](int i, int left) {
                    return load(g.dx + at + i, left) * load(with + at + i, left);
                });
            };
            of_in[n] = dot(in), of_x0[n] = dot(x0);
            for (int i = 0; i < C; i += W) {
                floatX *dx = g.dx + at + i, *dx0 = g.dx0 + at + i;
                const auto d = load(dx, C - i);
                store(dx0, load(dx0, C - i) + z * d, C - i);
                store(dx, r * d, C - i);
            }
        }
        for (int n = 0; n < rows; n++) *g.dkeep += of_in[n], *g.dadd += of_x0[n];
    }
}

}  // namespace cpu
}  // namespace PRECISION
