// The plain vector operations of decl/memory.h.
#include <algorithm>

#include "llmc/ops/cuda/elementwise.h"
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

// FLOOR bytes = (4 + sizeof(floatX)) count
__global__ void __launch_bounds__(kElementwiseThreads)
    round_to_kernel(floatX* out, const float* in, size_t count) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Four::size;
    if (i + Four::size > count) {
        for (size_t k = i; k < count; k++) out[k] = floatX(in[k]);
        return;
    }
    const PackF x = PackF::load_streaming(in + i);
    Four rounded;
    #pragma unroll
    for (int k = 0; k < Four::size; k++) rounded[k] = floatX(x[k]);
    rounded.store(out + i);
}

void round_to(floatX* out, const real* in, size_t count) {
    if (walked(vector_cost, "round_to", count * sizeof(real), count * sizeof(floatX))) return;
    CHECK((uintptr_t(out) | uintptr_t(in)) % 16 == 0, "round_to: not aligned to 16 bytes");
    const size_t packs = div_up(count, Four::size);
    launch(round_to_kernel, dim3(unsigned(div_up(packs, kElementwiseThreads))), dim3(kElementwiseThreads), 0,
           {.bytes = (4. + sizeof(floatX)) * double(count)}, out, in, count);
}

// A thread takes `each` elements of a row: a pack, or one.
// FLOOR bytes = 2 B (before + T) width sizeof(floatX) + (before ? 4 B : 0)
template <int each>
__global__ void __launch_bounds__(kElementwiseThreads) join_rows_kernel(floatX* out, JoinedRows j) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * each;
    const size_t row = i / j.width, c = i % j.width;
    const int rows = j.before + j.T, b = int(row / rows), t = int(row % rows);
    if (b >= j.B) return;
    const floatX* from = t < j.before
        ? j.kept + (size_t(load_cached(j.from + b)) * j.before + t) * j.width
        : j.own + (size_t(b) * j.T + (t - j.before)) * j.stride;
    if constexpr (each == 1) out[i] = load_cached(from + c);
    else Pack::load_cached(from + c).store(out + i);
}

void join_rows(floatX* out, const JoinedRows& j) {
    if (walked(join_rows_cost, j)) return;
    const bool packs = size_t(j.width) % Pack::size == 0 && j.stride % Pack::size == 0;
    const size_t count = size_t(j.B) * size_t(j.before + j.T) * size_t(j.width),
                 threads = packs ? count / Pack::size : count;
    launch(packs ? join_rows_kernel<Pack::size> : join_rows_kernel<1>,
           dim3(unsigned(div_up(threads, kElementwiseThreads))), dim3(kElementwiseThreads), 0,
           {.bytes = 2. * double(count) * sizeof(floatX) + (j.before ? 4. * j.B : 0)}, out, j);
}

// A thread copies `each` elements of a row: a pack, or one.
// FLOOR bytes = 2 rows width sizeof(floatX)
template <int each>
__global__ void __launch_bounds__(kElementwiseThreads) copy_rows_kernel(floatX* out, RowCopy c) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * each;
    const ptrdiff_t row = ptrdiff_t(i / c.width), column = ptrdiff_t(i % c.width);
    if (row >= c.rows) return;
    const floatX* const from = c.from + row * c.stride + column;
    floatX* const to = out + row * c.out_stride + column;
    if constexpr (each == 1) *to = load_cached(from);
    else Pack::load_cached(from).store(to);
}

void copy_rows(floatX* out, const RowCopy& c) {
    if (walked(copy_rows_cost, c)) return;
    const ptrdiff_t unit = Pack::size;
    const bool packs = c.width % Pack::size == 0 && c.stride % unit == 0 && c.out_stride % unit == 0;
    const size_t count = size_t(c.rows) * c.width, threads = packs ? count / Pack::size : count;
    launch(packs ? copy_rows_kernel<Pack::size> : copy_rows_kernel<1>,
           dim3(unsigned(div_up(threads, kElementwiseThreads))), dim3(kElementwiseThreads), 0,
           {.bytes = 2. * double(count) * sizeof(floatX)}, out, c);
}

// ---------------------------------------------------------------------------------------------------------
// sums of terms, in their order

// Few terms lie anywhere. Many, a slice of each rank's, lie `stride` apart but for the rank's own.
static constexpr int kMostListed = 128;
template <class In> struct ListedTerms {
    const In* term[kMostListed];
    __device__ const In* operator[](int p) const { return term[p]; }
};
template <class In> struct StridedTerms {
    const In* first;
    ptrdiff_t stride;
    const In* own;
    int own_at;                                 // -1: all lie `stride` apart
    __host__ __device__ const In* operator[](int p) const { return p == own_at ? own : first + p * stride; }
};

// The elements of a thread: 16 bytes of the wider type.
template <class Out, class In> constexpr int group_of() {
    return int(16 / (sizeof(Out) > sizeof(In) ? sizeof(Out) : sizeof(In)));
}

// Values as they are, or each rounded to As before it is added. aligned: packs can be loaded from all.
// FLOOR bytes = (number sizeof(In) + sizeof(Out)) count
template <class Out, class In, class As, class Terms>
__global__ void __launch_bounds__(kElementwiseThreads)
sum_terms_kernel(Out* out, const __grid_constant__ Terms from, int number, size_t count, bool aligned) {
    constexpr int size = group_of<Out, In>();
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * size;
    if (aligned && i + size <= count) {
        float sum[size] = {};
        for (int p = 0; p < number; p++) {
            const auto v = PackOf<In, size>::load_streaming(from[p] + i);
            #pragma unroll
            for (int k = 0; k < size; k++) sum[k] = p == 0 ? float(As(v[k])) : sum[k] + float(As(v[k]));
        }
        PackOf<Out, size> pack;
        #pragma unroll
        for (int k = 0; k < size; k++) pack[k] = Out(sum[k]);
        pack.store(out + i);
        return;
    }
    for (size_t k = i; k < count && k < i + size; k++) {
        float sum = float(As(load_streaming(from[0] + k)));
        for (int p = 1; p < number; p++) sum += float(As(load_streaming(from[p] + k)));
        store_streaming(out + k, Out(sum));
    }
}

