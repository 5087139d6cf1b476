// A group of lanes takes a head of a token, a pack each; its lanes share the gate's dot product. In backward
// a second kernel reads the gradients of the gates. A block takes rows, adds to dh, and leaves the sums of
// these rows for gatew in `partial`; sums.cu adds the partial sums in fixed order.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/scratch.h"

namespace PRECISION {
namespace cuda {

static constexpr int kValueThreads = 256;

// Over a group of `lanes` lanes, a power of two; each gets the result.
static __device__ __forceinline__ float over_group(float v, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(kFullWarp, v, step);
    return v;
}

// The head of a token that a group takes, and this lane's pack of it.
struct HeadOfToken {
    int n, head, c;
    bool here;              // else the lane only joins the sums
    __device__ __forceinline__ HeadOfToken(const ValueRows& t, int lanes) {
        const size_t item = size_t(blockIdx.x) * (kValueThreads / lanes) + threadIdx.x / lanes;
        n = int(item / t.KV), head = int(item % t.KV), c = int(threadIdx.x) % lanes * Pack::size;
        here = n < t.N;
    }
};

// Every lane of the warp calls.
static __device__ __forceinline__ float gate_of(const HeadOfToken& i, const ValueRows& t, int lanes) {
    float dot = 0;
    for (int j = int(threadIdx.x) % lanes; i.here && j < kGateInputs; j += lanes)
        dot += float(load_cached(t.h + size_t(i.n) * t.C + j)) *
               float(load_cached(t.gatew + i.head * kGateInputs + j));
    return 3 / (1 + expf(-over_group(dot, lanes)));
}

static int lanes_of_values(int D) {
    int lanes = 1;
    while (lanes * Pack::size < D) lanes *= 2;
    return lanes;
}

// FLOOR bytes = (2 N + min(N, V)) KV D sizeof(floatX) + (N + KV) kGateInputs sizeof(floatX) + 4 N
//     at most: as many rows as tokens
__global__ void __launch_bounds__(kValueThreads) values_forward_kernel(ValueRows t, int lanes) {
    const HeadOfToken i(t, lanes);
    const float gate = gate_of(i, t, lanes);
    if (!i.here || i.c >= t.D) return;
    const size_t column = size_t(i.head) * t.D + i.c, at = size_t(i.n) * t.stride + column;
    Pack v = Pack::load(t.v + at);
    const Pack row = Pack::load_cached(t.table + size_t(load_cached(t.tokens + i.n)) * t.width() + column);
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) v[k] = floatX(float(v[k]) + gate * float(row[k]));
    v.store(t.v + at);
}

static void check(const ValueRows& t) {
    CHECK_INPUT(t.D % Pack::size == 0 && t.D <= 32 * Pack::size,
                "value embeddings: heads of {} channels, expected a multiple of {} up to {}", t.D, Pack::size,
                32 * Pack::size);
    CHECK(t.stride % Pack::size == 0 && uintptr_t(t.v) % 16 == 0, "value embeddings: rows not aligned");
}

static dim3 groups_of(const ValueRows& t, int lanes) {
    return dim3(unsigned(div_up(size_t(t.N) * t.KV, kValueThreads / lanes)));
}

// Of the rows of v and as many, of the table, the gates' inputs and the tokens.
static double bytes_of(const ValueRows& t) {
    const double rows = 2. * double(t.N) * double(t.width()) + double(t.table_elements());
    return (rows + double(t.N + t.KV) * kGateInputs) * sizeof(floatX) + 4. * t.N;
}

void values_forward(const ValueRows& t) {
    if (walked(values_forward_cost, t)) return;
    check(t);
    const int lanes = lanes_of_values(t.D);
    launch(values_forward_kernel, groups_of(t, lanes), dim3(kValueThreads), 0,
           {.bytes = bytes_of(t), .at_most = true}, t, lanes);
}

// ---------------------------------------------------------------------------------------------------------
// backward

// drows and dgates
// FLOOR bytes = (2 N + min(N, V)) KV D sizeof(floatX) + (N + KV) kGateInputs sizeof(floatX) + 4 N (KV + 1)
//     at most: as many rows as tokens
__global__ void __launch_bounds__(kValueThreads)
values_backward_kernel(ValueRowsGrads g, ValueRows t, int lanes) {
    const HeadOfToken i(t, lanes);
    const size_t column = size_t(i.head) * t.D + i.c;
    const float gate = gate_of(i, t, lanes);
    float dgate = 0;
    if (i.here && i.c < t.D) {
        const Pack dv = Pack::load(t.v + size_t(i.n) * t.stride + column);
        const size_t token = size_t(load_cached(t.tokens + i.n));
        const Pack row = Pack::load_cached(t.table + token * t.width() + column);
        Pack drow;
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) {
            dgate += float(dv[k]) * float(row[k]);
            drow[k] = floatX(gate * float(dv[k]));
        }
        drow.store(g.drows + size_t(i.n) * t.width() + column);
    }
    dgate = over_group(dgate, lanes);
    if (i.here && i.c == 0)
        store_streaming(g.dgates + size_t(i.n) * t.KV + i.head, dgate * gate * (1 - gate / 3));
}

