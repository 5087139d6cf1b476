// Forward: a thread takes a pack of a token. Backward of positions: a thread owns four channels of a position
// and adds up its tokens in order; rows that pack documents repeat positions at will, as tokens do, and go
// the way of tokens. Backward of tokens, without atomics and for any distribution of tokens: a
// stable radix sort by row of wte puts equal tokens side by side, in order (8 bits a pass; thread d of a
// block owns digit d, so ranks need no atomics). The sorted list is cut into buckets of tokens. A bucket adds
// up its runs of equal rows. For a run from an earlier bucket, the bucket leaves a partial sum;
// the run's first bucket adds the partial sums in a second step, bucket after bucket. Every sum has a fixed
// order, and a token repeated N times costs as much as N different tokens.
#include "llmc/base/check.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/scratch.h"

namespace PRECISION {
namespace cuda {

static __device__ __forceinline__ bool here(int32_t token, const Encoder& e) {
    return token >= e.v0 && token - e.v0 < e.V;
}

// ---------------------------------------------------------------------------------------------------------
// forward

// FLOOR bytes = (2 N + (wpe ? min(T, N) : 0)) C sizeof(floatX) + 4 N
__global__ void __launch_bounds__(256)
encoder_forward_kernel(floatX* out, const floatX* wte, const floatX* wpe, Encoder e) {
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * Pack::size;
    if (i >= size_t(e.N) * e.C) return;
    const int n = int(i / e.C), c = int(i % e.C);
    const int32_t token = load_cached(e.tokens + n);
    Pack sum = Pack::filled(floatX(0.f));
    if (here(token, e)) {
        const Pack t = Pack::load(wte + size_t(token - e.v0) * e.C + c);
        const Pack p = wpe ? Pack::load_cached(wpe + size_t(e.position(n)) * e.C + c)
                           : Pack::filled(floatX(0.f));
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) sum[k] = floatX(float(t[k]) + float(p[k]));
    }
    sum.store(out + i);
}

static dim3 blocks_of(size_t threads) { return dim3(unsigned(div_up(threads, 256))); }

void encoder_forward(floatX* out, const floatX* wte, const floatX* wpe, const Encoder& e) {
    if (walked(encoder_forward_cost, e, wpe != nullptr)) return;
    check_packs("encoder: C", e.C);
    const int positions = !wpe ? 0 : e.T < e.N ? e.T : e.N;
    launch(encoder_forward_kernel, blocks_of(size_t(e.N) * e.C / Pack::size), dim3(256), 0,
           {.bytes = (2. * e.N + positions) * e.C * sizeof(floatX) + 4. * e.N}, out, wte, wpe, e);
}

// ---------------------------------------------------------------------------------------------------------
// backward: positions

// to[0..) += sum
static __device__ __forceinline__ void add_floats(float* to, const float (&sum)[Four::size]) {
    PackF p = PackF::load(to);
    #pragma unroll
    for (int k = 0; k < Four::size; k++) p[k] += sum[k];
    p.store(to);
}

// FLOOR bytes = N C sizeof(floatX) + 8 min(T, N) C + 4 N
__global__ void __launch_bounds__(256)
encoder_backward_positions_kernel(float* dwpe, const floatX* dout, Encoder e) {
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * Four::size;
    const int t = int(i / e.C), c = int(i % e.C);
    if (t >= e.T || t >= e.N) return;
    float sum[Four::size] = {};
    for_loaded<8>(t, e.N, e.T,
                  [&](int n) {
                      const bool ours = here(load_cached(e.tokens + n), e);
                      return ours ? Four::load(dout + size_t(n) * e.C + c) : Four::filled(floatX(0.f));
                  },
                  [&](const Four& g, int) { add_pack(sum, g); });
    add_floats(dwpe + size_t(e.t0 + t) * e.C + c, sum);
}

// ---------------------------------------------------------------------------------------------------------
// backward: the sort. A token's key is its row of wte, or of wpe; behind the last if the token is not here.

static constexpr int kDigitBits = 8, kScanThreads = 1024;
static_assert(kEncoderDigits == 1 << kDigitBits);

// Tokens in the order of the sort so far.
struct Sorted { int32_t *key, *n; };

// FLOOR bytes = (of_positions ? 16 : 12) N
__global__ void __launch_bounds__(256) encoder_keys_kernel(Sorted s, Encoder e, bool of_positions) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= e.N) return;
    const int32_t token = e.tokens[n];
    const int row = of_positions ? e.position(n) : token - e.v0;
    s.key[n] = here(token, e) ? row : of_positions ? e.T : e.V;
    s.n[n] = n;
}

