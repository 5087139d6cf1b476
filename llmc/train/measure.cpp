#include "llmc/train/measure.h"

#include <algorithm>
#include <chrono>

#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"

namespace PRECISION {

double matmul_tflops() {
    constexpr int n = 1024;
    constexpr ops::ScratchSizes sizes{.N = n, .T = n, .C = n, .NH = n / 64, .D = 64, .F = n,
                                      .chunk = 1, .Vp = n};
    Arena arena;
    floatX *a, *b, *c;
    std::byte* scratch;
    arena.add("a", &a, n * n);
    arena.add("b", &b, n * n);
    arena.add("c", &c, n * n);
    arena.add("scratch", &scratch, ops::scratch_bytes(sizes));
    arena.allocate(ops::device_allocate, ops::device_free);
    ops::lend_scratch(scratch, ops::scratch_bytes(sizes));
    for (int i = 0; i < n * n; i++) a[i] = b[i] = floatX(float(i % 97) / 97);

    double best = 1e30;
    for (int i = 0; i < 4; i++) {
        using clock = std::chrono::steady_clock;
        const auto begin = clock::now();
        ops::matmul_forward(c, a, b, nullptr, n, n, n);
        best = std::min(best, std::chrono::duration<double>(clock::now() - begin).count());
    }
    ops::lend_scratch(nullptr, 0);
    return 2.0 * n * n * n / best / 1e12;
}

}  // namespace PRECISION
