#include "test/ptx_goldens.h"

#define PRECISION bf16
#include "llmc/ops/cuda/kernel.h"

static constexpr int kLanes = 32;

// (16, 16) a, row by row, and (16, 8) b, column by column, as words of two bfloat16.
static __global__ void golden_mma(float* d, const uint32_t* a, const uint32_t* b) {
    const int lane = int(threadIdx.x), g = lane / 4, t = lane % 4;
    uint32_t fa[4], fb[2];
    for (int i = 0; i < 4; i++) fa[i] = a[8 * (g + 8 * (i % 2)) + t + 4 * (i / 2)];
    for (int i = 0; i < 2; i++) fb[i] = b[8 * g + t + 4 * i];
    float sums[4] = {1, 2, 3, 4};
    ptx::mma_bf16(sums, fa, fb);
    for (int i = 0; i < 4; i++) d[4 * lane + i] = sums[i];
}

// Every lane's row of 8 bfloat16 lies 80 bytes after the last lane's. x4, x4_trans: 8 words.
static __global__ void golden_ldmatrix(uint32_t* out, const uint32_t* in) {
    DYN_SHARED(uint32_t, tile);
    const int lane = int(threadIdx.x);
    uint32_t* row = tile + 20 * lane;
    for (int i = 0; i < 4; i++) row[i] = in[4 * lane + i];
    __syncwarp();
    uint32_t x4[4], x4_trans[4];
    ptx::ldmatrix_x4(x4, row);
    ptx::ldmatrix_x4_trans(x4_trans, row);
    for (int i = 0; i < 4; i++) out[8 * lane + i] = x4[i], out[8 * lane + 4 + i] = x4_trans[i];
}

// Two groups of copies, every third of which is of nothing: zeros.
static __global__ void golden_cp_async(uint4* out, const uint4* in) {
    DYN_SHARED(uint4, tile);
    const int lane = int(threadIdx.x);
    for (int group = 0; group < 2; group++) {
        const int i = kLanes * group + lane;
        tile[i] = make_uint4(7, 7, 7, 7);
        ptx::cp_async16(tile + i, in + i, i % 3 != 0);
        ptx::cp_async_commit();
    }
    ptx::cp_async_wait<1>();
    out[lane] = tile[lane];
    ptx::cp_async_wait<0>();
    out[kLanes + lane] = tile[kLanes + lane];
}

// From 2^-30 to 2^17.
static __global__ void golden_exp2(float* out) {
    for (int i = 0; i < 4; i++) {
        const int at = 4 * int(threadIdx.x) + i;
        out[at] = ptx::exp2_approx(fmaf(0.37f, float(at), -30));
    }
}

static __global__ void golden_block(int* out) {
    out[int(threadIdx.x) + int(blockDim.x) * int(blockIdx.x)] = ptx::block_again();
}

static __global__ void golden_memory(uint4* out, const uint4* in) {
    const int lane = int(threadIdx.x);
    uint4 hidden = ptx::load16(in + lane);
    ptx::opaque(hidden);
    ptx::store16(out + lane, hidden);
    ptx::store16_streaming(out + kLanes + lane, ptx::load16_cached(in + kLanes + lane));
    uint4 single = ptx::load16_streaming(in + lane);
    const auto* words = reinterpret_cast<const uint32_t*>(in);
    const auto* halves = reinterpret_cast<const uint16_t*>(in);
    single.x ^= ptx::load_cached(words + lane);
    single.y ^= ptx::load_streaming(words + 3 * lane);
    single.z ^= unsigned(ptx::load_cached(halves + lane)) << 16 | ptx::load_streaming(halves + 5 * lane);
    ptx::store16_global(out + 2 * kLanes + lane, single);
    auto* doubles = reinterpret_cast<double*>(out + 3 * kLanes);
    ptx::store_streaming(doubles + 2 * lane, ptx::load_cached(reinterpret_cast<const double*>(in) + lane));
    auto* shorts = reinterpret_cast<uint16_t*>(doubles + 2 * lane + 1);
    for (int i = 0; i < 4; i++) ptx::store_streaming(shorts + i, uint16_t(halves[lane] + i));
}

