// Times every operation of a model's steps in its real place: in whole steps of the trainer.
//
//     bench_ops [--model=gpt2|llama|features|packed] [--json=FILE] [--B=4 --T=256] [--threads=N] [--rates]
//               [--muon] [--trace] [fp32 bf16 fp64]
//
// The walk records the ops, their order, FLOPs and bytes (ops/walk.h). Rates are compared
// with the matmul rate (the step's own products by oneDNN, each in its best layout and chunking: total FLOPs
// over total time) and with the copy rate, both of the same run. Times are medians over steps: on a shared
// machine the best times of the ops would come from different moments.
// --rates: the matmul rate in GFLOP/s, once for each line on standard input.
// --muon: Muon's share of steps of 2,048 and 65,536 tokens.
// --trace: the cost of log.trace in a step of the quickstart's shape.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "dev/bench_models.h"
#include "dev/bench_muon.h"
#include "dev/bench_products.h"
#include "dev/bench_trace.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/json/json.h"
#include "llmc/train/log/log.h"

struct Bench {
    const char* precision;
    void (*run)(const Options&, FILE*);
    void (*rates)(const Options&);
    void (*muon)(const Options&, const char* precision, FILE*);
    void (*trace)(const char* precision, FILE*);
};
inline std::vector<Bench> benches;

namespace PRECISION {
namespace {

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)
constexpr const char* kName = TEXT_OF(PRECISION);
constexpr int kSteps = 5;

// ---------------------------------------------------------------------------------------------------------
// the steps

// An op of a step, of one shape: its share of kSteps steps.
struct Row {
    Cost cost;
    std::string name;
    double calls = 0;
    std::vector<double> seconds = std::vector<double>(kSteps);      // of each step
};

// Names of products say their layer's shape, as (rows, columns) times terms.
std::string name_of(const Cost& c, const ModelConfig& m, const Walk::Entry& at) {
    std::string name = c.name;
    if (c.kind == Kind::Product)
        return fmt::format("{}{} ({}, {}) x {}", at.micro < 0 ? "Muon: " : "", name, c.product.m, c.product.n,
                           c.product.k);
    if (c.attention.window) name += fmt::format(", window {}", c.attention.window);
    if (c.kind == Kind::Attention && m.document_mask) name += ", documents";
    if (name.starts_with("classifier") && m.softcap > 0)
        name += m.softcap_kind == SoftcapKind::Sqrt ? ", sqrt softcap" : ", tanh softcap";
    const std::string norm = "layernorm";
    if (name.starts_with(norm) && m.norm == NormKind::RmsNorm) name = "rmsnorm" + name.substr(norm.size());
    if (name.find("norm_") != name.npos && at.block < 0 && m.embed_norm) name += ", of the ends";
    return name;
}

// FLOPs of an op, less the pairs of tokens from different documents.
double flops_of(const Cost& c, const Config& cfg) {
    if (c.kind != Kind::Attention || !cfg.model.document_mask) return c.flops;
    return c.flops * (document_of(cfg) + 1) / (cfg.model.context + 1);
}

// Steps of the trainer, each op timed from its start to the start of the next op.
std::vector<Row> timed_steps(const Options& o, std::vector<double>& steps) {
    const Config cfg = config_of(o);
    const Dataset tokens = random_tokens(cfg.model, size_t(kSteps + 2) * size_t(o.B) * size_t(o.T) + 1);
    Model model(cfg, Mesh(), o.B, false);
    warm_up(cfg, model);
    model.allocate();
    restore(model.shards, random_weights(model.shards.d, 1));
    Loader data(tokens, o.B, 0);
    std::map<std::string, size_t> known;
    std::vector<Row> rows;
    for (int step = -1; step < kSteps; step++) {        // step -1 touches memory for the first time
        double end = 0;
        const Walk walk = walk_of(ops::target(), [&] {
            model.pipeline.run(data);
            enqueue_update(model, 1e-4, step + 1);
            model.statistics->read();
            end = seconds_now();
        }, true);
        if (step < 0) continue;
        steps.push_back(end - walk.begun[0]);
        for (size_t i = 0; i < walk.entries.size(); i++) {
            const Cost& c = walk.of(walk.entries[i]);
            const std::string name = name_of(c, cfg.model, walk.entries[i]);
            const auto [at, is_new] = known.emplace(name, rows.size());
            if (is_new) rows.push_back({.cost = {.name = c.name, .kind = c.kind}, .name = at->first});
            Row& row = rows[at->second];
            row.calls += 1. / kSteps;
            row.cost.flops += flops_of(c, cfg) / kSteps;
            row.cost.read += (c.read + c.written) / kSteps;
            const double next = i + 1 < walk.begun.size() ? walk.begun[i + 1] : end;
            row.seconds[size_t(step)] += next - walk.begun[i];
        }
    }
    return rows;
}

// ---------------------------------------------------------------------------------------------------------
// the table

// Whose time is arithmetic: exp of every logit, once or twice, and tanh or a root under a softcap.
bool is_arithmetic(const Cost& c) { return std::string(c.name).starts_with("classifier"); }

void print(const std::vector<Row>& rows, const Options& o, const Peaks& peaks, double step, FILE* json) {
    std::vector<std::vector<std::string>> cells = {
        {"operation", "calls", "ms", "share", "rate", "", "of peak"}};
    for (const Row& r : rows) {
        const double seconds = median(r.seconds);
        const double work = r.cost.flops ? r.cost.flops : double(r.cost.read);
        if (seconds < 2e-4 * step) continue;
        const double share = work / seconds / (r.cost.flops ? peaks.matmul : peaks.copy);
        const char* const mark = is_arithmetic(r.cost) ? "*" : " ";
        cells.push_back({r.name, fmt::format("{:.3g}", r.calls), fmt::format("{:.2f}", seconds * 1e3),
                         fmt::format("{:.1f}%", 100 * seconds / step),
                         fmt::format("{:.1f}", work / seconds / 1e9),
                         r.cost.flops ? "GFLOP/s" : "GB/s", fmt::format("{:.2f}{}", share, mark)});
        if (!json) continue;
        JsonLine line("op");
        line.add("model", o.model).add("precision", kName).add("T", o.T).add("name", r.name);
        line.add("calls", r.calls);
        line.add("ms", seconds * 1e3).add("share", seconds / step);
        line.add(r.cost.flops ? "gflops" : "gbs", work / seconds / 1e9).add("of_peak", share);
        fputs(line.str().c_str(), json);
    }
    fputs(table(cells, "lrrrrlr").c_str(), stdout);
    puts("* exp and softcap of every logit: cycles, and not bytes, are its limit");
}

// A rate for each line of input: the caller measures something else in between.
void rates(const Options& o) {
    Operands t;
    const std::vector<Candidate> products = best_products(o, t);
    while (getchar() == '\n') {
        printf("%.1f\n", matmul_rate(products, t) / 1e9);
        fflush(stdout);
    }
}

void run(const Options& o, FILE* json) {
    const Peaks peaks = measure_peaks(o);
    std::vector<double> steps;
    const std::vector<Row> rows = timed_steps(o, steps);
    const double step = median(steps);
    printf("\n%s, %s, B=%d T=%d, %d threads: matmul rate %.0f GFLOP/s, copy %.1f GB/s\n\n",
           o.model.c_str(), kName, o.B, o.T, context.threads, peaks.matmul / 1e9, peaks.copy / 1e9);
    print(rows, o, peaks, step, json);
    const Config cfg = config_of(o);
    const Dims d = dims_of(cfg, cfg.model.vocab);
    const auto parameters = int64_t(make_layout(d, whole_model(d.L)).parameters);
    const double N = double(o.B) * o.T, per_token = model_flops_per_token(cfg.model, parameters);
    const double model = N * per_token / step;
    printf("a step: %.1f ms, %.0f tokens/s, model %.0f GFLOP/s = %.2f of the matmul rate\n", step * 1e3,
           N / step, model / 1e9, model / peaks.matmul);
    if (!json) return;
    JsonLine line("ops");
    line.add("model", o.model).add("precision", kName).add("B", o.B).add("T", o.T);
    line.add("matmul_gflops", peaks.matmul / 1e9);
    line.add("copy_gbs", peaks.copy / 1e9).add("step_ms", step * 1e3).add("of_peak", model / peaks.matmul);
    fputs(line.str().c_str(), json);
}

}  // namespace

