// A block takes a run of elements, counts bins in shared memory by integer atomics, whose order does not
// matter, and leaves a Spread in scratch. A second kernel adds these in the order of the blocks.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

static constexpr int kSpreadThreads = 256;

// A value, or the difference of two.
template <class T> struct SpreadInput {
    const T *values, *before;
    size_t count, run;          // run: elements of a block
    __device__ __forceinline__ float load(size_t i) const {
        const float x = float(ptx::load_streaming(values + i));
        return before ? x - float(ptx::load_streaming(before + i)) : x;
    }
};

// FLOOR bytes = (before ? 2 : 1) count sizeof(T) + blocks sizeof(Spread)
template <class T>
__global__ void __launch_bounds__(kSpreadThreads) spread_kernel(Spread* partial, SpreadInput<T> in) {
    SMEM(unsigned[kSpreadBins + 3], counts);        // bins, zeros, non-finite, bits of the largest
    const unsigned thread = threadIdx.x;
    if (thread < kSpreadBins + 3) counts[thread] = 0;
    __syncthreads();
    const size_t first = blockIdx.x * in.run, end = first + in.run < in.count ? first + in.run : in.count;
    double squares = 0, sum = 0;
    float largest = 0;
    const auto add = [&](float x, size_t) {
        x = fabsf(x);
        if (!isfinite(x)) atomicAdd(&counts[kSpreadBins + 1], 1u);
        else if (x == 0) atomicAdd(&counts[kSpreadBins], 1u);
        else {
            atomicAdd(&counts[spread_bin(x)], 1u);
            squares += double(x) * double(x), sum += double(x);
            largest = fmaxf(largest, x);
        }
    };
    for_loaded<4>(first + thread, end, size_t(kSpreadThreads), [&](size_t i) { return in.load(i); }, add);
    atomicMax(&counts[kSpreadBins + 2], __float_as_uint(largest));      // of floats >= 0, as their bits
    squares = block_sum_of_doubles<kSpreadThreads>(squares);
    __syncthreads();
    sum = block_sum_of_doubles<kSpreadThreads>(sum);
    double* const to = &partial[blockIdx.x].count;
    if (thread < kSpreadBins) to[offsetof(Spread, bins) / sizeof(double) + thread] = double(counts[thread]);
    if (thread != 0) return;
    Spread& own = partial[blockIdx.x];
    own.count = double(end - first);
    own.zeros = double(counts[kSpreadBins]), own.nonfinite = double(counts[kSpreadBins + 1]);
    own.squares = squares, own.sum = sum;
    own.largest = double(__uint_as_float(counts[kSpreadBins + 2]));
}

static constexpr int kSpreadWordThreads = 96;
static_assert(kSpreadWords <= kSpreadWordThreads);

// A thread per word.
// FLOOR bytes = (blocks + 2) sizeof(Spread)
__global__ void __launch_bounds__(kSpreadWordThreads)
    add_spreads_kernel(Spread* to, const Spread* partial, int blocks) {
    const int word = int(threadIdx.x);
    if (word >= kSpreadWords) return;
    double* const out = &to->count + word;
    const double* const from = &partial->count + word;
    double total = *out;
    for_loaded<8>(0, blocks, 1, [&](int b) { return load_streaming(from + size_t(b) * kSpreadWords); },
                  [&](double v, int) { total = word < kSpreadSums ? total + v : fmax(total, v); });
    *out = total;
}

template <class T> static void spread_of(Spread* to, const T* values, const T* before, size_t count) {
    if (count == 0) return;
    // whole rounds of a block: warps read whole sectors
    const size_t run = div_up(div_up(count, spread_blocks(count)), kSpreadThreads) * kSpreadThreads;
    const size_t blocks = div_up(count, run);
    Spread* const partial = scratch<Spread>(blocks);
    const double bytes = double(blocks) * sizeof(Spread);
    launch(spread_kernel<T>, dim3(unsigned(blocks)), dim3(kSpreadThreads), 0,
           {.bytes = (before ? 2. : 1.) * double(count) * sizeof(T) + bytes}, partial,
           SpreadInput<T>{values, before, count, run});
    launch(add_spreads_kernel, dim3(1), dim3(kSpreadWordThreads), 0, {.bytes = bytes + 2 * sizeof(Spread)},
           to, partial, int(blocks));
}

void spread(Spread* to, const real* values, size_t count) {
    if (walked(spread_cost, "spread", count, sizeof(real))) return;
    spread_of<real>(to, values, nullptr, count);
}
void spread_of_change(Spread* to, const real* after, const real* before, size_t count) {
    if (walked(spread_cost, "spread_of_change", count, 2 * sizeof(real))) return;
    spread_of<real>(to, after, before, count);
}
void spread_of_stored_change(Spread* to, const floatX* after, const floatX* before, size_t count) {
    if (walked(spread_cost, "spread_of_stored_change", count, 2 * sizeof(floatX))) return;
    spread_of<floatX>(to, after, before, count);
}
void spread_of_stored(Spread* to, const floatX* values, size_t count) {
    if (walked(spread_cost, "spread_of_stored", count, sizeof(floatX))) return;
    spread_of<floatX>(to, values, nullptr, count);
}

}  // namespace cuda
}  // namespace PRECISION