// digits[i] = the digit of key i of this block's tile; -1 behind the last
static __device__ __forceinline__ void stage_digits(int32_t* digits, const int32_t* key, int N, int shift) {
    for (int i = threadIdx.x; i < kEncoderTile; i += kEncoderDigits) {
        const int at = blockIdx.x * kEncoderTile + i;
        digits[i] = at < N ? (key[at] >> shift) & (kEncoderDigits - 1) : -1;
    }
    __syncthreads();
}

// counts[digit][tile] = how many keys of the tile have the digit
// FLOOR bytes = 4 N + 4 counts
__global__ void __launch_bounds__(kEncoderDigits)
encoder_digits_kernel(int32_t* counts, const int32_t* key, int N, int shift) {
    SMEM(int32_t[kEncoderTile], digits);
    stage_digits(digits, key, N, shift);
    const int digit = threadIdx.x;
    int count = 0;
    for (int i = 0; i < kEncoderTile; i++) count += digits[i] == digit;
    counts[digit * gridDim.x + blockIdx.x] = count;
}

// counts[i] = the sum of counts[0..i): one block, a stretch of `each` entries per thread
// FLOOR bytes = 12 counts
__global__ void __launch_bounds__(kScanThreads)
encoder_scan_kernel(int32_t* counts, int size, int each) {
    SMEM(int32_t[2 * kScanThreads], sums);
    const int first = threadIdx.x * each, end = first + each < size ? first + each : size;
    int32_t sum = 0;
    for (int i = first; i < end; i++) sum += counts[i];
    int32_t *from = sums, *to = sums + kScanThreads;
    from[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 1; step < kScanThreads; step *= 2) {
        to[threadIdx.x] = from[threadIdx.x] + (int(threadIdx.x) >= step ? from[threadIdx.x - step] : 0);
        __syncthreads();
        int32_t* swap = from;
        from = to, to = swap;
    }
    int32_t before = from[threadIdx.x] - sum;
    for (int i = first; i < end; i++) {
        const int32_t count = counts[i];
        counts[i] = before;
        before += count;
    }
}

// Moves every key behind the keys with smaller digits and behind earlier keys of its digit; thread d moves
// the keys of digit d.
// FLOOR bytes = 20 N + 4 counts      scattered: where a key goes
__global__ void __launch_bounds__(kEncoderDigits)
encoder_move_kernel(Sorted to, Sorted from, const int32_t* starts, int N, int shift) {
    SMEM(int32_t[kEncoderTile], digits);
    stage_digits(digits, from.key, N, shift);
    const int digit = threadIdx.x, tile = blockIdx.x * kEncoderTile;
    int at = starts[digit * gridDim.x + blockIdx.x];
    for (int i = 0; i < kEncoderTile; i++)
        if (digits[i] == digit) {
            to.key[at] = from.key[tile + i];
            to.n[at++] = from.n[tile + i];
        }
}

static Sorted sort_by_row(const Encoder& e, bool of_positions, int rows, size_t& used) {
    const size_t N = size_t(e.N);
    Sorted a = {scratch<int32_t>(N, used), scratch<int32_t>(N, used)};
    Sorted b = {scratch<int32_t>(N, used), scratch<int32_t>(N, used)};
    const int tiles = div_up(e.N, kEncoderTile), counters = kEncoderDigits * tiles;
    int32_t* counts = scratch<int32_t>(size_t(counters), used);
    launch(encoder_keys_kernel, blocks_of(N), dim3(256), 0, {.bytes = (of_positions ? 16. : 12.) * e.N}, a, e,
           of_positions);
    for (int shift = 0; shift == 0 || rows >> shift != 0; shift += kDigitBits) {
        launch(encoder_digits_kernel, dim3(tiles), dim3(kEncoderDigits), 0,
               {.bytes = 4. * e.N + 4. * counters}, counts, a.key, e.N, shift);
        launch(encoder_scan_kernel, dim3(1), dim3(kScanThreads), 0, {.bytes = 12. * counters}, counts,
               counters, div_up(counters, kScanThreads));
        launch(encoder_move_kernel, dim3(tiles), dim3(kEncoderDigits), 0,
               {.bytes = 20. * e.N + 4. * counters, .scattered = true}, b, a, counts, e.N, shift);
        std::swap(a, b);
    }
    return a;
}

// ---------------------------------------------------------------------------------------------------------
// backward: the buckets

static constexpr int kBucketThreads = 128;

// The keys at both ends of a bucket, and the neighbours outside; -1: no neighbour.
struct Ends { int32_t before, first, last, after; };
static __device__ __forceinline__ Ends ends_of(const int32_t* key, int bucket, int N) {
    const int start = bucket * kEncoderBucket, end = start + kEncoderBucket < N ? start + kEncoderBucket : N;
    return {start > 0 ? key[start - 1] : -1, key[start], key[end - 1], end < N ? key[end] : -1};
}

