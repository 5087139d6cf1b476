// A thread takes a pack. Backward: a block takes rows and keeps the two sums in registers; it leaves a row of
// `partial`, added up by sums.cu in fixed order.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/scratch.h"

namespace PRECISION {
namespace cuda {

static constexpr int kMixThreads = 256;

// FLOOR bytes = ((r ? 3 : 2) + (r && in ? 2 : 1)) N C sizeof(floatX) + (bias ? C : 0) sizeof(floatX)
//             + 2 sizeof(floatX)
__global__ void __launch_bounds__(kMixThreads) shortcut_forward_kernel(Mix t, size_t packs, int C) {
    const size_t i = size_t(blockIdx.x) * kMixThreads + threadIdx.x, at = i * Pack::size;
    if (i >= packs) return;
    Pack x = Pack::load_streaming(t.x + at);
    const Pack x0 = Pack::load_streaming(t.x0 + at);
    if (t.r) {
        const Pack r = Pack::load_streaming(t.r + at);
        const Pack bias = t.bias ? Pack::load_cached(t.bias + at % C) : Pack::filled(floatX(0.f));
        #pragma unroll
        for (int k = 0; k < Pack::size; k++)
            x[k] = floatX(float(x[k]) + (float(r[k]) + float(bias[k])));
        if (t.in) x.store(t.in + at);
    }
    const float keep = float(load_cached(t.keep)), add = float(load_cached(t.add));
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) x[k] = floatX(keep * float(x[k]) + add * float(x0[k]));
    x.store(t.out + at);
}

void shortcut_forward(const Mix& t, int N, int C) {
    if (walked(shortcut_forward_cost, t, N, C)) return;
    check_packs("shortcut: C", C);
    const size_t packs = size_t(N) * C / Pack::size;
    const double streams = (t.r ? 3 : 2) + (t.r && t.in ? 2 : 1);
    launch(shortcut_forward_kernel, dim3(unsigned(div_up(packs, kMixThreads))), dim3(kMixThreads), 0,
           {.bytes = ((streams * N + (t.r && t.bias ? 1 : 0)) * C + 2) * sizeof(floatX)}, t, packs, C);
}

struct MixInputs { const floatX *in, *x0, *keep, *add; };

// partial[block] = (sum of dx in, sum of dx x0) over the block's rows
// FLOOR bytes = 6 N C sizeof(floatX) + 2 sizeof(floatX) + 8 groups
__global__ void __launch_bounds__(kMixThreads)
shortcut_backward_kernel(MixGrads g, MixInputs t, float* partial, int N, int C, int rows) {
    const int first = blockIdx.x * rows, end = first + rows < N ? first + rows : N;
    const float keep = float(load_cached(t.keep)), add = float(load_cached(t.add));
    const size_t last = size_t(end) * C;
    float of_in = 0, of_x0 = 0;
    constexpr int step = kMixThreads * Pack::size;
    for (size_t at = size_t(first) * C + threadIdx.x * Pack::size; at < last; at += step) {
        Pack d = Pack::load(g.dx + at), d0 = Pack::load(g.dx0 + at);
        const Pack in = Pack::load_streaming(t.in + at), x0 = Pack::load_streaming(t.x0 + at);
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) {
            const float dk = float(d[k]);
            of_in += dk * float(in[k]), of_x0 += dk * float(x0[k]);
            d0[k] = floatX(float(d0[k]) + add * dk), d[k] = floatX(keep * dk);
        }
        d.store(g.dx + at), d0.store(g.dx0 + at);
    }
    of_in = block_sum(of_in), of_x0 = block_sum(of_x0);
    if (threadIdx.x != 0) return;
    partial[2 * blockIdx.x] = of_in, partial[2 * blockIdx.x + 1] = of_x0;
}

void shortcut_backward(const MixGrads& g, const floatX* in, const floatX* x0, const floatX* keep,
                       const floatX* add, int N, int C) {
    if (walked(shortcut_backward_cost, N, C)) return;
    check_packs("shortcut: C", C);
    const RowGroups groups = row_groups_of(N, kNormGroups);
    float* partial = scratch<float>(size_t(groups.count) * 2);
    launch(shortcut_backward_kernel, dim3(groups.count), dim3(kMixThreads), 0,
           {.bytes = (6. * N * C + 2) * sizeof(floatX) + 8. * groups.count}, g, MixInputs{in, x0, keep, add},
           partial, N, C, groups.rows);
    add_columns({.out = {g.dkeep, g.dadd}, .partial = partial, .rows = groups.count, .columns = 1});
}

}  // namespace cuda
}  // namespace PRECISION
