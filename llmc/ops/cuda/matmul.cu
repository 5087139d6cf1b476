// Every product is cuBLASLt's or plain cuBLAS's, whichever is faster. What surrounds it, bias, GELU and their
// gradients, is an epilogue of cuBLASLt's or a kernel of its own: a variant of the op (matmul.h).
//
// GELU reads the stored, rounded pre-activation in every variant, so that recomputation gives the same bits;
// cuBLASLt's GELU epilogue does not, and is therefore none of them.
#include "llmc/ops/cuda/matmul.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <sstream>

#include "llmc/base/check.h"
#include "llmc/base/progress_page.h"
#include "llmc/ops/cuda/gelu.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/runtime.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/variants.h"

namespace PRECISION {
namespace cuda {

// ---------------------------------------------------------------------------------------------------------
// the ops and their variants

enum class Op { Forward, BiasForward, GeluForward, Input, GeluInput, Weight, WeightBias };
static constexpr const char* kNames[] = {"forward", "bias_forward", "gelu_forward", "input",
                                         "gelu_input", "weight", "weight_bias"};

struct MatmulKey {
    Op op;
    int N, C, OC;
    auto operator<=>(const MatmulKey&) const = default;
};
struct Route {
    int variant;
    GemmAlgorithm algorithm;
};
// What an op works on, by the names of its declaration.
struct Tensors {
    void* out;                      // out, act, dx, dpre, dw
    const floatX *left, *right;     // x and w; dout and w; dout and x
    const floatX* bias = nullptr;
    floatX* pre = nullptr;
    real* db = nullptr;
};

// In each pair the first variant is fused and moves fewer bytes.
static constexpr const char* kVariants[] = {"fused", "unfused"};
static int variants(Op op) {
    return op == Op::BiasForward || op == Op::GeluForward || op == Op::GeluInput || op == Op::WeightBias ? 2
                                                                                                         : 1;
}
static const char* name_of_variant(Op op, int variant) {
    return variants(op) == 1 ? "" : kVariants[variant];
}
// What GPUs of this kind have said of it (verdicts.h).
static Verdict verdict(Op op, int variant) {
    return verdict_here(kNames[int(op)], 0, name_of_variant(op, variant));
}

static Gemm product(const MatmulKey& k, int variant) {
    const DType x = dtype_of<floatX>;
    const bool fused = variant == 0;
    switch (k.op) {
        case Op::Forward:
        case Op::BiasForward:
        case Op::GeluForward:  // out^T = w x^T
            return {.m = k.OC,
                    .n = k.N,
                    .k = k.C,
                    .a_transposed = true,
                    .b_transposed = false,
                    .in = x,
                    .out = x,
                    .accumulate = false,
                    .epilogue = k.op != Op::Forward && fused ? Epilogue::Bias : Epilogue::None};
        case Op::Input:
        case Op::GeluInput:  // dx^T = w^T dout^T
            return {.m = k.C,
                    .n = k.N,
                    .k = k.OC,
                    .a_transposed = false,
                    .b_transposed = false,
                    .in = x,
                    .out = x,
                    .accumulate = false,
                    .epilogue = k.op == Op::GeluInput && fused ? Epilogue::GeluBackward : Epilogue::None};
        case Op::Weight: case Op::WeightBias:                                  // dw^T += x^T dout
            break;
    }
    return {.m = k.C,
            .n = k.OC,
            .k = k.N,
            .a_transposed = false,
            .b_transposed = true,
            .in = x,
            .out = DType::F32,
            .accumulate = true,
            .epilogue = k.op == Op::WeightBias && fused ? Epilogue::BiasGradient : Epilogue::None};
}

static void run(const MatmulKey& k, const Route& r, const Tensors& t) {
    size_t used = 0;
    std::byte* workspace = scratch<std::byte>(kGemmWorkspace, used);
    const bool fused = r.variant == 0;
    // of an op on weights the left operand, dout, is B; of the others it is B as well, w being A
    const bool weight = k.op == Op::Weight || k.op == Op::WeightBias;
    float* gradient = k.op == Op::WeightBias && fused ? scratch<float>(size_t(k.OC), used) : nullptr;
    gemm(product(k, r.variant),
         {.d = k.op == Op::GeluForward ? t.pre : t.out, .a = t.right, .b = t.left,
          .bias = weight ? static_cast<void*>(gradient) : const_cast<floatX*>(t.bias), .aux = t.pre},
         r.algorithm, workspace);
    floatX* out = static_cast<floatX*>(t.out);
    switch (k.op) {
        case Op::BiasForward:
            if (!fused) add_bias(out, t.bias, k.N, k.OC);
            break;
        case Op::GeluForward:
            if (fused) gelu_forward(out, t.pre, size_t(k.N) * k.OC);
            else add_bias_gelu(out, t.pre, t.bias, k.N, k.OC);
            break;
        case Op::GeluInput:
            if (!fused) gelu_backward(out, out, t.pre, size_t(k.N) * k.C);
            break;
        case Op::WeightBias:
            if (fused) add_columns({.out = {t.db, nullptr}, .partial = gradient, .rows = 1, .columns = k.OC});
            else bias_backward(t.db, t.left, k.N, k.OC);
            break;
        default: break;
    }
}

// ---------------------------------------------------------------------------------------------------------
// choices

static std::map<MatmulKey, Route>& routes() {
    thread_local std::map<MatmulKey, Route> of_rank;
    return of_rank;
}

static const Route& route_of(const MatmulKey& k) {
    auto& all = routes();
    const auto found = all.find(k);
    if (found != all.end()) return found->second;
    const int last = variants(k.op) - 1;
    const bool fastest = last > 0 && verdict(k.op, last) == Verdict::Fastest;
    for (int v = fastest ? last : 0; v <= last; v++) {
        const auto& algorithms = gemm_algorithms(product(k, v));
        if (!algorithms.empty() && verdict(k.op, v) != Verdict::Failed) return all[k] = {v, algorithms[0]};
    }
    CHECK(false, "matmul: cuBLASLt has no algorithm for %s, N = %d, C = %d, OC = %d", kNames[int(k.op)], k.N,
          k.C, k.OC);
}

static std::string text_of(const MatmulKey& k) {
    return strf("%s %d %d %d", kNames[int(k.op)], k.N, k.C, k.OC);
}
static std::string text_of(const Route& r) {
    std::string text = strf("%d", r.variant);
    for (const uint64_t word : r.algorithm.words) text += strf(" %016" PRIx64, word);
    return text;
}

std::string matmul_choices() {
    std::string text = header_of("matmul");
    for (const auto& [k, r] : routes()) text += text_of(k) + ' ' + text_of(r) + '\n';
    return text;
}

int use_matmul_choices(const std::string& text) {
    const std::string header = header_of("matmul");
    if (!text.starts_with(header)) return 0;
    std::istringstream lines(text.substr(header.size()));
    int taken = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::string name;
        MatmulKey k;
        Route r;
        fields >> name >> k.N >> k.C >> k.OC >> r.variant >> std::hex;
        for (uint64_t& word : r.algorithm.words) fields >> word;
        const auto* op = std::find(std::begin(kNames), std::end(kNames), name);
        if (!fields || op == std::end(kNames)) continue;
        k.op = Op(op - kNames);
        if (r.variant < 0 || r.variant >= variants(k.op) || verdict(k.op, r.variant) == Verdict::Failed)
            continue;
        routes()[k] = r, taken++;
    }
    return taken;
}

// ---------------------------------------------------------------------------------------------------------
// the ops

static void check_multiples(int C, int OC) {
    CHECK(C % 8 == 0 && OC % 8 == 0, "matmul: C = %d and OC = %d, expected multiples of 8", C, OC);
}
static void run(const MatmulKey& k, const Tensors& t) {
    check_multiples(k.C, k.OC);
    run(k, route_of(k), t);
}

void matmul_forward(floatX* out, const floatX* x, const floatX* w, const floatX* bias, int N, int C, int OC) {
    run({bias ? Op::BiasForward : Op::Forward, N, C, OC}, {.out = out, .left = x, .right = w, .bias = bias});
}

void matmul_gelu_forward(floatX* act, floatX* pre, const floatX* x, const floatX* w, const floatX* bias,
                         int N, int C, int OC) {
    if (bias)
        return run({Op::GeluForward, N, C, OC},
                   {.out = act, .left = x, .right = w, .bias = bias, .pre = pre});
    matmul_forward(pre, x, w, nullptr, N, C, OC);
    gelu_forward(act, pre, size_t(N) * OC);
}

void matmul_backward_input(floatX* dx, const floatX* dout, const floatX* w, int N, int C, int OC) {
    run({Op::Input, N, C, OC}, {.out = dx, .left = dout, .right = w});
}

void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* w, const floatX* pre, int N,
                                int C, int OC) {
    run({Op::GeluInput, N, C, OC}, {.out = dpre, .left = dout, .right = w, .pre = const_cast<floatX*>(pre)});
}