// FLOOR bytes = N C sizeof(floatX) + 8 min(N, V) C + 4 buckets C + 8 N      at most: as many rows as tokens
__global__ void __launch_bounds__(kBucketThreads)
    encoder_backward_tokens_kernel(float* dwte, float* partial, const floatX* dout, Sorted s, int N, int V,
                                   int C) {
    const int c = (blockIdx.y * blockDim.x + threadIdx.x) * Four::size, bucket = blockIdx.x;
    if (c >= C) return;
    const int start = bucket * kEncoderBucket, end = start + kEncoderBucket < N ? start + kEncoderBucket : N;
    const int32_t before = start > 0 ? s.key[start - 1] : -1;
    float sum[Four::size] = {};
    int32_t key = s.key[start];
    bool continued = key == before;              // the run of `key` began in an earlier bucket
    constexpr int kAhead = 8;
    for (int i = start; i < end; i += kAhead) {
        int32_t keys[kAhead];
        Four g[kAhead];
        #pragma unroll
        for (int j = 0; j < kAhead; j++) {
            keys[j] = i + j < end ? s.key[i + j] : V;
            if (keys[j] < V) g[j] = Four::load(dout + size_t(s.n[i + j]) * C + c);
        }
        #pragma unroll
        for (int j = 0; j < kAhead; j++) {
            if (keys[j] != key) {
                if (continued) store_floats(partial + size_t(bucket) * C + c, sum);
                else add_floats(dwte + size_t(key) * C + c, sum);
                #pragma unroll
                for (int k = 0; k < Four::size; k++) sum[k] = 0;
                key = keys[j], continued = false;
            }
            if (keys[j] >= V) return;            // rows that are not here come last
            add_pack(sum, g[j]);
        }
    }
    if (continued) store_floats(partial + size_t(bucket) * C + c, sum);
    else add_floats(dwte + size_t(key) * C + c, sum);
}

// A bucket whose last run continues adds the partial sums of the following buckets.
// FLOOR bytes = 12 buckets C      at most: every bucket but the first begins inside a run
__global__ void __launch_bounds__(kBucketThreads)
encoder_backward_runs_kernel(float* dwte, const float* partial, Sorted s, int N, int V, int C) {
    const int c = (blockIdx.y * blockDim.x + threadIdx.x) * Four::size;
    const Ends e = ends_of(s.key, blockIdx.x, N);
    const bool begins = e.first != e.last || e.first != e.before;
    if (c >= C || e.last != e.after || e.last >= V || !begins) return;
    float sum[Four::size] = {};
    for (int bucket = blockIdx.x + 1; bucket < int(gridDim.x); bucket++) {
        const Ends next = ends_of(s.key, bucket, N);
        if (next.first != e.last) break;
        const PackF p = PackF::load(partial + size_t(bucket) * C + c);
        #pragma unroll
        for (int k = 0; k < Four::size; k++) sum[k] += p[k];
        if (next.last != e.last) break;
    }
    add_floats(dwte + size_t(e.last) * C + c, sum);
}

// The gradients of wte's rows, or of wpe's, by the sort.
static void add_by_row(float* table, const floatX* dout, const Encoder& e, bool of_positions) {
    const int fours = e.C / Four::size, buckets = div_up(e.N, kEncoderBucket), V = of_positions ? e.T : e.V;
    const double read = double(e.N) * e.C * sizeof(floatX), rows = e.N < V ? e.N : V;
    size_t used = 0;
    const Sorted s = sort_by_row(e, of_positions, V, used);
    float* partial = scratch<float>(size_t(buckets) * e.C, used);
    const int threads = fours < kBucketThreads ? div_up(fours, 32) * 32 : kBucketThreads;
    const dim3 grid(buckets, div_up(fours, threads));
    launch(encoder_backward_tokens_kernel, grid, dim3(threads), 0,
           {.bytes = read + 8 * rows * e.C + 4. * buckets * e.C + 8. * e.N, .at_most = true}, table, partial,
           dout, s, e.N, V, e.C);
    launch(encoder_backward_runs_kernel, grid, dim3(threads), 0,
           {.bytes = 12. * buckets * e.C, .at_most = true}, table, partial, s, e.N, V, e.C);
}

void encoder_backward(real* dwte, real* dwpe, const floatX* dout, const Encoder& e) {
    if (walked(encoder_backward_cost, e, dwpe != nullptr)) return;
    check_packs("encoder: C", e.C);
    const int fours = e.C / Four::size, positions = e.T < e.N ? e.T : e.N;
    if (dwpe && e.positions)
        add_by_row(dwpe, dout, e, true);
    else if (dwpe)
        launch(encoder_backward_positions_kernel, blocks_of(size_t(positions) * fours), dim3(256), 0,
               {.bytes = double(e.N) * e.C * sizeof(floatX) + 8. * positions * e.C + 4. * e.N}, dwpe, dout,
               e);
    add_by_row(dwte, dout, e, false);
}

}  // namespace cuda
}  // namespace PRECISION
