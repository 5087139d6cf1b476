// Times every operation at the sizes of one step of GPT-2 124M, and what a step is made of.
//
//     bench_ops [--json=FILE] [--B=4 --T=256] [--chunk=256] [--threads=N] [fp32 bf16 fp64]
//
// Rates are compared with the matmul rate (the step's own products by oneDNN, each in its best layout and chunking:
// total FLOPs over total time) and with the copy rate, both of the same run.
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/json.h"
#include "llmc/base/machine.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/cpu/dnnl.h"
#include "llmc/ops/ops.h"

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)

struct Options {
    int B = 4, T = 256, chunk = 256, threads = 0;
    std::string json;
    std::vector<std::string> precisions;
};
struct Bench { const char* precision; void (*run)(const Options&, FILE*); };
inline std::vector<Bench> benches;

namespace PRECISION {
namespace {

constexpr const char* kName = TEXT_OF(PRECISION);
constexpr int L = 12, C = 768, NH = 12, D = 64, F = 3072, V = 50257, Vp = 50304;
constexpr double kParameters = 124439808;
constexpr size_t kFlat = 16 << 20;              // elements that the optimizer's operations are timed on
constexpr int kTypeSize = int(sizeof(floatX)), kRealSize = int(sizeof(real));

double seconds_of(const std::function<void()>& f) {
    using clock = std::chrono::steady_clock;
    double best = 1e30, total = 0;
    for (int i = 0; i < 100 && (i < 4 || total < 0.3); i++) {
        const auto begin = clock::now();
        f();
        const double s = std::chrono::duration<double>(clock::now() - begin).count();
        best = std::min(best, s), total += s;
    }
    return best;
}

struct Row {
    std::string name;
    double calls, flops, bytes;                 // flops: of a product, else bytes moved
    std::function<void()> f;
    double seconds = 0;
};

struct Tensors {
    Arena arena;
    int32_t* tokens;
    floatX *x, *r, *y, *wide, *wide2, *w, *bias, *logits, *flat_x;
    real *mean, *rstd, *lse, *dw, *db, *losses, *flat[4];
    std::byte* scratch;

