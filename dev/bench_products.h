// Rates for bench_ops to compare with: the matmul rate of the model's own products, and the copy rate.
//
// The walk of a step records the products; oneDNN runs each in its best layout and chunking.
#pragma once
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "dev/bench_models.h"
#include "llmc/base/context.h"
#include "llmc/base/progress.h"
#include "llmc/ops/cpu/products/dnnl.h"
#include "llmc/train/run/peaks.h"
#include "llmc/train/run/run_memory.h"

namespace PRECISION {
namespace {

double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + int64_t(v.size() / 2), v.end());
    return v[v.size() / 2];
}
template <class F> double seconds_of_call(F&& f) {
    const double begin = seconds_now();
    f();
    return seconds_now() - begin;
}

// A product of the step, in one layout and chunk of tokens, by oneDNN.
struct Candidate {
    Product p;
    int calls;      // of a step
};

// Memory for the operands of any candidate; the content does not matter.
struct Operands {
    std::vector<std::byte> a, b, c, scratch;
    std::byte* room(std::vector<std::byte>& v, size_t bytes) {
        if (v.size() < bytes + 64) v.assign(bytes + 64, std::byte{0});
        return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64;
    }
};

double seconds_of_product(const Candidate& c, Operands& t) {
    const Product& p = c.p;
    const auto bytes = [](int64_t rows, int64_t cols, DType type) {
        return size_t(rows * cols) * size_of(type);
    };
    std::byte* scratch = t.room(t.scratch, dnnl_scratch(p, context.threads));
    void* out = t.room(t.c, bytes(p.m, p.n, p.out));
    const void *a = t.room(t.a, bytes(p.m, p.k, p.in)), *b = t.room(t.b, bytes(p.k, p.n, p.in));
    return seconds_of_call(
        [&] { dnnl_product(p, {.c = out, .a = a, .b = b, .bias = nullptr}, scratch, context.threads); });
}

// Alternates several times: a fast moment of the machine serves each product alike.
Candidate fastest(const std::vector<Candidate>& candidates, Operands& t) {
    std::vector<std::vector<double>> seconds(candidates.size());
    for (int round = 0; round < 6; round++)
        for (size_t i = 0; i < candidates.size(); i++) {
            const double s = candidates[i].calls * seconds_of_product(candidates[i], t);
            if (round) seconds[i].push_back(s);         // the first builds its code
        }
    size_t best = 0;
    for (size_t i = 1; i < candidates.size(); i++)
        if (median(seconds[i]) < median(seconds[best])) best = i;
    return candidates[best];
}

// The products of a walked step, in oneDNN's best layout and chunk of tokens. Tokens are the rows of a
// product, or the terms of a weight's gradient.
std::vector<Candidate> best_products(const Options& o, Operands& t) {
    const Walk walk = walk_of_run(config_of(o), Mesh(), {.micro_batch = o.B, .micros = 0});
    std::map<int32_t, int> calls;
    for (const Walk::Entry& e : walk.entries)
        if (walk.of(e).kind == Kind::Product) calls[e.cost]++;
    std::vector<Candidate> best;
    for (const auto& [cost, count] : calls) {
        const Cost& c = walk.costs[size_t(cost)];
        const bool weight = std::string(c.name).find("weight") != std::string::npos;
        std::vector<Candidate> candidates;
        for (const int cut : {1, 2, 4})
            for (const bool transposed : {false, true}) {
                Product p{.m = c.product.m, .n = c.product.n, .k = c.product.k, .in = dtype_of<floatX>,
                          .out = weight ? dtype_of<real> : dtype_of<floatX>,
                          .a_transposed = weight && transposed, .b_transposed = !weight && transposed,
                          .bias = false, .accumulate = weight};
                (weight ? p.k : p.m) /= cut;
                candidates.push_back({p, count * cut});
            }
        best.push_back(fastest(candidates, t));
    }
    return best;
}

// FLOP/s of the products of a whole step
double matmul_rate(const std::vector<Candidate>& products, Operands& t) {
    double flops = 0, seconds = 0;
    for (const Candidate& c : products)
        for (int i = 0; i < c.calls; i++) {
            flops += 2.0 * double(c.p.m) * double(c.p.n) * double(c.p.k);
            seconds += seconds_of_product(c, t);
        }
    return flops / seconds;
}

struct Peaks { double matmul, copy; };

// Where oneDNN computes no products of this type, the rate of our own.
Peaks measure_peaks(const Options& o) {
    constexpr size_t kFlat = 16000000;      // a power of 2 would be kind to no cache
    std::vector<real> from(kFlat), to(kFlat);
    std::vector<double> copies, products;
    for (int i = 0; i < 9; i++)
        copies.push_back(seconds_of_call([&] {
            #pragma omp parallel for num_threads(context.threads)
            for (size_t at = 0; at < kFlat; at += 4096)
                memcpy(&to[at], &from[at], std::min<size_t>(4096, kFlat - at) * sizeof(real));
        }));
    const double copy = 2.0 * kFlat * sizeof(real) / median(copies);
    if (!dnnl_computes(dtype_of<floatX>)) return {matmul_tflops() * 1e12, copy};
    Operands t;
    const std::vector<Candidate> best = best_products(o, t);
    for (int i = 0; i < 5; i++) products.push_back(matmul_rate(best, t));
    return {median(products), copy};
}

}  // namespace
}  // namespace PRECISION