void matmul_backward_weight(real* dw, const floatX* dout, const floatX* x, int N, int C, int OC) {
    run({Op::Weight, N, C, OC}, {.out = dw, .left = dout, .right = x});
}

void matmul_backward_weight_bias(real* dw, real* db, const floatX* dout, const floatX* x, int N, int C,
                                 int OC) {
    run({Op::WeightBias, N, C, OC}, {.out = dw, .left = dout, .right = x, .db = db});
}

size_t matmul_scratch(const ScratchSizes& s) {
    const int widest = std::max({3 * s.C, s.F, s.Vp});
    return kGemmWorkspace + scratch_size(size_t(widest) * sizeof(float));
}

// ---------------------------------------------------------------------------------------------------------
// tuning

// A: channels of this rank's heads. One path of tensor parallelism: C -> 3A, A -> C, C -> F, F -> C.
static std::vector<MatmulKey> matmuls_of(const ScratchSizes& s) {
    const int N = s.N, C = s.C, A = s.NH * s.D, F = s.F;
    std::vector<MatmulKey> keys = {{Op::BiasForward, N, C, 3 * A}, {Op::Forward, N, A, C},
                             {Op::GeluForward, N, C, F},     {Op::Forward, N, F, C},
                             {Op::WeightBias, N, C, 3 * A},  {Op::Weight, N, A, C},
                             {Op::WeightBias, N, C, F},      {Op::Weight, N, F, C},
                             {Op::Input, N, C, 3 * A},       {Op::Input, N, A, C},
                             {Op::Input, N, C, F},           {Op::GeluInput, N, F, C}};
    for (const Op op : {Op::Forward, Op::Input, Op::Weight})
        keys.push_back({op, std::min(N, s.chunk), C, s.Vp});
    return keys;
}