    Tensors(int N, int T, int chunk) {
        const ops::ScratchSizes sizes{.N = N, .T = T, .C = C, .NH = NH, .D = D, .F = F, .chunk = chunk, .Vp = Vp};
        const size_t n = size_t(N);
        arena.add("tokens", &tokens, n);
        for (floatX** p : {&x, &r, &y}) arena.add("stream", p, n * C);
        for (floatX** p : {&wide, &wide2}) arena.add("wide", p, n * F);
        arena.add("weights", &w, size_t(Vp) * C);
        arena.add("weights", &bias, F);
        arena.add("logits", &logits, n * Vp);
        for (real** p : {&mean, &rstd, &losses}) arena.add("statistics", p, n);
        arena.add("statistics", &lse, n * NH);
        arena.add("gradients", &dw, size_t(Vp) * C);
        arena.add("gradients", &db, F);
        for (real*& p : flat) arena.add("optimizer", &p, kFlat);
        arena.add("optimizer", &flat_x, kFlat);
        arena.add("scratch", &scratch, ops::scratch_bytes(sizes));
        arena.allocate(ops::device_allocate, ops::device_free);
        ops::lend_scratch(scratch, ops::scratch_bytes(sizes));
        ops::warm_up(sizes);
        uint32_t h = 1;
        const auto next = [&h] { return h = h * 1664525 + 1013904223; };
        const auto fill = [&](floatX* p, size_t count, float scale) {
            for (size_t i = 0; i < count; i++) p[i] = floatX(scale * (int(next() >> 16) - 32768) / 32768.f);
        };
        for (size_t i = 0; i < n; i++) tokens[i] = int32_t((next() >> 8) % V);
        for (floatX* p : {x, r, y}) fill(p, n * C, 1);
        for (floatX* p : {wide, wide2}) fill(p, n * F, 1);
        fill(w, size_t(Vp) * C, 0.04f), fill(bias, F, 1), fill(logits, size_t(chunk) * Vp, 2);
        for (size_t i = 0; i < n; i++) rstd[i] = real(1);
        for (size_t i = 0; i < kFlat; i++) flat[3][i] = real(next() >> 8) * real(1e-9);
    }
    ~Tensors() { ops::lend_scratch(nullptr, 0); }
};

void products(std::vector<Row>& rows, const Tensors& t, int N, int chunk) {
    struct Linear { const char* name; int in, out, n; double calls; };
    for (const auto& [name, in, out, n, calls] : {Linear{"qkv", C, 3 * C, N, L}, {"attproj", C, C, N, L}, {"fc", C, F, N, L},
                                                  {"fcproj", F, C, N, L}, {"head", C, Vp, chunk, double(N) / chunk}}) {
        const bool fc = !strcmp(name, "fc"), fcproj = !strcmp(name, "fcproj"), head = !strcmp(name, "head");
        const double flops = 2.0 * n * in * out;
        const floatX* x = in == F ? t.wide : t.x;
        floatX* out_x = head ? t.logits : out == C ? t.y : t.wide2;
        const std::string s = name;
        rows.push_back({s + (fc ? " + gelu" : ""), calls, flops, 0, [=, &t] {
            if (fc) ops::matmul_gelu_forward(t.wide, t.wide2, x, t.w, t.bias, n, in, out);
            else ops::matmul_forward(out_x, x, t.w, head ? nullptr : t.bias, n, in, out);
        }});
        const floatX* dout = out == C ? t.r : out_x;
        rows.push_back({s + " dx" + (fcproj ? " + gelu'" : ""), calls, flops, 0, [=, &t] {
            if (fcproj) ops::matmul_gelu_backward_input(t.wide, dout, t.w, t.wide2, n, in, out);
            else ops::matmul_backward_input(t.y, dout, t.w, n, in, out);
        }});
        rows.push_back({s + " dw", calls, flops, 0, [=, &t] { ops::matmul_backward_weight(t.dw, dout, x, n, in, out); }});
        if (!head) rows.push_back({s + " db", calls, 0, double(n) * out * kTypeSize, [=, &t] { ops::bias_backward(t.db, dout, n, out); }});
    }
}

void layers(std::vector<Row>& rows, Tensors& t, int B, int T) {
    const int N = B * T;
    const ops::AttentionDims d{.B = B, .Tq = T, .Tk = T, .NH = NH, .D = D, .q_stride = 3 * C, .kv_stride = 3 * C, .q_offset = 0, .k_offset = 0};
    const double pairs = 2.0 * N * (T + 1) * C;            // FLOPs of q k^T and p v under the mask
    const floatX* qkv = t.wide2;
    rows.push_back({"attention", L, pairs, 0, [&t, d, qkv] { ops::attention_forward(t.y, t.lse, qkv, qkv + C, qkv + 2 * C, d); }});
    rows.push_back({"attention backward", L, 2.5 * pairs, 0, [&t, d, qkv] {
        ops::attention_backward({.dq = t.wide, .dk = t.wide + C, .dv = t.wide + 2 * C, .dout = t.r, .out = t.y, .lse = t.lse,
                                 .q = qkv, .k = qkv + C, .v = qkv + 2 * C}, d);
    }});
    rows.push_back({"layernorm + residual", 2 * L + 1, 0, 4.0 * N * C * kTypeSize, [&t, N] {
        ops::layernorm_forward({.x1 = t.y, .y = t.wide, .mean = t.mean, .rstd = t.rstd, .x = t.x, .r = t.r, .bias = t.bias,
                                .w = t.w, .b = t.bias}, N, C);
    }});
    rows.push_back({"layernorm backward", 2 * L + 1, 0, 4.0 * N * C * kTypeSize, [&t, N] {
        ops::layernorm_backward(t.y, t.dw, t.db, t.r, t.x, t.w, t.mean, t.rstd, N, C);
    }});
    const ops::Encoder e{.tokens = t.tokens, .v0 = 0, .V = V, .N = N, .T = T, .C = C, .t0 = 0};
    rows.push_back({"encoder", 1, 0, 3.0 * N * C * kTypeSize, [&t, e] { ops::encoder_forward(t.y, t.w, t.w, e); }});
    rows.push_back({"encoder backward", 1, 0, double(N) * C * (kTypeSize + 4 * kRealSize), [&t, e] {
        ops::encoder_backward(t.dw, t.dw, t.r, e);
    }});
}

void rest(std::vector<Row>& rows, Tensors& t, int N, int chunk) {
    rows.push_back({"classifier", double(N) / chunk, 0, 2.0 * chunk * Vp * kTypeSize, [&t, chunk] {
        ops::classifier_forward_backward(t.losses, t.logits, t.tokens, real(1e-3), chunk, V, Vp);
    }});
    const double parts = kParameters / kFlat;
    rows.push_back({"gradients to zero", parts, 0, double(kFlat) * kRealSize, [&t] { ops::set_zero(t.flat[3], kFlat * sizeof(real)); }});
    rows.push_back({"gradient norm", parts, 0, double(kFlat) * kRealSize, [&t] { ops::sum_of_squares(t.losses, t.flat[3], kFlat); }});
    static ops::GradientState state{.norm = 1, .scale = 1, .finite = 1};
    static const ops::AdamwTensor tensor{.start = 0, .count = kFlat, .global = 0, .decay = real(0.1)};
    floatX* param = std::is_same_v<floatX, real> ? nullptr : t.flat_x;
    rows.push_back({"adamw", parts, 0, double(kFlat) * (7 * kRealSize + (param ? kTypeSize : 0)), [&t, param] {
        ops::adamw_update({.param = param, .master = t.flat[0], .m = t.flat[1], .v = t.flat[2], .grad = t.flat[3], .state = &state,
                           .lr = real(1e-3), .beta1 = real(0.9), .beta2 = real(0.95), .eps = real(1e-8), .step = 10,
                           .stochastic = false, .seed = 1}, &tensor, 1);
    }});
}

// One product in the given layouts and chunk, in FLOP/s of oneDNN; tensors of any content do.
double product_seconds(Product p, Tensors& t, std::vector<std::byte>& memory, bool head) {
    const size_t need = dnnl_scratch(p, context.threads);
    if (memory.size() < need + 64) memory.resize(need + 64);
    std::byte* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    void* c = p.accumulate ? static_cast<void*>(t.dw) : head && p.n == Vp ? static_cast<void*>(t.logits) : t.wide;
    const void* a = head && (p.k == Vp || p.m == Vp) ? t.logits : t.wide2;
    const void* b = p.accumulate ? static_cast<void*>(t.x) : t.w;
    return seconds_of([&] { dnnl_product(p, {.c = c, .a = a, .b = b, .bias = nullptr}, scratch, context.threads); });
}

// FLOP/s of the step's products in oneDNN's best layout and chunking of tokens
double matmul_rate(Tensors& t, int N) {
    struct Linear { int in, out, count; };
    double flops = 0, total = 0;
    std::vector<std::byte> memory;
    for (const auto& [in, out, count] : {Linear{C, 3 * C, L}, {C, C, L}, {C, F, L}, {F, C, L}, {C, Vp, 1}}) {
        double best[3] = {1e30, 1e30, 1e30};
        for (const int n : {N, N / 2, N / 4}) {
            const bool head = out == Vp;
            const Product base{.m = n, .n = out, .k = in, .in = dtype_of<floatX>, .out = dtype_of<floatX>, .a_transposed = false,
                               .b_transposed = false, .bias = false, .accumulate = false};
            for (const bool transposed : {false, true}) {
                Product forward = base, dx = base, dw = base;
                forward.b_transposed = dx.b_transposed = dw.a_transposed = transposed;
                dx.n = in, dx.k = out;
                dw.m = out, dw.n = in, dw.k = n, dw.accumulate = true, dw.out = dtype_of<real>;
                for (int i = 0; const Product& p : {forward, dx, dw}) {
                    best[i] = std::min(best[i], product_seconds(p, t, memory, head) * N / n);
                    i++;
                }
            }
        }
        flops += 6.0 * N * in * out * count;
        total += (best[0] + best[1] + best[2]) * count;
    }
    return flops / total;
}

void run(const Options& o, FILE* json) {
    const int N = o.B * o.T, chunk = std::min(o.chunk, N);
    Tensors t(N, o.T, chunk);
    const double copy = 2.0 * kFlat * kRealSize / seconds_of([&] {
        #pragma omp parallel for num_threads(context.threads)
        for (size_t i = 0; i < kFlat; i += 4096) memcpy(t.flat[0] + i, t.flat[1] + i, 4096 * sizeof(real));
    });
    const bool dnnl = !matmul_library().empty() && sizeof(floatX) != 8;
    const double peak = dnnl ? matmul_rate(t, N)
                             : 2e9 / seconds_of([&] { ops::matmul_forward(t.wide, t.w, t.w + 1000000, nullptr, 1000, 1000, 1000); });
    std::vector<Row> rows;
    products(rows, t, N, chunk);
    const size_t matmul_rows = rows.size();
    layers(rows, t, o.B, o.T);
    rest(rows, t, N, chunk);
    double step = 0, matmuls = 0, matmul_flops = 0;
    for (size_t i = 0; i < rows.size(); i++) {
        Row& r = rows[i];
        r.seconds = r.calls * seconds_of(r.f);
        step += r.seconds;
        if (i < matmul_rows && r.flops) matmuls += r.seconds, matmul_flops += r.calls * r.flops;
    }
    printf("\n%s, B=%d T=%d, logits of %d rows, %d threads: matmul rate %.0f GFLOP/s (%s), copy %.1f GB/s\n\n", kName, o.B, o.T, chunk,
           context.threads, peak / 1e9, dnnl ? matmul_library().c_str() : "own loops", copy / 1e9);
    std::vector<std::vector<std::string>> cells = {{"operation", "calls", "ms", "share", "rate", "", "of peak"}};
    for (const Row& r : rows) {
        const double rate = r.calls * (r.flops + r.bytes) / r.seconds, share = rate / (r.flops ? peak : copy);
        cells.push_back({r.name, strf("%.3g", r.calls), strf("%.2f", r.seconds * 1e3), strf("%.1f%%", 100 * r.seconds / step),
                         strf("%.1f", rate / 1e9), r.flops ? "GFLOP/s" : "GB/s", strf("%.2f", share)});
        if (json) fputs(JsonLine("op").add("precision", kName).add("T", o.T).add("name", r.name).add("calls", r.calls)
                            .add("ms", r.seconds * 1e3).add("share", r.seconds / step).add(r.flops ? "gflops" : "gbs", rate / 1e9)
                            .add("of_peak", share).str().c_str(), json);
    }
    fputs(table(cells, "lrrrrlr").c_str(), stdout);
    const double model = N * (6 * kParameters + 6.0 * L * C * o.T);
    printf("sum of a step: %.1f ms, %.0f tokens/s, model %.0f GFLOP/s = %.2f of the matmul rate; its matmuls %.1f ms, %.0f GFLOP/s\n",
           step * 1e3, N / step, model / step / 1e9, model / step / peak, matmuls * 1e3, matmul_flops / matmuls / 1e9);
    if (json) fputs(JsonLine("ops").add("precision", kName).add("B", o.B).add("T", o.T).add("matmul_gflops", peak / 1e9)
                        .add("copy_gbs", copy / 1e9).add("step_ms", step * 1e3).add("of_peak", model / step / peak).str().c_str(), json);
}

}  // namespace

[[maybe_unused]] static const bool added = (benches.push_back({kName, run}), true);

}  // namespace PRECISION

