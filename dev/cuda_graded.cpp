// The graded kernels of dev/cuda: results against the op, and speeds. `make dev-cuda`
//
//     cuda_graded [--N=8192] [--C=768] [--OC=3072]     on a GPU; the emulation has its own small sizes
//
// On a GPU: time, and bytes or products per second. In the emulation: traffic as a multiple of the least
// traffic, the table of dev/cuda/README.md.
#include "dev/cuda/graded.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/ops/ops.h"

#ifdef CUDA_EMU
#include "test/emulator/counters.h"
#include "test/emulator/settings.h"
#endif

using namespace bf16;

struct Sizes { int N, C, OC; };

#ifdef CUDA_EMU
static const Sizes kLayernorm = {64, 256, 0}, kMatmul = {128, 64, 128};
static const char* const kColumns = "bytes | sectors | bank conflicts | by tensor cores";

template <class F> static std::string measured(F f, const Sizes&) {
    emulator::settings.count = true;
    emulator::reset_counts();
    f();
    cuda::synchronize();
    emulator::settings.count = false;
    const emulator::KernelCount c = emulator::counts().begin()->second;
    std::string row = fmt::format("{:.2f} | {:.2f} | ", double(c.bytes) / c.floor_bytes,
                                  32. * double(c.sectors) / c.floor_bytes);
    row += c.shared_ideal ? fmt::format("{:.2f}", double(c.shared_waves) / double(c.shared_ideal)) : "-";
    return row + (c.mma_flops ? " | all" : " | -");
}
#else
static const Sizes kLayernorm = {65536, 768, 0}, kMatmul = {8192, 768, 3072};
static const char* const kColumns = "us | GB/s | TFLOP/s";

template <class F> static std::string measured(F f, const Sizes& s) {
    using clock = std::chrono::steady_clock;
    constexpr int kRepeats = 10;
    double best = 1e30;
    for (int i = 0; i < 4; i++) {               // the first is to warm up
        const auto begin = clock::now();
        for (int j = 0; j < kRepeats; j++) f();
        cuda::synchronize();
        const double seconds = std::chrono::duration<double>(clock::now() - begin).count() / kRepeats;
        if (i > 0) best = std::min(best, seconds);
    }
    const double N = s.N, C = s.C, OC = s.OC, bytes = OC ? 2 * (N * C + OC * C + N * OC) : 4 * N * C;
    return fmt::format("{:.1f} | {:.0f} | {:.2f}", 1e6 * best, 1e-9 * bytes / best,
                       2e-12 * N * C * OC / best);
}
#endif

static std::vector<bfloat16> normals(size_t count, uint64_t stream) {
    std::vector<bfloat16> v(count);
    for (size_t i = 0; i < count; i++) v[i] = bfloat16(float(normal(1, stream, i)));
    return v;
}

struct OnDevice {
    bfloat16* p;
    size_t bytes;
    explicit OnDevice(const std::vector<bfloat16>& v) : bytes(v.size() * sizeof(bfloat16)) {
        p = static_cast<bfloat16*>(cuda::device_allocate(bytes));
        cuda::copy_to_device(p, v.data(), bytes);
    }
    OnDevice(const OnDevice&) = delete;
    ~OnDevice() { cuda::device_free(p, bytes); }
};

// Against the op of the CPU; rounding to BF16 is off by some 0.002.
static double apart(const OnDevice& got, const std::vector<bfloat16>& want) {
    std::vector<bfloat16> values(want.size());
    cuda::copy_to_host(values.data(), got.p, got.bytes);
    double difference = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const double y = double(want[i]), d = double(values[i]) - y;
        difference += d * d, size += y * y;
    }
    return std::sqrt(difference / size);
}

static bool show(int version, const char* idea, const std::string& row, double off) {
    const bool right = off <= 0.003;
    printf("| %d | %s | %s |\n", version, idea, row.c_str());
    if (!right) printf("version %d is off by %.2g\n", version, off);
    fflush(stdout);
    return right;
}

static bool layernorms(const Sizes& s) {
    const size_t count = size_t(s.N) * s.C;
    const auto x = normals(count, 1), w = normals(s.C, 2), b = normals(s.C, 3);
    std::vector<bfloat16> want(count);
    std::vector<float> mean(s.N), rstd(s.N);
    cpu::layernorm_forward({.x1 = nullptr, .y = want.data(), .mean = mean.data(), .rstd = rstd.data(),
                            .x = x.data(), .r = nullptr, .bias = nullptr, .w = w.data(), .b = b.data()},
                           s.N, s.C);
    const OnDevice dx(x), dw(w), db(b);
    bool right = true;
    printf("\nlayernorm, N = %d, C = %d\n\n| | | %s |\n", s.N, s.C, kColumns);
    int version = 0;
    for (const auto& v : graded::layernorm_versions()) {
        const OnDevice y(std::vector<bfloat16>(count, bfloat16(NAN)));
        const std::string row = measured([&] { v.run({y.p, dx.p, dw.p, db.p, s.N, s.C}); }, s);
        right &= show(++version, v.idea, row, apart(y, want));
    }
    return right;
}

static bool matmuls(const Sizes& s) {
    const auto x = normals(size_t(s.N) * s.C, 1), w = normals(size_t(s.OC) * s.C, 2), b = normals(s.OC, 3);
    std::vector<bfloat16> want(size_t(s.N) * s.OC);
    std::vector<std::byte> scratch(cpu::needs_of([&] {
        cpu::matmul_forward(nullptr, nullptr, nullptr, b.data(), s.N, s.C, s.OC);
    }).scratch);
    cpu::lend_scratch(scratch.data(), scratch.size());
    cpu::matmul_forward(want.data(), x.data(), w.data(), b.data(), s.N, s.C, s.OC);
    cpu::lend_scratch(nullptr, 0);
    const OnDevice dx(x), dw(w), db(b);
    bool right = true;
    printf("\nmatmul, N = %d, C = %d, OC = %d\n\n| | | %s |\n", s.N, s.C, s.OC, kColumns);
    int version = 0;
    for (const auto& v : graded::matmul_versions()) {
        const OnDevice out(std::vector<bfloat16>(want.size(), bfloat16(NAN)));
        const std::string row = measured([&] { v.run({out.p, dx.p, dw.p, db.p, s.N, s.C, s.OC}); }, s);
        right &= show(++version, v.idea, row, apart(out, want));
    }
    return right;
}

int main(int argc, char** argv) {
    Sizes l = kLayernorm, m = kMatmul;
    for (int i = 1; i < argc; i++) {
        const std::string a = argv[i], key = a.substr(0, a.find('='));
        const int value = key.size() < a.size() ? atoi(a.c_str() + key.size() + 1) : 0;
        CHECK_INPUT(value > 0 && (key == "--N" || key == "--C" || key == "--OC"), "cuda_graded '{}': "
                    "--N=, --C= or --OC= and a number", a);
        if (key == "--N") l.N = m.N = value;
        if (key == "--C") l.C = m.C = value;
        if (key == "--OC") m.OC = value;
    }
    CHECK_INPUT(l.C % 256 == 0 && m.C % 32 == 0 && m.N % 128 == 0 && m.OC % 128 == 0,
                "N = {}, C = {}, OC = {}: N and OC are multiples of 128, C of 256", m.N, l.C, m.OC);
    context.threads = 2;
    printf("%s\n", cuda::device_name().c_str());
    const bool right = layernorms(l) & matmuls(m);
    return right ? 0 : 1;
}