bool matmul_tuned(const ScratchSizes& s) {
    const auto keys = matmuls_of(s);
    return std::all_of(keys.begin(), keys.end(), [](const MatmulKey& k) { return routes().contains(k); });
}

// Two operands, the result in FP32, and the pre-activation, each as large as the largest there is.
static size_t largest_tensor(const ScratchSizes& s) {
    size_t most = 0;
    for (const MatmulKey& k : matmuls_of(s))
        most = std::max({most, size_t(k.N) * k.C, size_t(k.N) * k.OC, size_t(k.C) * k.OC});
    return scratch_size(most * sizeof(float));
}

size_t matmul_tuning_bytes(const ScratchSizes& s) { return 5 * largest_tensor(s); }

std::vector<MatmulTiming> matmul_tune(const ScratchSizes& s, void* memory, int repeats) {
    const size_t each = largest_tensor(s);
    std::byte* p = static_cast<std::byte*>(memory);
    fill_with_normals(p, 4 * each);
    const auto tensor = [&](int i) { return reinterpret_cast<floatX*>(p + size_t(i) * each); };
    const Tensors t = {.out = tensor(4),
                       .left = tensor(0),
                       .right = tensor(1),
                       .bias = tensor(2),
                       .pre = tensor(3),
                       .db = reinterpret_cast<real*>(tensor(2))};
    std::vector<MatmulTiming> timings;
    for (const MatmulKey& k : matmuls_of(s)) {
        float best = 0;
        for (int v = 0; v < variants(k.op); v++) {
            if (verdict(k.op, v) == Verdict::Failed) continue;
            const auto& algorithms = gemm_algorithms(product(k, v));
            for (size_t i = 0; i < algorithms.size(); i++) {
                const Route r = {v, algorithms[i]};
                set_zero(tensor(4), each);
                const float time = microseconds([&] { run(k, r, t); }, repeats);
                beat();
                timings.push_back({.what = text_of(k), .variant = name_of_variant(k.op, v),
                                   .algorithm = int(i), .plain = algorithms[i] == kPlainCublas,
                                   .microseconds = time,
                                   .choice = text_of(k) + ' ' + text_of(r)});
                if (best == 0 || time < best) best = time, routes()[k] = r;
            }
        }
    }
    return timings;
}

// ---------------------------------------------------------------------------------------------------------
// trial

size_t matmul_trial_bytes(const ScratchSizes& s) { return 7 * largest_tensor(s); }

// The beginning of a result; BF16 is off by some 2^-9, FP32 by the order of its sums.
template <class T>
static void expect_close(Trial& trial, const MatmulKey& k, const char* tensor, const T* values,
                         const T* simple, size_t count) {
    const size_t some = std::min(count, size_t(1) << 18);
    trial.expect(text_of(k), tensor, apart(wide(values, some), wide(simple, some)),
                 sizeof(floatX) == 2 ? 1e-2 : 1e-3);
}

void matmul_try(const ScratchSizes& s, void* memory) {
    const size_t each = largest_tensor(s);
    std::byte* p = static_cast<std::byte*>(memory);
    fill_with_normals(p, 4 * each);
    const auto tensor = [&](int i) { return reinterpret_cast<floatX*>(p + size_t(i) * each); };
    Trial trial;
    for (const MatmulKey& k : matmuls_of(s)) {
        set_zero(tensor(4), 3 * each);              // weights' gradients are added to
        real* const db = reinterpret_cast<real*>(tensor(6));
        const size_t bias = scratch_size(size_t(k.OC) * sizeof(real)) / sizeof(real);
        Tensors t = {.out = tensor(4), .left = tensor(0), .right = tensor(1), .bias = tensor(2),
                     .pre = tensor(3), .db = db};
        run(k, route_of(k), t);
        t.out = tensor(5), t.db = db + bias;
        run(k, {variants(k.op) - 1, kPlainCublas}, t);
        const bool input = k.op == Op::Input || k.op == Op::GeluInput;
        const size_t count = size_t(k.N) * size_t(input ? k.C : k.OC);
        if (k.op != Op::Weight && k.op != Op::WeightBias)
            expect_close(trial, k, "product", tensor(4), tensor(5), count);
        else expect_close(trial, k, "product", reinterpret_cast<real*>(tensor(4)),
                          reinterpret_cast<real*>(tensor(5)), size_t(k.C) * size_t(k.OC));
        if (k.op == Op::WeightBias) expect_close(trial, k, "bias", db, db + bias, size_t(k.OC));
    }
    trial.end();
}

}  // namespace cuda
}  // namespace PRECISION
