// The emulated instructions of ptx.h against the layouts that the PTX ISA gives; the counters of accesses.
#include <cuda_runtime.h>

#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "llmc/ops/cuda/ptx.h"
#include "test/emulator/counters.h"
#include "test/emulator/settings.h"
#include "test/emulator/testing.h"
#include "test/test.h"

using emulator::Device;

template <class... P, class... A>
static void start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... arguments) {
    const cudaError_t error = emulator::start(kernel, grid, block, shared, nullptr, arguments...);
    EXPECT(error == cudaSuccess, "%s", cudaGetErrorString(error));
}

static uint32_t pair(bfloat16 low, bfloat16 high) { return low.bits | uint32_t(high.bits) << 16; }

// Fragments by the formulas of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": row
// and column of elements a_i (i = 0..7), b_i and c_i (i = 0..3).
static __global__ void multiply(float* d, const bfloat16* a, const bfloat16* b) {
    const int group = int(threadIdx.x) >> 2, thread = int(threadIdx.x) % 4;
    bfloat16 ea[8], eb[4];
    for (int i = 0; i < 8; i++) {
        const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
        const int column = i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
        ea[i] = a[16 * row + column];
    }
    for (int i = 0; i < 4; i++) {
        const int row = i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
        eb[i] = b[8 * row + group];
    }
    const uint32_t fa[4] = {pair(ea[0], ea[1]), pair(ea[2], ea[3]), pair(ea[4], ea[5]), pair(ea[6], ea[7])};
    const uint32_t fb[2] = {pair(eb[0], eb[1]), pair(eb[2], eb[3])};
    float c[4] = {1, 1, 1, 1};
    ptx::mma_bf16(c, fa, fb);
    for (int i = 0; i < 4; i++) {
        const int row = i < 2 ? group : group + 8, column = thread * 2 + (i & 1);
        d[8 * row + column] = c[i];
    }
}
static __global__ void raise(float* out, const float* in) {
    out[threadIdx.x] = ptx::exp2_approx(in[threadIdx.x]);
}
TEST(exp2_approx_errs_as_documented) {
    std::vector<float> x = {0, 1e-40f, -INFINITY, INFINITY, NAN, -126, -127, -140, 127.5f};
    while (x.size() < 1024) x.push_back(float(x.size()) * 0.2437f - 125);
    const Device<float> in(x), out(std::vector<float>(x.size()));
    start(raise, 1, 1024, 0, out.p, in.p);
    const auto y = out.host();
    EXPECT(y[0] == 1 && y[1] == 1 && y[2] == 0 && y[3] == INFINITY && std::isnan(y[4]) && y[6] == 0 &&
           y[7] == 0);
    double most = 0;
    for (size_t i = 8; i < x.size(); i++)
        most = std::max(most, std::fabs(double(y[i]) / std::exp2(double(x[i])) - 1));
    EXPECT(most > 0x1p-22 && most < 0x1.8p-22, "%g", most);
}

TEST(mma_multiplies_fragments_as_documented) {
    const auto a = emulator::whole_numbers(16 * 16, 1), b = emulator::whole_numbers(16 * 8, 2);
    const Device<bfloat16> da(a), db(b);
    const Device<float> d(std::vector<float>(16 * 8));
    start(multiply, 1, 32, 0, d.p, da.p, db.p);
    const auto got = d.host();
    for (size_t m = 0; m < 16; m++)
        for (size_t n = 0; n < 8; n++) {
            float wanted = 1;
            for (size_t k = 0; k < 16; k++) wanted += float(a[16 * m + k]) * float(b[8 * k + n]);
            EXPECT(got[8 * m + n] == wanted, "(%zu, %zu) is %g, not %g", m, n, got[8 * m + n], wanted);
        }
}

// Four matrices of (8, 8), each row of which lies 80 bytes after the last.
static __global__ void load_matrices(uint32_t* out, const bfloat16* in) {
    DYN_SHARED(bfloat16, tile);
    const int lane = int(threadIdx.x);
    bfloat16* row = tile + 40 * lane;
    for (int i = 0; i < 8; i++) row[i] = in[8 * lane + i];
    __syncwarp();
    uint32_t x4[4], x4_trans[4];
    ptx::ldmatrix_x4(x4, row);
    ptx::ldmatrix_x4_trans(x4_trans, row);
    for (int i = 0; i < 4; i++) out[8 * lane + i] = x4[i], out[8 * lane + 4 + i] = x4_trans[i];
}
TEST(ldmatrix_distributes_rows_as_documented) {
    std::vector<bfloat16> in(32 * 8);
    for (size_t i = 0; i < in.size(); i++) in[i].bits = uint16_t(i);
    const Device<bfloat16> device(in);
    const Device<uint32_t> out(std::vector<uint32_t>(8 * 32));
    start(load_matrices, 1, 32, 32 * 80, out.p, device.p);
    const auto got = out.host();
    const auto at = [](int matrix, int row, int column) { return uint32_t(64 * matrix + 8 * row + column); };
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8; i++) {
            const int m = i % 4, row = lane / 4, column = 2 * (lane % 4);
            const uint32_t wanted = i >= 4 ? at(m, column, row) | at(m, column + 1, row) << 16
                                           : at(m, row, column) | at(m, row, column + 1) << 16;
            EXPECT(got[size_t(8 * lane + i)] == wanted, "register %d of lane %d is %08x, not %08x", i, lane,
                   got[size_t(8 * lane + i)], wanted);
        }
}