// partial[block] = the sums of dgates h over the block's rows, (KV, kGateInputs)
// FLOOR bytes = 4 N KV + (3 N + KV) kGateInputs sizeof(floatX) + 4 groups KV kGateInputs
//     scattered: a token's first channels are no whole sectors
__global__ void __launch_bounds__(kValueThreads)
values_gate_kernel(floatX* dh, const float* dgates, float* partial, ValueRows t, int rows) {
    const int first = blockIdx.x * rows, end = first + rows < t.N ? first + rows : t.N;
    for (int i = threadIdx.x; i < (end - first) * kGateInputs; i += kValueThreads) {
        const int n = first + i / kGateInputs, j = i % kGateInputs;
        float sum = 0;
        for (int head = 0; head < t.KV; head++)
            sum += load_cached(dgates + size_t(n) * t.KV + head) *
                   float(load_cached(t.gatew + head * kGateInputs + j));
        floatX* to = dh + size_t(n) * t.C + j;
        store_streaming(to, floatX(float(load_streaming(to)) + sum));
    }
    for (int i = threadIdx.x; i < t.KV * kGateInputs; i += kValueThreads) {
        const int head = i / kGateInputs, j = i % kGateInputs;
        float sum = 0;
        for (int n = first; n < end; n++)
            sum += load_cached(dgates + size_t(n) * t.KV + head) *
                   float(load_cached(t.h + size_t(n) * t.C + j));
        partial[size_t(blockIdx.x) * t.KV * kGateInputs + i] = sum;
    }
}

void values_backward(const ValueRowsGrads& g, const ValueRows& t) {
    if (walked(values_backward_cost, t)) return;
    check(t);
    const int lanes = lanes_of_values(t.D), columns = t.KV * kGateInputs;
    launch(values_backward_kernel, groups_of(t, lanes), dim3(kValueThreads), 0,
           {.bytes = bytes_of(t) + 4. * t.N * t.KV, .at_most = true}, g, t, lanes);
    const RowGroups groups = row_groups_of(t.N, kNormGroups);
    float* partial = scratch<float>(size_t(groups.count) * columns);
    launch(values_gate_kernel, dim3(groups.count), dim3(kValueThreads), 0,
           {.bytes = 4. * t.N * t.KV + (3. * t.N + t.KV) * kGateInputs * sizeof(floatX) +
                     4. * groups.count * columns, .scattered = true},
           g.dh, g.dgates, partial, t, groups.rows);
    add_columns({.out = {g.dgatew}, .partial = partial, .rows = groups.count, .columns = columns});
}

}  // namespace cuda
}  // namespace PRECISION