static __global__ void golden_memory_of_8(uint2* out, const uint2* in) {
    const int lane = int(threadIdx.x);
    const uint2 a = ptx::load8(in + lane), b = ptx::load8_cached(in + kLanes + lane),
                c = ptx::load8_streaming(in + 2 * kLanes + lane);
    ptx::store8(out + lane, make_uint2(a.x, a.y ^ b.x));
    ptx::store8_streaming(out + kLanes + lane, make_uint2(b.y, c.x ^ c.y));
}

static __global__ void golden_pack(uint32_t* out, const float* in) {
    const int lane = int(threadIdx.x);
    for (int i = 0; i < 4; i++) out[4 * lane + i] = ptx::pack_bf16(in[8 * lane + i], in[8 * lane + 4 + i]);
}

// Codes of 8 floats, then a number from those of every 32nd of all bfloat16.
template <Fp8 F> static __global__ void golden_fp8(uint32_t* out, const float* in) {
    const auto pack = [](float low, float high) {
        return uint32_t(F == Fp8::E4M3 ? ptx::pack_e4m3(low, high) : ptx::pack_e5m2(low, high));
    };
    const int lane = int(threadIdx.x);
    uint32_t all = 0;
    for (uint32_t i = uint32_t(lane); i < 0x10000; i += 2 * kLanes) {
        const uint32_t next = i + kLanes;
        all = all * 0x01000193 ^ pack(std::bit_cast<float>(i << 16), std::bit_cast<float>(next << 16));
    }
    for (int i = 0; i < 4; i++) out[5 * lane + i] = pack(in[8 * lane + i], in[8 * lane + 4 + i]);
    out[5 * lane + 4] = all;
}

// ---------------------------------------------------------------------------------------------------------

namespace {
using Words = std::vector<uint32_t>;

uint32_t mixed(uint32_t i) {
    i = (i ^ i >> 16) * 0x7feb352du;
    i = (i ^ i >> 15) * 0x846ca68bu;
    return i ^ i >> 16;
}
Words random_words(size_t count, uint32_t seed) {
    Words w(count);
    for (size_t i = 0; i < count; i++) w[i] = mixed(uint32_t(i) + 1000 * seed + 1);
    return w;
}
// Two bfloat16 to a word: whole numbers from -8 to 7, or numbers that are none.
Words matrix(size_t count, uint32_t seed, bool whole) {
    Words w = random_words(count, seed);
    const auto value = [&](uint32_t bits) {
        const float v = whole ? float(int(bits % 16) - 8) : float(int(bits % 4001) - 2000) / 997;
        return uint32_t(bfloat16(v).bits);
    };
    for (uint32_t& x : w) x = value(x & 0xffff) | value(x >> 16) << 16;
    return w;
}
// Ties, the largest and smallest, infinity, zeros of either sign, and whatever comes. No NaN: its bits are
// free.
Words floats_to_round() {
    Words w = random_words(8 * kLanes, 5);
    const Words special = {0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x7f7fffff, 0xff7fffff, 0x00000001,
                           0x80000001, 0x007fffff, 0x7f800000, 0xff800000, 0, 0x80000000, 0x7f7f8000};
    std::copy(special.begin(), special.end(), w.begin());
    for (uint32_t& x : w)
        if ((x & 0x7fffffff) > 0x7f800000) x &= 0xbfffffff;
    return w;
}

// Halves between codes and the floats beside them, what is less than the least and more than the largest, and
// NaN.
Words floats_to_code(Fp8 format) {
    const Fp8Format& f = fp8_formats[int(format)];
    Words w = random_words(8 * kLanes, 6);
    const auto put = [&](size_t i, float x) { w[i] = std::bit_cast<uint32_t>(x); };
    for (size_t i = 0; i < w.size() / 2; i += 4) {
        const uint32_t code = w[i] % 0x7b;
        const float low = format == Fp8::E4M3 ? fp8_value<Fp8::E4M3>(uint8_t(code))
                                              : fp8_value<Fp8::E5M2>(uint8_t(code));
        const float high = format == Fp8::E4M3 ? fp8_value<Fp8::E4M3>(uint8_t(code + 1))
                                               : fp8_value<Fp8::E5M2>(uint8_t(code + 1));
        const float half = (low + (std::isfinite(high) ? high : f.largest)) / 2;
        put(i, half), put(i + 1, std::nextafter(half, INFINITY)), put(i + 2, -std::nextafter(half, 0.f));
    }
    size_t i = w.size() / 2;
    for (const float x : {0.f, -0.f, f.least / 2, -f.least / 2, f.least * 0.51f, f.largest, f.largest * 1.05f,
                          -f.largest * 9, INFINITY, -INFINITY, NAN, -NAN, f.least_normal, 1e-40f})
        put(i++, x);
    return w;
}

struct Device {
    void* p = nullptr;
    explicit Device(const Words& w) {
        CUDA_CHECK(cudaMalloc(&p, w.size() * 4));
        CUDA_CHECK(cudaMemcpy(p, w.data(), w.size() * 4, cudaMemcpyHostToDevice));
    }
    Device(const Device&) = delete;
    ~Device() { cudaFree(p); }
    template <class T> T* as() const { return static_cast<T*>(p); }
    Words host(size_t count) const {
        Words w(count);
        CUDA_CHECK(cudaStreamSynchronize(cuda_device().compute));
        CUDA_CHECK(cudaMemcpy(w.data(), p, count * 4, cudaMemcpyDeviceToHost));
        return w;
    }
};
}  // namespace