// One object of the three provides it.
[[gnu::weak]] int main(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; i++) {
        const std::string a = argv[i];
        const auto number = [&a] { return atoi(a.c_str() + a.find('=') + 1); };
        if (a.rfind("--json=", 0) == 0) o.json = a.substr(7);
        else if (a.rfind("--B=", 0) == 0) o.B = number();
        else if (a.rfind("--T=", 0) == 0) o.T = number();
        else if (a.rfind("--chunk=", 0) == 0) o.chunk = number();
        else if (a.rfind("--threads=", 0) == 0) o.threads = number();
        else o.precisions.push_back(a);
    }
    CHECK_INPUT(o.B > 0 && o.T > 0 && o.chunk > 0 && o.threads >= 0, "--B, --T, --chunk: positive numbers");
    if (o.precisions.empty()) o.precisions = {"fp32", "bf16"};
    context.threads = o.threads ? o.threads : cores();
    omp_set_num_threads(context.threads);
    FILE* json = o.json.empty() ? nullptr : fopen(o.json.c_str(), "w");
    CHECK_INPUT(o.json.empty() || json, "%s cannot be written", o.json.c_str());
    for (const std::string& name : o.precisions)
        for (const Bench& b : benches)
            if (name == b.precision) b.run(o, json);
    if (json) fclose(json);
}
