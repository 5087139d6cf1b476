// What bench_ops times: tensors of GPT-2 124M's sizes and a row per operation of a training step.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace {

constexpr int L = 12, C = 768, NH = 12, D = 64, F = 3072, V = 50257, Vp = 50304;
constexpr double kParameters = 124439808;
constexpr size_t kFlat = 16000000;  // elements of the optimizer; a power of 2 would be kind to no cache
constexpr int kTypeSize = int(sizeof(floatX)), kRealSize = int(sizeof(real));

double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + int64_t(v.size() / 2), v.end());
    return v[v.size() / 2];
}

double seconds_of_call(const std::function<void()>& f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// of many
double seconds_of(const std::function<void()>& f) {
    std::vector<double> seconds;
    double total = 0;
    f();
    while (seconds.size() < 100 && (seconds.size() < 5 || total < 0.3))
        total += seconds.emplace_back(seconds_of_call(f));
    return median(seconds);
}

struct Row {
    std::string name;
    double calls, flops, bytes;  // flops: of a product, else bytes moved
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
        const ops::ScratchSizes sizes{
            .N = N, .T = T, .C = C, .NH = NH, .D = D, .F = F, .chunk = chunk, .Vp = Vp};
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
            for (size_t i = 0; i < count; i++)
                p[i] = floatX(scale * float(int(next() >> 16) - 32768) / 32768.f);
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
    struct Linear {
        const char* name;
        int in, out, n;
        double calls;
    };
    for (const auto& [name, in, out, n, calls] : {Linear{"qkv", C, 3 * C, N, L},
                                                  {"attproj", C, C, N, L},
                                                  {"fc", C, F, N, L},
                                                  {"fcproj", F, C, N, L},
                                                  {"head", C, Vp, chunk, double(N) / chunk}}) {
        const bool fc = !strcmp(name, "fc"), fcproj = !strcmp(name, "fcproj"), head = !strcmp(name, "head");
        const double flops = 2.0 * n * in * out;
        const floatX* x = in == F ? t.wide : t.x;
        floatX* out_x = head ? t.logits : out == C ? t.y : t.wide2;
        const std::string s = name;
        rows.push_back({s + (fc ? " + gelu" : ""), calls, flops, 0, [=, &t] {
                            if (fc)
                                ops::matmul_gelu_forward(t.wide, t.wide2, x, t.w, t.bias, n, in, out);
                            else
                                ops::matmul_forward(out_x, x, t.w, head ? nullptr : t.bias, n, in, out);
                        }});
        const floatX* dout = out == C ? t.r : out_x;
        rows.push_back({s + " dx" + (fcproj ? " + gelu'" : ""), calls, flops, 0, [=, &t] {
                            if (fcproj)
                                ops::matmul_gelu_backward_input(t.wide, dout, t.w, t.wide2, n, in, out);
                            else
                                ops::matmul_backward_input(t.y, dout, t.w, n, in, out);
                        }});
        rows.push_back({s + " dw", calls, flops, 0,
                        [=, &t] { ops::matmul_backward_weight(t.dw, dout, x, n, in, out); }});
        if (!head)
            rows.push_back({s + " db", calls, 0, double(n) * out * kTypeSize,
                            [=, &t] { ops::bias_backward(t.db, dout, n, out); }});
    }
}

void layers(std::vector<Row>& rows, Tensors& t, int B, int T) {
    const int N = B * T;
    const ops::AttentionDims d{.B = B,
                               .Tq = T,
                               .Tk = T,
                               .NH = NH,
                               .D = D,
                               .q_stride = 3 * C,
                               .kv_stride = 3 * C,
                               .q_offset = 0,
                               .k_offset = 0};
    const double pairs = 2.0 * N * (T + 1) * C;  // FLOPs of q k^T and p v under the mask
    const floatX* qkv = t.wide2;
    rows.push_back({"attention", L, pairs, 0,
                    [&t, d, qkv] { ops::attention_forward(t.y, t.lse, qkv, qkv + C, qkv + 2 * C, d); }});
    rows.push_back({"attention backward", L, 2.5 * pairs, 0, [&t, d, qkv] {
                        ops::attention_backward({.dq = t.wide,
                                                 .dk = t.wide + C,
                                                 .dv = t.wide + 2 * C,
                                                 .dout = t.r,
                                                 .out = t.y,
                                                 .lse = t.lse,
                                                 .q = qkv,
                                                 .k = qkv + C,
                                                 .v = qkv + 2 * C},
                                                d);
                    }});
    rows.push_back({"layernorm + residual", 2 * L + 1, 0, 4.0 * N * C * kTypeSize, [&t, N] {
                        ops::layernorm_forward({.x1 = t.y,
                                                .y = t.wide,
                                                .mean = t.mean,
                                                .rstd = t.rstd,
                                                .x = t.x,
                                                .r = t.r,
                                                .bias = t.bias,
                                                .w = t.w,
                                                .b = t.bias},
                                               N, C);
                    }});
    rows.push_back({"layernorm backward", 2 * L + 1, 0, 4.0 * N * C * kTypeSize, [&t, N] {
                        ops::layernorm_backward(t.y, t.dw, t.db, t.r, t.x, t.w, t.mean, t.rstd, N, C);
                    }});
    const ops::Encoder e{.tokens = t.tokens, .v0 = 0, .V = V, .N = N, .T = T, .C = C, .t0 = 0};
    rows.push_back(
        {"encoder", 1, 0, 3.0 * N * C * kTypeSize, [&t, e] { ops::encoder_forward(t.y, t.w, t.w, e); }});
    rows.push_back({"encoder backward", 1, 0, double(N) * C * (kTypeSize + 4 * kRealSize),
                    [&t, e] { ops::encoder_backward(t.dw, t.dw, t.r, e); }});
}

void rest(std::vector<Row>& rows, Tensors& t, int N, int chunk) {
    rows.push_back({"classifier", double(N) / chunk, 0, 2.0 * chunk * Vp * kTypeSize, [&t, chunk] {
                        ops::classifier_forward_backward({.losses = t.losses, .logits = t.logits,
                                                          .stats = nullptr, .targets = t.tokens, .N = chunk,
                                                          .V = V, .Vp = Vp, .v0 = 0, .parts = 1},
                                                         real(1e-3));
                    }});
    const double parts = kParameters / kFlat;
    rows.push_back({"gradients to zero", parts, 0, double(kFlat) * kRealSize,
                    [&t] { ops::set_zero(t.flat[3], kFlat * sizeof(real)); }});
    rows.push_back({"gradient norm", parts, 0, double(kFlat) * kRealSize,
                    [&t] { ops::sum_of_squares(t.losses, t.flat[3], kFlat); }});
    static ops::GradientState state{.norm = 1, .scale = 1, .finite = 1};
    static const ops::AdamwTensor tensor{.start = 0, .count = kFlat, .global = 0, .decay = real(0.1)};
    floatX* param = std::is_same_v<floatX, real> ? nullptr : t.flat_x;
    rows.push_back(
        {"adamw", parts, 0, double(kFlat) * (7 * kRealSize + (param ? kTypeSize : 0)), [&t, param] {
             ops::adamw_update({.param = param,
                                .master = t.flat[0],
                                .m = t.flat[1],
                                .v = t.flat[2],
                                .grad = t.flat[3],
                                .state = &state,
                                .lr = real(1e-3),
                                .beta1 = real(0.9),
                                .beta2 = real(0.95),
                                .eps = real(1e-8),
                                .step = 10,
                                .stochastic = false,
                                .seed = 1},
                               &tensor, 1);
         }});
}

}  // namespace
}  // namespace PRECISION
