// A product is cuBLASLt's, plain cuBLAS's, or on Hopper a kernel of ours, whichever is faster. Bias,
// activation and their gradients are in the product's kernel or in one of their own: candidates of the op
// (choices.h).
//
// An activation reads the stored, rounded pre-activation in every candidate, so that recomputation gives the
// same bits. cuBLASLt's GELU epilogue reads the sum before rounding: no candidate uses the epilogue.
#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/ops/cuda/products/activation.h"
#include "llmc/ops/cuda/products/fused_products.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/tuning/workload.h"

namespace PRECISION {
namespace cuda {

// ---------------------------------------------------------------------------------------------------------
// candidates

// Fused candidates move fewer bytes.
static constexpr const char *kFused = "fused", *kUnfused = "unfused";
static bool is_fused(const Candidate& c) { return c.kernel == kFused; }

static const std::vector<FusedProduct>& own_products() {
    static const std::vector<FusedProduct> all = [] {
        std::vector<FusedProduct> both = wgmma_forward_products();
        for (const FusedProduct& p : wgmma_backward_products()) both.push_back(p);
        return both;
    }();
    return all;
}
// Of this name; null: none here.
static const FusedProduct* own_product(const Task& task, const std::string& name) {
    for (const FusedProduct& p : own_products())
        if (p.op == task.op && p.name == name && task.sizes[3] == 0 && p.supports()) return &p;
    return nullptr;
}

std::string product_kernels() {
    std::string names = fmt::format("{} {}", kFused, kUnfused);
    for (const FusedProduct& p : own_products()) names += fmt::format(" {}:{}", int(p.op), p.name);
    return names;
}

static std::optional<Activation> activation_of(Op op) {
    if (op == Op::GeluForward || op == Op::GeluInput) return Activation::Gelu;
    if (op == Op::Relu2Forward || op == Op::Relu2Input) return Activation::Relu2;
    if (op == Op::SwigluForward || op == Op::SwigluInput) return Activation::Swiglu;
    return {};
}
Op forward_op(std::optional<Activation> f, bool bias) {
    if (f == Activation::Gelu && bias) return Op::GeluForward;
    if (f == Activation::Relu2 && !bias) return Op::Relu2Forward;
    if (f == Activation::Swiglu && !bias) return Op::SwigluForward;
    return bias ? Op::BiasForward : Op::Forward;
}
Op input_op(std::optional<Activation> f) {
    if (!f) return Op::Input;
    if (f == Activation::Gelu) return Op::GeluInput;
    return f == Activation::Relu2 ? Op::Relu2Input : Op::SwigluInput;
}
static bool is_gated(Op op) { return activation_of(op) && has_gate(*activation_of(op)); }

static bool has_epilogue(Op op) {
    return op == Op::BiasForward || op == Op::GeluForward || op == Op::GeluInput || op == Op::WeightBias ||
           op == Op::Fp8BiasForward;
}
static bool is_input(Op op) { return Op::Input <= op && op <= Op::SwigluInput; }
static bool is_activated(Op op) { return activation_of(op) && !is_input(op); }
static bool is_weight(Op op) { return op == Op::Weight || op == Op::WeightBias; }
static bool is_fp8(Op op) { return op == Op::Fp8Forward || op == Op::Fp8BiasForward || op == Op::Fp8Input; }

static Gemm gemm_of(const Task& task, bool fused) {
    const auto [N, C, OC, batch] = task.sizes;
    Gemm g = {.m = OC, .n = N, .k = C, .a_transposed = true, .b_transposed = false,     // out^T = w x^T
              .in = dtype_of<floatX>, .out = dtype_of<floatX>, .accumulate = false,
              .epilogue = Epilogue::None};
    if (is_activated(task.op)) g.m = pre_width(*activation_of(task.op), OC);
    if (is_input(task.op)) g.m = C, g.k = OC, g.a_transposed = false;                   // dx^T = w^T dout^T
    if (is_weight(task.op)) {                                                           // dw^T += x^T dout
        g.m = C, g.n = OC, g.k = N, g.a_transposed = false, g.b_transposed = true;
        g.out = DType::F32, g.accumulate = true;
    }
    if (is_fp8(task.op)) {
        g.in = DType::E4M3;
        g.in_b = task.op == Op::Fp8Input ? DType::E5M2 : DType::E4M3;
    }
    g.batch = std::max(1, batch);
    if (fused && has_epilogue(task.op))
        g.epilogue = is_weight(task.op)  ? Epilogue::BiasGradient
                     : is_input(task.op) ? Epilogue::GeluBackward
                                         : Epilogue::Bias;
    return g;
}

std::vector<Candidate> product_candidates(const Task& task) {
    std::vector<Candidate> candidates;
    for (const bool fused : {true, false})
        if (!fused || has_epilogue(task.op))
            for (const GemmAlgorithm& algorithm : gemm_algorithms(gemm_of(task, fused)))
                candidates.push_back({fused ? kFused : kUnfused, algorithm});
    for (const FusedProduct& p : own_products())
        if (own_product(task, p.name) == &p) candidates.push_back({p.name});
    return candidates;
}

static Candidate candidate_for(const Task& task) {
    const Candidate* const chosen = chosen_for(task);
    const bool ours = chosen && !is_fused(*chosen) && chosen->kernel != kUnfused;
    if (chosen && (!ours || own_product(task, chosen->kernel))) return *chosen;
    for (const bool fused : {true, false}) {
        if (fused && !has_epilogue(task.op)) continue;
        const auto& algorithms = gemm_algorithms(gemm_of(task, fused));
        if (!algorithms.empty()) return {fused ? kFused : kUnfused, algorithms[0]};
    }
    CHECK(false, "matmul: cuBLASLt has no algorithm for {}", text_of(task));
}

// ---------------------------------------------------------------------------------------------------------
// the ops

// What an op works on, by the names of its declaration.
struct Tensors {
    void* out;                      // out, act, dx, dpre, dw
    const void *left, *right;       // x and w; dout and w; dout and x
    const floatX* bias = nullptr;
    floatX* pre = nullptr;
    floatX* dact = nullptr;         // workspace, of a gate's backward
    real* db = nullptr;             // of a weight's, or an activation's, bias
    const float *left_scale = nullptr, *right_scale = nullptr;      // of FP8 codes
};

// Of the bias in pre, from dpre.
static void run_bias_backward(const Task& task, const Tensors& t) {
    const auto [N, C, OC, batch] = task.sizes;
    const Unrecorded op;
    bias_backward(t.db, static_cast<const floatX*>(t.out), N, pre_width(*activation_of(task.op), C));
}

// Behind a product by cuBLASLt: what its epilogue has not done.
static void run_rest(const Task& task, bool fused, const Tensors& t, const float* bias_gradient) {
    const auto [N, C, OC, batch] = task.sizes;
    floatX* const out = static_cast<floatX*>(t.out);
    const bool gated = is_gated(task.op);
    switch (task.op) {
        case Op::BiasForward:
        case Op::Fp8BiasForward:
            if (!fused) add_bias(out, t.bias, N, OC);
            break;
        case Op::GeluForward:
            if (!fused) return add_bias_gelu(out, t.pre, t.bias, N, OC);
            [[fallthrough]];
        case Op::Relu2Forward:
        case Op::SwigluForward:
            activation_forward(out, t.pre, *activation_of(task.op), N, OC);
            break;
        case Op::GeluInput:
        case Op::Relu2Input:
        case Op::SwigluInput:
            if (!fused)
                activation_backward(out, gated ? t.dact : out, t.pre, *activation_of(task.op), N, C);
            if (t.db) run_bias_backward(task, t);
            break;
        case Op::WeightBias:
            if (fused) add_columns({.out = {t.db, nullptr}, .partial = bias_gradient, .rows = 1,
                                    .columns = OC});
            else bias_backward(t.db, static_cast<const floatX*>(t.left), N, OC);
            break;
        default: break;
    }
}

static void run(const Task& task, const Candidate& candidate, const Tensors& t) {
    const auto [N, C, OC, batch] = task.sizes;
    if (const FusedProduct* const own = own_product(task, candidate.kernel)) {
        const bool input = is_input(task.op);
        const bool sums = input && t.db && own->sums_columns;
        float* const partial = sums ? scratch<float>(tile_sums(N, size_t(C)) / sizeof(float)) : nullptr;
        own->run({.left = static_cast<const floatX*>(t.left), .right = static_cast<const floatX*>(t.right),
                  .out = static_cast<floatX*>(t.out), .pre = t.pre, .bias = t.bias, .N = N,
                  .width = input ? C : OC, .column_sums = partial}, input ? OC : C);
        if (sums) add_columns({.out = {t.db}, .partial = partial, .rows = tile_sum_rows(N), .columns = C});
        else if (input && t.db) run_bias_backward(task, t);
        return;
    }
    size_t used = 0;
    std::byte* workspace = scratch<std::byte>(kGemmWorkspace, used);
    const bool fused = is_fused(candidate);
    float* gradient = task.op == Op::WeightBias && fused ? scratch<float>(size_t(OC), used) : nullptr;
    void* product = t.out;
    if (is_activated(task.op)) product = t.pre;
    else if (is_gated(task.op)) product = t.dact;
    const Unrecorded each;
    gemm(gemm_of(task, fused),
         {.d = product, .a = t.right, .b = t.left,
          .bias = is_weight(task.op) ? static_cast<void*>(gradient) : const_cast<floatX*>(t.bias),
          .aux = t.pre, .a_scale = t.right_scale, .b_scale = t.left_scale},
         candidate.algorithm, workspace);
    run_rest(task, fused, t, gradient);
}

// Called before the op asks whether it only walks, so that --plan reports the same error as a run.
static void check_sides(int C, int OC) {
    constexpr int unit = kThisDevice.product_unit();
    CHECK(C % unit == 0 && OC % unit == 0, "matmul: C = {} and OC = {}, expected multiples of {}", C, OC,
          unit);
}

static void run(Op op, int N, int C, int OC, const Tensors& t, int count = 1) {
    const Task task = {op, {N, C, OC, count > 1 ? count : 0}};
    if (N > 0) run(task, candidate_for(task), t);
}

void matmul_forward(floatX* out, const floatX* x, const floatX* w, const floatX* bias, int N, int C, int OC) {
    check_sides(C, OC);
    if (walked(matmul_forward_cost, N, C, OC, bias != nullptr)) return;
    run(bias ? Op::BiasForward : Op::Forward, N, C, OC, {.out = out, .left = x, .right = w, .bias = bias});
}

void matmul_activation_forward(floatX* act, floatX* pre, const floatX* x, const floatX* w, const floatX* bias,
                               Activation f, int N, int C, int F) {
    check_sides(C, F);
    if (walked(matmul_activation_forward_cost, f, N, C, F, bias != nullptr)) return;
    const Op op = forward_op(f, bias != nullptr);
    if (activation_of(op) == f)
        return run(op, N, C, F, {.out = act, .left = x, .right = w, .bias = bias, .pre = pre});
    const Unrecorded each;
    matmul_forward(pre, x, w, bias, N, C, pre_width(f, F));
    activation_forward(act, pre, f, N, F);
}

void matmul_backward_input(floatX* dx, const floatX* dout, const floatX* w, int N, int C, int OC) {
    check_sides(C, OC);
    if (walked(matmul_backward_input_cost, N, C, OC)) return;
    run(Op::Input, N, C, OC, {.out = dx, .left = dout, .right = w});
}

void matmul_activation_backward_input(floatX* dpre, floatX* dact, const floatX* dout, const floatX* w,
                                      const floatX* pre, Activation f, int N, int F, int OC, real* dbias) {
    check_sides(F, OC);
    if (walked(matmul_activation_backward_input_cost, f, N, F, OC, dbias != nullptr)) return;
    run(input_op(f), N, F, OC,
        {.out = dpre, .left = dout, .right = w, .pre = const_cast<floatX*>(pre), .dact = dact, .db = dbias});
}

void matmul_backward_weight(real* dw, const floatX* dout, const floatX* x, int N, int C, int OC) {
    check_sides(C, OC);
    if (walked(matmul_backward_weight_cost, N, C, OC)) return;
    run(Op::Weight, N, C, OC, {.out = dw, .left = dout, .right = x});
}

void matmul_backward_weight_bias(real* dw, real* db, const floatX* dout, const floatX* x, int N, int C,
                                 int OC) {
    if (!db) return matmul_backward_weight(dw, dout, x, N, C, OC);
    check_sides(C, OC);
    if (walked(matmul_backward_weight_bias_cost, N, C, OC)) return;
    run(Op::WeightBias, N, C, OC, {.out = dw, .left = dout, .right = x, .db = db});
}

void matmul_forward_batch(floatX* out, const floatX* x, const floatX* w, int N, int C, int OC, int count) {
    check_sides(C, OC);
    if (walked(matmul_forward_batch_cost, N, C, OC, count)) return;
    run(Op::Forward, N, C, OC, {.out = out, .left = x, .right = w}, count);
}

void matmul_backward_input_batch(floatX* dx, const floatX* dout, const floatX* w, int N, int C, int OC,
                                 int count) {
    check_sides(C, OC);
    if (walked(matmul_backward_input_batch_cost, N, C, OC, count)) return;
    run(Op::Input, N, C, OC, {.out = dx, .left = dout, .right = w}, count);
}

void matmul_backward_weight_batch(real* dw, const floatX* dout, const floatX* x, int N, int C, int OC,
                                  int count) {
    check_sides(C, OC);
    if (walked(matmul_backward_weight_batch_cost, N, C, OC, count)) return;
    run(Op::Weight, N, C, OC, {.out = dw, .left = dout, .right = x}, count);
}

std::string no_fp8() {
    const int arch = cuda_device().arch;
    if (arch >= 89) return "";
    return fmt::format("{} has compute capability {}.{}, products of FP8 need 8.9", device_name(), arch / 10,
                       arch % 10);
}

void matmul_fp8(floatX* out, const Fp8Matrix& x, const Fp8Matrix& w, const floatX* bias, int N, int C,
                int OC) {
    CHECK(C % kFp8Unit == 0 && OC % kFp8Unit == 0 && N % kFp8Unit == 0,
          "matmul_fp8: N = {}, C = {} and OC = {}, expected multiples of {}", N, C, OC, kFp8Unit);
    CHECK(w.format == Fp8::E4M3, "matmul_fp8: w in E5M2, expected E4M3");
    CHECK(x.format == Fp8::E4M3 || !bias, "matmul_fp8: gradients with a bias");
    if (walked(matmul_fp8_cost, x.format, N, C, OC, bias != nullptr)) return;
    const Op forward = bias ? Op::Fp8BiasForward : Op::Fp8Forward;
    run(x.format == Fp8::E5M2 ? Op::Fp8Input : forward, N, C, OC,
        {.out = out, .left = x.codes, .right = w.codes, .bias = bias, .left_scale = x.inverse,
         .right_scale = w.inverse});
}

// ---------------------------------------------------------------------------------------------------------
// tuning

// The expected result is the product of the tensors before their rounding to codes, which is off by 2^-5 or,
// of E5M2, 2^-4.
static Workload fp8_workload(const Task& task, void* memory, bool compares) {
    const auto [N, C, OC, batch] = task.sizes;
    const size_t narrow = size_t(N) * C, weights = size_t(OC) * C, wide = size_t(N) * OC, bias = size_t(OC);
    floatX *t_x, *t_w, *t_bias, *out, *expected = nullptr;
    Fp8Matrix x = {.codes = nullptr, .inverse = nullptr,
               .format = task.op == Op::Fp8Input ? Fp8::E5M2 : Fp8::E4M3};
    Fp8Matrix codes_w = {.codes = nullptr, .inverse = nullptr, .format = Fp8::E4M3};
    float* amaxes;
    Workload w;
    w.take(memory, t_x, narrow), w.take(memory, t_w, weights), w.take(memory, t_bias, bias);
    w.take(memory, x.codes, narrow), w.take(memory, codes_w.codes, weights);
    w.take(memory, x.inverse, 1), w.take(memory, codes_w.inverse, 1), w.take(memory, amaxes, kFp8Parts);
    w.take(memory, out, wide);
    if (compares) w.take(memory, expected, wide);
    w.fill = [=] {
        fill_with_normals(t_x, narrow), fill_with_normals(t_w, weights), fill_with_normals(t_bias, bias);
        largest(amaxes, t_x, narrow);
        quantize(x, nullptr, t_x, amaxes, kFp8Parts, N, C);
        largest(amaxes, t_w, weights);
        quantize(codes_w, nullptr, t_w, amaxes, kFp8Parts, OC, C);
        set_zero(out, wide * sizeof(floatX));
    };
    w.run = [=](const Candidate& candidate) {
        run(task, candidate, {.out = out, .left = x.codes, .right = codes_w.codes, .bias = t_bias,
                              .left_scale = x.inverse, .right_scale = codes_w.inverse});
    };
    w.run_simplest = [=] {
        const Op op = task.op == Op::Fp8BiasForward ? Op::BiasForward : Op::Forward;
        run({op, task.sizes}, {kUnfused, kPlainCublas},
            {.out = expected, .left = t_x, .right = t_w, .bias = t_bias});
    };
    w.comparisons.push_back({"product", out, expected, dtype_of<floatX>, size_t(N), bias, bias, 0.1});
    return w;
}

Workload product_workload(const Task& task, void* memory, bool compares) {
    if (is_fp8(task.op)) return fp8_workload(task, memory, compares);
    const auto [N, C, OC, batch] = task.sizes;
    const bool input = is_input(task.op), weight = is_weight(task.op);
    const size_t each = size_t(std::max(1, batch)), parts = is_gated(task.op) ? 2 : 1;
    const size_t narrow = each * N * C, wide = each * N * OC;
    const size_t weights = each * OC * C * (input ? 1 : parts);
    const size_t left = input || weight ? wide : narrow, right = weight ? narrow : weights;
    const size_t features = input ? narrow : wide, pre = features * parts, bias = size_t(input ? C : OC);
    const size_t count = weight ? weights : input ? pre : wide;
    const size_t out_bytes = count * (weight ? sizeof(float) : sizeof(floatX));
    floatX *t_left, *t_right, *t_bias, *t_pre, *t_dact;
    std::byte *out, *expected = nullptr;
    real *db, *expected_db = nullptr;
    Workload w;
    w.take(memory, t_left, left), w.take(memory, t_right, right);
    w.take(memory, t_bias, bias), w.take(memory, t_pre, pre), w.take(memory, t_dact, features);
    w.take(memory, out, out_bytes), w.take(memory, db, bias);
    if (compares) w.take(memory, expected, out_bytes), w.take(memory, expected_db, bias);

    const bool biased = task.op == Op::BiasForward || task.op == Op::GeluForward;
    // GELU's layers have biases, as GPT-2's
    const bool sums = task.op == Op::GeluInput || task.op == Op::WeightBias;
    const Tensors tensors = {.out = out, .left = t_left, .right = t_right,
                             .bias = biased ? t_bias : nullptr, .pre = t_pre, .dact = t_dact,
                             .db = sums ? db : nullptr};
    w.fill = [=] {
        fill_with_normals(t_left, left), fill_with_normals(t_right, right);
        fill_with_normals(t_bias, bias), fill_with_normals(t_pre, pre);
        set_zero(out, out_bytes), set_zero(db, bias * sizeof(real));
        if (compares) set_zero(expected, out_bytes), set_zero(expected_db, bias * sizeof(real));
    };
    w.run = [=](const Candidate& candidate) { run(task, candidate, tensors); };
    w.run_simplest = [=] {
        Tensors t = tensors;
        t.out = expected, t.db = sums ? expected_db : nullptr;
        run(task, {kUnfused, kPlainCublas}, t);
    };
    // BF16 is off by some 2^-9, FP32 by the order of its sums
    const double tolerance = sizeof(floatX) == 2 ? 1e-2 : 1e-3;
    const size_t columns = weight ? size_t(C) : input ? parts * C : size_t(OC);
    w.comparisons.push_back({"product", out, expected, weight ? DType::F32 : dtype_of<floatX>,
                             count / columns, columns, columns, tolerance});
    if (sums)
        w.comparisons.push_back({"bias", db, expected_db, DType::F32, 1, bias, bias, tolerance});
    return w;
}

}  // namespace cuda
}  // namespace PRECISION
