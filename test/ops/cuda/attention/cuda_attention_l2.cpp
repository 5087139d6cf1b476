// Bytes that attention moves between L2 and memory, on 1/32 of an H100 or H200: of 50 MB of L2, of 264 blocks
// at once or of 132 that stay, and of the heads of 64 sequences of GPT-2 124M.
#include "llmc/ops/cuda/attention/attention.h"
#include "test/cuda.h"

namespace PRECISION {

#ifdef CUDA_EMU
static constexpr int kPart = 32, kB = 64 / kPart, kT = 512, kNH = 12, kD = 64;
static constexpr size_t kL2 = (50 << 20) / kPart;
static constexpr size_t kC = kNH * kD, kRows = size_t(kB) * kT;

// The tensors of a layer, rows of q, k and v side by side.
struct Layer {
    const OnDevice<floatX> qkv{std::vector<floatX>(3 * kRows * kC)}, out{std::vector<floatX>(kRows * kC)},
        dout{std::vector<floatX>(kRows * kC)}, dqkv{std::vector<floatX>(3 * kRows * kC)};
    const OnDevice<real> lse{std::vector<real>(kRows * kNH)}, deltas{std::vector<real>(kRows * kNH)};
    const cuda::AttentionDims d = {.B = kB, .Tq = kT, .Tk = kT, .NH = kNH, .D = kD, .q_stride = 3 * kC,
                                   .kv_stride = 3 * kC, .q_offset = 0, .k_offset = 0};
    cuda::AttentionForward forward() const { return {out, lse, qkv, qkv + kC, qkv + 2 * kC}; }
    cuda::AttentionGradients backward() const {
        return {{.dq = dqkv, .dk = dqkv + kC, .dv = dqkv + 2 * kC, .dout = dout, .out = out, .lse = lse,
                 .q = qkv, .k = qkv + kC, .v = qkv + 2 * kC}, deltas};
    }
};

// Bytes between L2 and memory while f() runs, with groups of heads for so much of L2. stay: its blocks do,
// one on each processor.
template <class F> static double memory_bytes(size_t l2, bool stay, F f) {
    const emulator::Settings before = emulator::settings;
    emulator::settings.l2_bytes = kL2, emulator::settings.l2_blocks = (stay ? 132 : 264) / kPart;
    const size_t whole = std::exchange(cuda_device().l2_bytes, l2);
    const int processors = std::exchange(cuda_device().processors, 132 / kPart);
    emulator::reset_counts();
    f();
    emulator::settings = before;
    cuda_device().l2_bytes = whole, cuda_device().processors = processors;
    double bytes = 0;
    for (const auto& [name, count] : emulator::counts()) bytes += double(count.memory_bytes);
    return bytes;
}

// tensors: of (B T, C), which a pass reads or writes
static void expect_once(const char* pass, const auto& variants, int tensors, const auto& inputs,
                        const cuda::AttentionDims& d) {
    const double once = double(tensors) * kRows * kC * sizeof(floatX);
    bool seen[2] = {};                          // the first of each kind
    for (const auto& v : variants) {
        if (!v.supports(kD) || std::exchange(seen[v.wgmma], true)) continue;
        const double grouped = memory_bytes(kL2, v.wgmma, [&] { v.run(inputs, d); });
        EXPECT(grouped >= once && grouped <= 1.05 * once, "%s %s moves %.1f MB, each byte once is %.1f MB",
               pass, v.name, grouped / 1e6, once / 1e6);
        const double apart = memory_bytes(SIZE_MAX, v.wgmma, [&] { v.run(inputs, d); });
        EXPECT(apart > 1.4 * once, "%s %s with all heads in a group: %.1f MB", pass, v.name, apart / 1e6);
    }
}

TEST(keys_and_values_are_read_from_memory_once) {
    if (kAgain) return test::skip("counted by make test");
    const Layer x;
    expect_once("forward", cuda::attention_forward_variants(), 4, x.forward(), x.d);
    expect_once("queries", cuda::attention_queries_variants(), 6, x.backward(), x.d);
    expect_once("keys", cuda::attention_keys_variants(), 6, x.backward(), x.d);
}
#endif

}  // namespace PRECISION
