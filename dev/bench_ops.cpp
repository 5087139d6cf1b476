// Times every operation at the sizes of one step of GPT-2 124M, and what a step is made of.
//
//     bench_ops [--json=FILE] [--B=4 --T=256] [--threads=N] [--rates] [fp32 bf16 fp64]
//
// Rates are compared with the matmul rate (the step's own products by oneDNN, each in its best layout and
// chunking: total FLOPs over total time) and with the copy rate, both of the same run. All times are medians:
// on a machine that others use as well, the best of each would be of moments that no step has as a whole.
// --rates: the matmul rate in GFLOP/s, once for each line on standard input.
#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "dev/bench_rows.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/json.h"
#include "llmc/base/machine.h"
#include "llmc/ops/cpu/dnnl.h"

struct Options {
    int B = 4, T = 256, threads = 0;
    bool rates = false;
    std::string json;
    std::vector<std::string> precisions;
};
struct Bench {
    const char* precision;
    void (*run)(const Options&, FILE*);
    void (*rates)(const Options&);
};
inline std::vector<Bench> benches;

namespace PRECISION {
namespace {

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)
constexpr const char* kName = TEXT_OF(PRECISION);

// A product of the step, in one layout and chunk of tokens, by oneDNN.
struct Candidate {
    Product p;
    bool head;
    int calls;      // of a step
};

// Tensors of any content do.
double seconds_of_product(const Candidate& c, Tensors& t, std::vector<std::byte>& memory) {
    const Product& p = c.p;
    const size_t need = dnnl_scratch(p, context.threads);
    if (memory.size() < need + 64) memory.resize(need + 64);
    std::byte* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    void* out = p.accumulate          ? static_cast<void*>(t.dw)
                : c.head && p.n == Vp ? static_cast<void*>(t.logits)
                                      : t.wide;
    const void* a = c.head && (p.k == Vp || p.m == Vp) ? t.logits : t.wide2;
    const void* b = p.accumulate ? static_cast<void*>(t.x) : t.w;
    return seconds_of_call(
        [&] { dnnl_product(p, {.c = out, .a = a, .b = b, .bias = nullptr}, scratch, context.threads); });
}

// One after the other, several times, so that a fast moment of the machine serves all alike.
Candidate fastest(const std::vector<Candidate>& candidates, Tensors& t, std::vector<std::byte>& memory) {
    std::vector<std::vector<double>> seconds(candidates.size());
    for (int round = 0; round < 6; round++)
        for (size_t i = 0; i < candidates.size(); i++) {
            const double s = candidates[i].calls * seconds_of_product(candidates[i], t, memory);
            if (round) seconds[i].push_back(s);         // the first builds its code
        }
    size_t best = 0;
    for (size_t i = 1; i < candidates.size(); i++)
        if (median(seconds[i]) < median(seconds[best])) best = i;
    return candidates[best];
}

// The products of a step: forward, dx and dw of each matrix, in oneDNN's best layout and chunk of tokens.
std::vector<Candidate> best_products(Tensors& t, int N, std::vector<std::byte>& memory) {
    struct Linear {
        int in, out, count;
    };
    std::vector<Candidate> best;
    for (const auto& [in, out, count] : {Linear{C, 3 * C, L}, {C, C, L}, {C, F, L}, {F, C, L}, {C, Vp, 1}}) {
        std::vector<Candidate> candidates[3];
        for (const int n : {N, N / 2, N / 4})
            for (const bool transposed : {false, true}) {
                const Product base{.m = n,
                                   .n = out,
                                   .k = in,
                                   .in = dtype_of<floatX>,
                                   .out = dtype_of<floatX>,
                                   .a_transposed = false,
                                   .b_transposed = false,
                                   .bias = false,
                                   .accumulate = false};
                Product forward = base, dx = base, dw = base;
                forward.b_transposed = dx.b_transposed = dw.a_transposed = transposed;
                dx.n = in, dx.k = out;
                dw.m = out, dw.n = in, dw.k = n, dw.accumulate = true, dw.out = dtype_of<real>;
                for (int i = 0; const Product& p : {forward, dx, dw})
                    candidates[i++].push_back({p, out == Vp, count * N / n});
            }
        for (const auto& c : candidates) best.push_back(fastest(c, t, memory));
    }
    return best;
}

// FLOP/s of all of them in turn, as often as a step has them
double matmul_rate(const std::vector<Candidate>& products, Tensors& t, std::vector<std::byte>& memory) {
    double flops = 0, seconds = 0;
    for (const Candidate& c : products)
        for (int i = 0; i < c.calls; i++) {
            flops += 2.0 * double(c.p.m) * double(c.p.n) * double(c.p.k);
            seconds += seconds_of_product(c, t, memory);
        }
    return flops / seconds;
}

double matmul_rate(Tensors& t, int N) {
    std::vector<std::byte> memory;
    const std::vector<Candidate> products = best_products(t, N, memory);
    std::vector<double> rates;
    for (int i = 0; i < 5; i++) rates.push_back(matmul_rate(products, t, memory));
    return median(rates);
}

// A rate for each line that is read: whoever asks measures something else in between.
void rates(const Options& o) {
    Tensors t(o.B * o.T, o.T, std::min(cpu::logit_rows(), o.B * o.T));
    std::vector<std::byte> memory;
    const std::vector<Candidate> products = best_products(t, o.B * o.T, memory);
    while (getchar() == '\n') {
        printf("%.1f\n", matmul_rate(products, t, memory) / 1e9);
        fflush(stdout);
    }
}

struct Peaks { double matmul, copy; };

Peaks measure_peaks(Tensors& t, int N) {
    const double copy = seconds_of([&] {
        #pragma omp parallel for num_threads(context.threads)
        for (size_t i = 0; i < kFlat; i += 4096)
            memcpy(t.flat[0] + i, t.flat[1] + i, 4096 * sizeof(real));
    });
    if (!matmul_library().empty() && sizeof(floatX) != 8)
        return {matmul_rate(t, N), 2.0 * kFlat * kRealSize / copy};
    const int n = std::min(N, 1024);
    const double own = seconds_of([&] { ops::matmul_forward(t.wide, t.w, t.w, nullptr, n, 1024, 1024); });
    return {2.0 * n * 1024 * 1024 / own, 2.0 * kFlat * kRealSize / copy};
}

void print(const std::vector<Row>& rows, const Options& o, const Peaks& peaks, double step, FILE* json) {
    std::vector<std::vector<std::string>> cells = {
        {"operation", "calls", "ms", "share", "rate", "", "of peak"}};
    for (const Row& r : rows) {
        const double rate = r.calls * (r.flops + r.bytes) / r.seconds;
        const double share = rate / (r.flops ? peaks.matmul : peaks.copy);
        cells.push_back({r.name, strf("%.3g", r.calls), strf("%.2f", r.seconds * 1e3),
                         strf("%.1f%%", 100 * r.seconds / step), strf("%.1f", rate / 1e9),
                         r.flops ? "GFLOP/s" : "GB/s", strf("%.2f", share)});
        if (!json) continue;
        JsonLine line("op");
        line.add("precision", kName).add("T", o.T).add("name", r.name).add("calls", r.calls);
        line.add("ms", r.seconds * 1e3).add("share", r.seconds / step);
        line.add(r.flops ? "gflops" : "gbs", rate / 1e9).add("of_peak", share);
        fputs(line.str().c_str(), json);
    }
    fputs(table(cells, "lrrrrlr").c_str(), stdout);
}

void run(const Options& o, FILE* json) {
    const int N = o.B * o.T, chunk = std::min(cpu::logit_rows(), N);
    Tensors t(N, o.T, chunk);
    const Peaks peaks = measure_peaks(t, N);
    printf("\n%s, B=%d T=%d, logits of %d rows, %d threads: matmul rate %.0f GFLOP/s, copy %.1f GB/s\n\n",
           kName, o.B, o.T, chunk, context.threads, peaks.matmul / 1e9, peaks.copy / 1e9);
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
    print(rows, o, peaks, step, json);
    const double model = N * (6 * kParameters + 6.0 * L * C * o.T) / step;
    printf("sum of a step: %.1f ms, %.0f tokens/s, model %.0f GFLOP/s = %.2f of the matmul rate;\n"
           "its matmuls %.1f ms at %.0f GFLOP/s\n",
           step * 1e3, N / step, model / 1e9, model / peaks.matmul, matmuls * 1e3,
           matmul_flops / matmuls / 1e9);
    if (!json) return;
    JsonLine line("ops");
    line.add("precision", kName).add("B", o.B).add("T", o.T).add("matmul_gflops", peaks.matmul / 1e9);
    line.add("copy_gbs", peaks.copy / 1e9).add("step_ms", step * 1e3).add("of_peak", model / peaks.matmul);
    fputs(line.str().c_str(), json);
}

}  // namespace

