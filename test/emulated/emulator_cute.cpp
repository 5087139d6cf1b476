// The emulated instructions have the fragment layouts of CuTe's traits, an independent source. CuTe's headers
// come from PyPI; without the headers the test is skipped.
#include <cuda_runtime.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "llmc/ops/cuda/ptx.h"
#include "test/emulator/testing.h"
#include "test/test.h"

using emulator::Device;

namespace fs = std::filesystem;
using Tables = std::map<std::string, std::vector<int>>;

// Output of cute/layouts.cpp; empty, with the reason skipped, if the build fails.
static Tables tables_of_cute() {
    const std::string folder = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "cutlass";
    const std::string include = folder + "/cutlass_library/source/include";
    const char* python = getenv("PYTHON") ? getenv("PYTHON") : "python3";
    if (!fs::exists(include))
        test::run(fmt::format("timeout 60 {} dev/pypi.py '{}' nvidia-cutlass==4.2.0.0", python, folder));
    if (!fs::exists(include)) {
        test::skip("nvidia-cutlass cannot be downloaded");
        return {};
    }
    const char* home = getenv("CUDA_HOME") ? getenv("CUDA_HOME") : "/usr/local/cuda";
    if (!fs::exists(std::string(home) + "/include/cuda_runtime.h")) {
        test::skip("no CUDA headers in %s", home);
        return {};
    }
    const std::string program = folder + "/layouts";
    const auto ran = test::run(fmt::format("g++ -std=c++17 -O0 -w test/emulator/cute/layouts.cpp -I'{}' "
                                           "-I'{}/include' -I'{}/include/cccl' -o '{}' && '{}'",
                                           include, home, home, program, program));
    EXPECT(ran.code == 0, "%s", ran.err.substr(0, 1000).c_str());
    Tables tables;
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line); ) {
        std::istringstream words(line);
        std::string name;
        words >> name;
        for (int v; words >> v; ) tables[name].push_back(v);
    }
    return tables;
}

template <class... P, class... A> static void start(void (*kernel)(P...), size_t shared, A... arguments) {
    const cudaError_t error = emulator::start(kernel, 1, 32, shared, nullptr, arguments...);
    EXPECT(error == cudaSuccess, "%s", cudaGetErrorString(error));
}

// Matrices column by column, fragments by CuTe's tables.
static __global__ void multiply(float* d, const bfloat16* a, const bfloat16* b, const int* at_a,
                                const int* at_b, const int* at_c) {
    const int lane = int(threadIdx.x);
    const auto two = [](bfloat16 low, bfloat16 high) { return low.bits | uint32_t(high.bits) << 16; };
    uint32_t fa[4], fb[2];
    for (int i = 0; i < 4; i++) fa[i] = two(a[at_a[8 * lane + 2 * i]], a[at_a[8 * lane + 2 * i + 1]]);
    for (int i = 0; i < 2; i++) fb[i] = two(b[at_b[4 * lane + 2 * i]], b[at_b[4 * lane + 2 * i + 1]]);
    float c[4] = {};
    ptx::mma_bf16(c, fa, fb);
    for (int i = 0; i < 4; i++) d[at_c[4 * lane + i]] = c[i];
}

static __global__ void load(uint32_t* out, const uint16_t* in) {
    DYN_SHARED(uint16_t, tile);
    const int lane = int(threadIdx.x);
    for (int i = 0; i < 8; i++) tile[8 * lane + i] = in[8 * lane + i];
    __syncwarp();
    uint32_t x4[4], x4_trans[4];
    ptx::ldmatrix_x4(x4, tile + 8 * lane);
    ptx::ldmatrix_x4_trans(x4_trans, tile + 8 * lane);
    for (int i = 0; i < 4; i++) out[4 * lane + i] = x4[i], out[128 + 4 * lane + i] = x4_trans[i];
}

TEST(fragments_lie_as_in_cute) {
    const Tables tables = tables_of_cute();
    if (tables.empty()) return;
    std::vector<bfloat16> a(16 * 16), b(8 * 16);
    for (size_t i = 0; i < a.size(); i++) a[i] = bfloat16(float(i * 37 % 17) - 8);
    for (size_t i = 0; i < b.size(); i++) b[i] = bfloat16(float(i * 23 % 19) - 9);
    const Device<bfloat16> da(a), db(b);
    const Device<int> at_a(tables.at("a")), at_b(tables.at("b")), at_c(tables.at("c"));
    const Device<float> d(std::vector<float>(16 * 8));
    start(multiply, 0, d.p, da.p, db.p, at_a.p, at_b.p, at_c.p);
    const auto got = d.host();
    for (size_t m = 0; m < 16; m++)
        for (size_t n = 0; n < 8; n++) {
            float wanted = 0;
            for (size_t k = 0; k < 16; k++) wanted += float(a[m + 16 * k]) * float(b[n + 8 * k]);
            EXPECT(got[m + 16 * n] == wanted, "(%zu, %zu) is %g, not %g", m, n, got[m + 16 * n], wanted);
        }

    std::vector<uint16_t> in(32 * 8);
    for (size_t i = 0; i < in.size(); i++) in[i] = uint16_t(i);
    const Device<uint16_t> source(in);
    const Device<uint32_t> out(std::vector<uint32_t>(256));
    start(load, 512, out.p, source.p);
    const auto registers = out.host();
    struct Load { const char* name; size_t first; };
    for (const Load& l : {Load{"x4", 0}, {"x4_trans", 128}}) {
        const auto& table = tables.at(l.name);
        for (size_t i = 0; i < 256; i++) {
            const uint32_t half = registers[l.first + i / 2] >> 16 * (i & 1) & 0xffff;
            EXPECT(int(half) == table[i] / 16, "%s: half %zu is element %u, in CuTe %d", l.name, i, half,
                   table[i] / 16);
        }
    }
}