TEST(pack_bf16_rounds_as_bfloat16_does) {
    for (uint32_t i = 0; i < 100000; i++) {
        const float low = std::bit_cast<float>(i * 42949u), high = std::bit_cast<float>(~(i * 42949u));
        EXPECT(ptx::pack_bf16(low, high) == pair(bfloat16(low), bfloat16(high)));
    }
}

// ---------------------------------------------------------------------------------------------------------
// counters

// Packs of 16 bytes, a stride apart; weights that every block reads; mma of a warp.
static __global__ void counted(float* out, const float* in, const float* weights, int stride) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    const uint4 v = ptx::load16_streaming(in + 4 * stride * i);
    const uint4 w = ptx::load16_cached(weights + 4 * threadIdx.x);
    float d[4] = {};
    const uint32_t a[4] = {v.x, v.y, v.z, v.w}, b[2] = {w.x, w.y};
    ptx::mma_bf16(d, a, b);
    ptx::store16(out + 4 * i, make_uint4(v.x, v.y, v.z, unsigned(d[0])));
}
TEST(bytes_sectors_and_flops_are_counted) {
    for (const int stride : {1, 3}) {
        const Device<float> out(std::vector<float>(4 * 256)), in(std::vector<float>(4 * 256 * 3));
        const Device<float> weights(std::vector<float>(4 * 64));
        emulator::settings.count = true;
        emulator::reset_counts();
        start(counted, 4, 64, 0, out.p, in.p, weights.p, stride);
        emulator::settings.count = false;
        const auto counts = emulator::counts();
        EXPECT(counts.size() == 1 && counts.begin()->first.find("counted") != std::string::npos);
        const emulator::KernelCount& c = counts.begin()->second;
        EXPECT(c.bytes == 16 * (256 + 256 + 64), "%zu bytes", size_t(c.bytes));
        const size_t sectors = stride == 1 ? (256 + 256 + 64) / 2 : 256 + 256 / 2 + 64 / 2;
        EXPECT(c.sectors == sectors, "%zu sectors, not %zu", size_t(c.sectors), sectors);
        EXPECT(c.mma_flops == 8 * 2 * 16 * 8 * 16);
    }
}

static bool says(const std::vector<std::string>& lines, const char* what) {
    return lines.size() == 1 && lines[0].find(what) != std::string::npos;
}
TEST(what_is_off_its_floor_is_told) {
    const emulator::KernelCount right = {.bytes = 32000, .sectors = 1000, .shared_waves = 100,
                                         .shared_ideal = 100, .mma_flops = 4096, .floor_bytes = 32000,
                                         .floor_flops = 4096};
    EXPECT(emulator::off_floor(right).empty());
    emulator::KernelCount c = right;
    c.bytes = 36000;
    EXPECT(says(emulator::off_floor(c), "36000 bytes where 32000"));
    c = right, c.sectors = 1200;
    EXPECT(says(emulator::off_floor(c), "sectors of 38400 bytes in all where 32000"));
    c.scattered = true;
    EXPECT(emulator::off_floor(c).empty());
    c = right, c.shared_waves = 150;
    EXPECT(says(emulator::off_floor(c), "150 passes of shared memory where 100"));
    c = right, c.mma_flops = 8192;
    EXPECT(says(emulator::off_floor(c), "8192 flops where 4096"));
}

// Rows of 16 bytes, `pitch` bytes apart, by the 8 lanes that are served at once.
static __global__ void banks(float* out, int pitch) {
    DYN_SHARED(char, tile);
    ptx::store16(tile + pitch * int(threadIdx.x), make_uint4(1, 2, 3, 4));
    out[threadIdx.x] = float(ptx::load16(tile + pitch * int(threadIdx.x)).x);
}
TEST(bank_conflicts_are_counted) {
    struct Case { int pitch; unsigned ways; };
    for (const Case& c : {Case{16, 1}, Case{128, 8}, Case{64, 4}, Case{80, 1}, Case{144, 1}}) {
        const Device<float> out(std::vector<float>(32));
        emulator::settings.count = true;
        emulator::reset_counts();
        start(banks, 1, 32, 32 * 144, out.p, c.pitch);
        emulator::settings.count = false;
        const emulator::KernelCount k = emulator::counts().begin()->second;
        EXPECT(k.shared_ideal == 8 && k.shared_waves == 8 * c.ways, "pitch %d: %zu passes, %zu are ideal",
               c.pitch, size_t(k.shared_waves), size_t(k.shared_ideal));
    }
}