[[maybe_unused]] static const bool added = (benches.push_back({kName, run, rates}), true);

}  // namespace PRECISION

// One object of the three provides it.
[[gnu::weak]] int main(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; i++) {
        const std::string a = argv[i];
        const auto number = [&a] { return atoi(a.c_str() + a.find('=') + 1); };
        if (a.rfind("--json=", 0) == 0)
            o.json = a.substr(7);
        else if (a.rfind("--B=", 0) == 0)
            o.B = number();
        else if (a.rfind("--T=", 0) == 0)
            o.T = number();
        else if (a.rfind("--threads=", 0) == 0)
            o.threads = number();
        else if (a == "--rates")
            o.rates = true;
        else
            o.precisions.push_back(a);
    }
    CHECK_INPUT(o.B > 0 && o.T > 0 && o.threads >= 0, "--B, --T: positive numbers");
    if (o.precisions.empty()) o.precisions = {"fp32", "bf16"};
    context.threads = o.threads ? o.threads : cores();
    omp_set_num_threads(context.threads);
    FILE* json = o.json.empty() ? nullptr : fopen(o.json.c_str(), "w");
    CHECK_INPUT(o.json.empty() || json, "%s cannot be written", o.json.c_str());
    for (const std::string& name : o.precisions)
        for (const Bench& b : benches)
            if (name == b.precision) o.rates ? b.rates(o) : b.run(o, json);
    if (json) fclose(json);
}