template <class In> static StridedTerms<In> strided(const In* const* terms, int number) {
    const bool from_start = terms[1] - terms[0] == terms[2] - terms[1];     // else the own one is among these
    const int last = number - 1;
    const ptrdiff_t stride = from_start ? terms[1] - terms[0] : terms[last] - terms[last - 1];
    StridedTerms<In> all = {from_start ? terms[0] : terms[last] - last * stride, stride, nullptr, -1};
    for (int p = 0; p < number; p++) {
        if (terms[p] == all[p]) continue;
        CHECK(all.own_at < 0, "sum of {} terms, at most {} that do not lie at equal distances", number,
              kMostListed);
        all.own_at = p, all.own = terms[p];
    }
    return all;
}

template <class As, class Out, class In, class Terms>
static void sum_from(Out* out, const Terms& from, int number, size_t count, bool aligned) {
    const size_t groups = div_up(count, group_of<Out, In>());
    launch(sum_terms_kernel<Out, In, As, Terms>, dim3(unsigned(div_up(groups, kElementwiseThreads))),
           dim3(kElementwiseThreads), 0,
           {.bytes = (double(number) * sizeof(In) + sizeof(Out)) * double(count)}, out, from, number, count,
           aligned);
}

template <class Out, class In> static bool aligned(const Out* out, const In* const* terms, int number) {
    uintptr_t bits = uintptr_t(out);
    for (int p = 0; p < number; p++) bits |= uintptr_t(terms[p]);
    return bits % 16 == 0;
}

// REQUIRES: number <= kMostListed.
template <class As, class Out, class In>
static void sum_listed(Out* out, const In* const* terms, int number, size_t count) {
    ListedTerms<In> listed = {};
    std::copy_n(terms, number, listed.term);
    sum_from<As, Out, In>(out, listed, number, count, aligned(out, terms, number));
}

template <class As, class Out, class In>
static void sum_of(Out* out, const In* const* terms, int number, size_t count) {
    CHECK(number >= 1, "a sum of {} terms", number);
    if (number <= kMostListed) return sum_listed<As>(out, terms, number, count);
    sum_from<As, Out, In>(out, strided(terms, number), number, count, aligned(out, terms, number));
}

void sum_terms(floatX* out, const floatX* const* terms, int number, size_t count) {
    sum_of<float>(out, terms, number, count);
}
void sum_rounded(real* out, const real* const* terms, int number, size_t count) {
    sum_of<floatX>(out, terms, number, count);
}
void sum_widened(real* out, const floatX* const* terms, int number, size_t count) {
    sum_of<float>(out, terms, number, count);
}
void add(floatX* sum, const floatX* values, size_t count) {
    if (walked(vector_cost, "add", 2 * count * sizeof(floatX), count * sizeof(floatX))) return;
    const floatX* const both[] = {sum, values};
    sum_listed<float>(sum, both, 2, count);
}
void accumulate(real* sum, const real* values, size_t count) {
    if (walked(vector_cost, "accumulate", 2 * count * sizeof(real), count * sizeof(real))) return;
    const real* const both[] = {sum, values};
    sum_listed<float>(sum, both, 2, count);
}

// One block: thread t adds values t, t + 1024, ... in double, then a tree adds the threads.
static constexpr int kSumThreads = 1024;

// FLOOR bytes = 4 count + 16
__global__ void __launch_bounds__(kSumThreads)
    sum_in_order_kernel(double* total, const float* values, size_t count) {
    double mine = 0;
    for_loaded<8>(
        size_t(threadIdx.x), count, size_t(kSumThreads), [=](size_t i) { return load_streaming(values + i); },
        [&](float v, size_t) { mine += double(v); });
    const double sum = block_sum_of_doubles<kSumThreads>(mine);
    if (threadIdx.x == 0) *total += sum;
}

void sum_in_order(double* total, const real* values, size_t count) {
    if (walked(vector_cost, "sum_in_order", count * sizeof(real), sizeof *total)) return;
    launch(sum_in_order_kernel, dim3(1), dim3(kSumThreads), 0, {.bytes = 4. * double(count) + 16}, total,
           values, count);
}

// A thread per column; few rows.
// FLOOR bytes = 8 (rows + 1) cols
__global__ void __launch_bounds__(32) sum_rows_kernel(double* out, const double* in, int rows, int cols) {
    const int c = int(blockIdx.x) * 32 + int(threadIdx.x);
    if (c >= cols) return;
    double sum = 0;
    for (int r = 0; r < rows; r++) sum += in[size_t(r) * size_t(cols) + size_t(c)];
    out[c] = sum;
}

void sum_rows(double* out, const double* in, int rows, int cols) {
    if (walked(sum_rows_cost, rows, cols)) return;
    launch(sum_rows_kernel, dim3(unsigned(div_up(cols, 32))), dim3(32), 0, {.bytes = 8. * (rows + 1) * cols},
           out, in, rows, cols);
}

}  // namespace cuda
}  // namespace PRECISION