std::vector<Golden> ptx_goldens() {
    cuda_device();
    std::vector<Golden> goldens;
    for (const bool whole : {true, false}) {
        const Device a(matrix(128, 1, whole)), b(matrix(64, 2, whole)), d(Words(4 * kLanes));
        launch(golden_mma, 1, kLanes, 0, {}, d.as<float>(), a.as<uint32_t>(), b.as<uint32_t>());
        goldens.push_back({whole ? "mma_bf16" : "mma_bf16, rounded", d.host(4 * kLanes)});
    }
    const Device in(random_words(8 * kLanes, 3)), floats(floats_to_round()), out(Words(16 * kLanes));
    const auto keep = [&](const char* name, size_t words) { goldens.push_back({name, out.host(words)}); };
    launch(golden_ldmatrix, 1, kLanes, 80 * kLanes, {}, out.as<uint32_t>(), in.as<uint32_t>());
    keep("ldmatrix x4, x4_trans", 8 * kLanes);
    launch(golden_cp_async, 1, kLanes, 32 * kLanes, {}, out.as<uint4>(), in.as<uint4>());
    keep("cp_async16", 8 * kLanes);
    launch(golden_memory, 1, kLanes, 0, {}, out.as<uint4>(), in.as<uint4>());
    keep("load, store", 16 * kLanes);
    launch(golden_exp2, 1, kLanes, 0, {}, out.as<float>());
    keep("exp2_approx, relative", 4 * kLanes);
    launch(golden_block, 3, kLanes, 0, {}, out.as<int>());
    keep("block_again", 3 * kLanes);
    launch(golden_memory_of_8, 1, kLanes, 0, {}, out.as<uint2>(), in.as<uint2>());
    keep("load8, store8", 4 * kLanes);
    launch(golden_pack, 1, kLanes, 0, {}, out.as<uint32_t>(), floats.as<float>());
    keep("pack_bf16", 4 * kLanes);
    for (const Fp8 format : {Fp8::E4M3, Fp8::E5M2}) {
        const bool e4m3 = format == Fp8::E4M3;
        const Device codable(floats_to_code(format));
        launch(e4m3 ? golden_fp8<Fp8::E4M3> : golden_fp8<Fp8::E5M2>, 1, kLanes, 0, {}, out.as<uint32_t>(),
               codable.as<float>());
        keep(e4m3 ? "pack_e4m3" : "pack_e5m2", 5 * kLanes);
    }
    return goldens;
}
