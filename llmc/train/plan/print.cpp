#include "llmc/train/plan/print.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/check.h"
#include "llmc/base/console.h"

inline namespace plans {

// ---------------------------------------------------------------------------------------------------------
// JSON

Json json_of(const BytesByPurpose& m) {
    return Json::Members{{"weights", uint64_t(m.weights)},
                         {"gradients", uint64_t(m.gradients)},
                         {"optimizer", uint64_t(m.optimizer)},
                         {"activations", uint64_t(m.activations)},
                         {"other", uint64_t(m.other)}};
}

Json json_of(const Estimate& e, bool timed) {
    const auto time = [&](double v) { return timed ? Json(v) : Json(); };
    Json::Members mesh;
    for (const AxisRow& a : axis_rows) mesh.emplace_back(a.name, e.mesh.*a.size);
    mesh.emplace_back("ranks", e.ranks);
    const Json::Members options = {{"zero", e.cfg.parallel.zero},
                                   {"zero_group", e.cfg.parallel.zero_group},
                                   {"schedule", std::string(e.cfg.parallel.schedule.text())},
                                   {"virtual_stages", e.cfg.parallel.virtual_stages},
                                   {"micro_batch", e.cfg.train.micro_batch},
                                   {"recompute", std::string(e.cfg.memory.recompute.text())},
                                   {"offload", std::string(e.cfg.memory.offload.text())}};
    Json::List of_stages;
    for (const size_t bytes : e.memory_of_stages) of_stages.push_back(uint64_t(bytes));
    return Json::Members{{"memory_bytes", uint64_t(e.memory.sum())},
                         {"memory", json_of(e.memory)},
                         {"memory_of_stages", of_stages},
                         {"fits", e.fits},
                         {"params", e.params},
                         {"step_seconds", time(e.step.seconds)},
                         {"tokens_per_second", time(e.tokens_per_second())},
                         {"mfu", time(e.mfu)},
                         {"bubble", time(e.bubble())},
                         {"communication_exposed", time(e.exposed())},
                         {"goodput", e.goodput.between > 0 ? time(e.goodput.share()) : Json()},
                         {"mesh", mesh},
                         {"options", options}};
}

Json json_of(const Search& s, const std::string& command) {
    Json::List best;
    for (const Estimate& e : s.best) best.push_back(json_of(e, true));
    return Json::Members{{"candidates", best}, {"rejected", s.rejected()}, {"command", command}};
}

// ---------------------------------------------------------------------------------------------------------
// text

static std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

static std::string money(double dollars) {
    return dollars < 100 ? fmt::format("${:.2f}", dollars) : "$" + grouped(std::llround(dollars));
}

static std::string limits_text(const ClusterConfig& limits) {
    const char* unit = limits.days == 1 ? "day" : "days";
    const std::string days = limits.days > 0 ? fmt::format("{:g} {}", limits.days, unit) : "";
    const std::string dollars = limits.dollars > 0 ? money(limits.dollars) : "";
    return days + (days.empty() || dollars.empty() ? "" : " and ") + dollars;
}

using Rows = std::vector<std::vector<std::string>>;

static Rows rows_of_step(const Estimate& e) {
    const StepTime& t = e.step;
    Rows rows;
    const auto add = [&](const std::string& name, double seconds) {
        rows.push_back({"  " + name, human_seconds(seconds), percent(seconds / t.seconds)});
    };
    add("matrix products", t.by_kind.products);
    add("attention", t.by_kind.attention);
    add("other ops", t.by_kind.memory);
    std::string waited;
    if (e.ranks > 1) waited = "communication";
    if (e.cfg.memory.offload != Offload::None) waited += waited.empty() ? "copies" : " and copies";
    if (!waited.empty()) add("waiting for " + waited, t.by_kind.exposed);
    if (e.mesh.pp > 1) add("pipeline bubble", t.bubble);
    add("step", t.seconds);
    add("  of it the optimizer", t.after);
    return rows;
}

// What failures and checkpoints cost in 30 days.
static std::string goodput_text(const Estimate& e) {
    const Goodput &g = e.goodput, &best = e.best_goodput;
    const double trained = 30 * 86400 * g.share();
    const std::string stragglers =
        g.stragglers > 0 ? fmt::format(", {} to stragglers", human_seconds(trained * g.stragglers)) : "";
    return fmt::format("goodput {} with checkpoint.every={}; at most {}, with {}\n"
                       "  a failure each {}; 30 days lose {} to checkpoints, {} to restarts, {} to work done "
                       "again{}\n",
                       percent(g.share()), g.every, percent(best.share()), best.every,
                       human_seconds(g.between), human_seconds(trained * g.checkpoints),
                       human_seconds(trained * g.restarts), human_seconds(trained * g.repeated), stragglers);
}

// Of run.products = fp8: the rate of its products, and of what mfu is a share.
static std::string fp8_text(const Estimate& e, const Machine& machine) {
    if (e.cfg.run.products != ProductKind::Fp8) return "";
    if (machine.fp8_tflops == 0) return "  FP8 products are measured; mfu is a share of BF16's rate\n";
    return fmt::format("  FP8 products at {:g} TFLOP/s; mfu is a share of BF16's rate\n", machine.fp8_tflops);
}

std::string time_text(const Estimate& e, const Machine& machine) {
    const RunCost run = cost_of(e, machine);
    std::string text =
        fmt::format("step on {} {}: {} tokens/s, mfu {}\n", counted(e.ranks, "rank"), "of " + machine.gpu,
                    grouped(std::llround(e.tokens_per_second())), percent(e.mfu));
    text += table(rows_of_step(e), "lrr") + fp8_text(e, machine);
    if (e.ranks > 1)
        text += fmt::format("  communication beside ops: {}\n", human_seconds(e.step.by_kind.hidden));
    text += fmt::format("run of {}: {}", counted(e.cfg.train.steps, "step"), human_seconds(run.seconds));
    if (run.kwh > 0) text += fmt::format(", {:.4g} kWh", run.kwh);
    if (run.dollars > 0)
        text +=
            fmt::format(", {} at ${:.2f} an hour and {}", money(run.dollars), machine.dollars_per_hour,
                        machine.device_word);
    if (!keeps_limits(run, e.cfg.cluster))
        text += fmt::format("; more than {}", limits_text(e.cfg.cluster));
    text += "\n";
    if (e.goodput.between > 0) text += goodput_text(e);
    return text;
}

using Cells = std::vector<std::string>;

// First cells, one for each axis, last cells.
template <class F> static Cells with_axes(Cells cells, F&& cell, const Cells& last) {
    for (const AxisRow& a : axis_rows) cells.push_back(cell(a));
    cells.insert(cells.end(), last.begin(), last.end());
    return cells;
}

static const Cells kColumns = with_axes({"step", "tokens/s", "mfu", "bubble", "comm", "memory"},
                                        [](const AxisRow& a) { return a.name; },
                                        {"zero", "micro", "recompute", "schedule"});

// Without the columns of rare axes that have one rank in every row.
static Rows without_rare(Rows rows) {
    for (const AxisRow& a : axis_rows) {
        const size_t column = size_t(std::ranges::find(rows[0], a.name) - rows[0].begin());
        const bool used = std::any_of(rows.begin() + 1, rows.end(),
                                      [&](const Cells& row) { return row[column] != "1"; });
        if (!a.rare || used) continue;
        for (Cells& row : rows) row.erase(row.begin() + ptrdiff_t(column));
    }
    return rows;
}

static std::string alignment(const Rows& rows) { return std::string(rows[0].size() - 2, 'r') + "ll"; }

static Cells cells_of(const Estimate& e) {
    const ParallelConfig& p = e.cfg.parallel;
    std::string schedule = p.pp == 1 ? "-" : p.schedule.text();
    std::string recompute = e.cfg.memory.recompute.text(), zero = std::to_string(p.zero);
    if (p.zero_group) zero += fmt::format(" of {}", p.zero_group);
    if (e.cfg.memory.offload != Offload::None) recompute += ", offload";
    if (p.virtual_stages > 1) schedule += fmt::format(" x{}", p.virtual_stages);
    return with_axes({human_seconds(e.step.seconds), grouped(std::llround(e.tokens_per_second())),
                      percent(e.mfu), percent(e.bubble()), percent(e.exposed()),
                      human_bytes(double(e.memory.sum()))},
                     [&](const AxisRow& a) { return std::to_string(e.mesh.*a.size); },
                     {zero, std::to_string(e.cfg.train.micro_batch), recompute, schedule});
}

static Rows rows_of_counts(const std::vector<Estimate>& best, const Machine& machine) {
    Rows rows = {{std::string(machine.device_word) + "s", "run", "energy", "price"}};
    rows[0].insert(rows[0].end(), kColumns.begin(), kColumns.end());
    double fastest = INFINITY;
    for (const Estimate& e : best) {
        const RunCost run = cost_of(e, machine);
        if (run.seconds >= fastest) continue;           // fewer GPUs are as fast
        fastest = run.seconds;
        rows.push_back({grouped(e.ranks), human_seconds(run.seconds),
                        run.kwh > 0 ? fmt::format("{:.4g} kWh", run.kwh) : "-",
                        run.dollars > 0 ? money(run.dollars) : "-"});
        const std::vector<std::string> cells = cells_of(e);
        rows.back().insert(rows.back().end(), cells.begin(), cells.end());
    }
    return rows;
}

// "32 GPUs: 5 d 02 h, $8,000": of the run.
static std::string run_text(const Estimate& e, const Machine& machine) {
    const RunCost run = cost_of(e, machine);
    const std::string price = run.dollars > 0 ? ", " + money(run.dollars) : "";
    return fmt::format("{}: {}{}", counted(e.ranks, machine.device_word), human_seconds(run.seconds), price);
}

static std::string choice_text(const CountedSearch& found, const ClusterConfig& limits,
                               const Machine& machine, const std::string& command) {
    if (limits.days == 0 && limits.dollars == 0)
        return "cluster.days=N or cluster.dollars=N chooses among them, and among numbers between\n";
    if (!found.search.best.empty())
        return fmt::format("{} within {}: {}\n{}\n", limits.days > 0 ? "the cheapest" : "the fastest",
                           limits_text(limits), run_text(found.search.best.front(), machine), command);
    return fmt::format("no number of GPUs keeps {}; the fastest is {}; the cheapest is {}\n",
                       limits_text(limits), run_text(fastest_of(found.rows, machine), machine),
                       run_text(cheapest_of(found.rows, machine), machine));
}

std::string counts_text(const CountedSearch& found, const ClusterConfig& limits, const Machine& machine,
                        const std::string& command) {
    if (found.rows.empty())
        return fmt::format("No plan for 1, 2, 4 ... {}s fits on {}.\n", machine.device_word, machine.gpu);
    const Rows rows = without_rare(rows_of_counts(found.rows, machine));
    return fmt::format("the fastest mesh for each number of {}; --parallel.ranks=N shows the next ones\n",
                       machine.gpu) +
           table(rows, alignment(rows)) +
           choice_text(found, limits, machine, command);
}

std::string search_text(const Search& s, const Machine& machine, const std::string& command) {
    if (s.rejected() == 0 && s.best.empty())
        return "No mesh: train.batch_tokens, heads and layers divide over none. Change parallel.ranks or the "
               "batch.\n";
    if (s.best.empty())
        return fmt::format("No mesh fits: {} plans were examined, each needs more than the {} of a {}.\n",
                           grouped(s.rejected()), human_bytes(1e9 * machine.memory_gb), machine.gpu);
    Rows rows = {kColumns};
    for (const Estimate& e : s.best) rows.push_back(cells_of(e));
    rows = without_rare(std::move(rows));
    std::string text =
        fmt::format("the fastest of {} plans for {} of {}\n", grouped(s.rejected() + int(s.best.size())),
                    counted(s.best.front().ranks, "rank"), machine.gpu);
    text += table(rows, alignment(rows));
    text += fmt::format(
        "the others: {} need more memory; {} lose most by ops (smaller products, recomputing), "
        "{} by communication, {} by the bubble\n",
        grouped(s.without_memory), grouped(s.by_ops), grouped(s.by_links), grouped(s.by_bubble));
    return text + command + "\n";
}

}  // namespace plans