[[maybe_unused]] static const bool added =
    (benches.push_back({kName, run, rates, muon_shares, trace_cost}), true);

}  // namespace PRECISION

// Defined by the object of a precision.
[[gnu::weak]] int main(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; i++) {
        const std::string a = argv[i];
        const auto number = [&a] { return atoi(a.c_str() + a.find('=') + 1); };
        if (a.rfind("--json=", 0) == 0)
            o.json = a.substr(7);
        else if (a.rfind("--model=", 0) == 0)
            o.model = a.substr(8);
        else if (a.rfind("--B=", 0) == 0)
            o.B = number();
        else if (a.rfind("--T=", 0) == 0)
            o.T = number();
        else if (a.rfind("--threads=", 0) == 0)
            o.threads = number();
        else if (a == "--rates")
            o.rates = true;
        else if (a == "--muon")
            o.muon = true;
        else if (a == "--trace")
            o.trace = true;
        else
            o.precisions.push_back(a);
    }
    CHECK_INPUT(o.B > 0 && o.T > 0 && o.threads >= 0, "--B, --T: positive numbers");
    if (o.precisions.empty()) o.precisions = {"fp32", "bf16"};
    context.threads = o.threads ? o.threads : cores();
    omp_set_num_threads(context.threads);
    FILE* json = o.json.empty() ? nullptr : fopen(o.json.c_str(), "w");
    CHECK_INPUT(o.json.empty() || json, "{} cannot be written", o.json);
    for (const std::string& name : o.precisions)
        for (const Bench& b : benches) {
            if (name != b.precision) continue;
            if (o.rates) b.rates(o);
            else if (o.muon) b.muon(o, b.precision, json);
            else if (o.trace) b.trace(b.precision, json);
            else b.run(o, json);
        }
    if (json) fclose(json);
}
