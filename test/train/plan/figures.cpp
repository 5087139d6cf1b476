// Figures of --plan, recomputed: mfu, goodput, what a run costs, ZeRO inside a node; and the checks against
// published runs and this program's own on GPUs.
#include "llmc/train/plan/run_cost.h"
#include "test/program.h"
#include "test/script_helpers.h"

using test::Ran, test::json;

static json printed(const std::string& args) {
    const Ran ran = test::run("./train_gpt " + args + " --json");
    EXPECT(ran.code == 0, "%s: exit %d, %s", args.c_str(), ran.code, ran.err.c_str());
    return ran.code == 0 ? json::parse(ran.out, nullptr, false) : json();
}

// GPT-2 124M: 12 layers of 768 channels, 1,024 tokens. A token takes 6 N FLOPs, and 6 L C T of causal
// attention.
TEST(mfu_is_by_its_formula) {
    const json p = printed("scripts/gpt2_124M.json --plan --cluster.gpu=h100 --parallel.ranks=8");
    EXPECT(p.at("params") == 124439808, "%s", p.at("params").dump().c_str());
    const double flops = 6.0 * 124439808 + 6.0 * 12 * 768 * 1024;
    const double peak = json::parse(test::text_of("scripts/machines/h100.json")).at("bf16_tflops");
    const double mfu = flops * p.at("tokens_per_second").get<double>() / (8 * 1e12 * peak);
    EXPECT_NEAR(p.at("mfu").get<double>(), mfu, 1e-9);
}

// 4 GPUs, of which each fails once in 2 hours: a failure each 1,800 s.
TEST(goodput_is_what_failures_and_checkpoints_leave) {
    const std::string file = test::folder("goodput_machine.json");
    const std::string config = test::tiny_program_config("goodput");
    std::ofstream(file) << R"({"gpu": "h100", "failure_hours": 2, "restart_seconds": 60, "host_gbs": 1e6,
                               "disk_gbs": 1e6})";
    const std::string plan =
        config + " --plan --run.precision=bf16 --train.micro_batch=1 --cluster.file=" + file;
    const json p = printed(plan + " --parallel.ranks=4 --checkpoint.every=1000000");
    const double half = 1e6 * p.at("step_seconds").get<double>() / 2;   // of the steps between checkpoints
    EXPECT_NEAR(p.at("goodput").get<double>(), 1 / (1 + 60 / 1800. + half / 1800), 1e-6);

    // No failures, and a disk of 1 MB/s: 10 steps, then a checkpoint of master weights, two moments, weights
    std::ofstream(file) << R"({"gpu": "h100", "failure_hours": 1e9, "host_gbs": 1e6, "disk_gbs": 0.001})";
    const json q = printed(plan + " --checkpoint.every=10 --checkpoint.async=false");
    const double lost = 1 / q.at("goodput").get<double>() - 1;
    const double bytes = lost * 10 * q.at("step_seconds").get<double>() * 1e6;
    EXPECT_NEAR(bytes / q.at("params").get<double>(), 14, 0.5);
    EXPECT(printed(config + " --plan").at("goodput").is_null(), "goodput without a machine");
}

// 1,000 steps of 3.6 s on 16 GPUs of 500 W: an hour, 8 kWh; at $2 an hour, $32.
TEST(a_run_costs_time_energy_and_money) {
    Estimate e;
    e.cfg.train.steps = 1000, e.step.seconds = 3.6, e.ranks = 16;
    Machine m;
    m.watts = 500, m.dollars_per_hour = 2;
    const RunCost run = cost_of(e, m);
    EXPECT_NEAR(run.seconds, 3600, 1e-9);
    EXPECT_NEAR(run.kwh, 8, 1e-9);
    EXPECT_NEAR(run.dollars, 32, 1e-9);
    ClusterConfig limits;
    EXPECT(keeps_limits(run, limits), "no limits");
    limits.days = 0.041;                                // 59 minutes
    EXPECT(!keeps_limits(run, limits), "beyond the deadline");
    limits.days = 0.042, limits.dollars = 31.99;
    EXPECT(!keeps_limits(run, limits), "beyond the budget");
    limits.dollars = 32.01;
    EXPECT(keeps_limits(run, limits), "within both");
}

// Llama 3 8B on two nodes of GPUs with 70 GB, 100 GB/s inside a node and 1 GB/s between nodes. ZeRO 1 keeps a
// copy of weights and gradients on each GPU: too much memory. tp waits for 100 GB/s. ZeRO 2 and 3 over both
// nodes wait for gathers and sums of every micro-batch.
TEST(a_slow_network_keeps_zero_inside_a_node) {
    const std::string args = "scripts/llama3_8B.json --cluster.gpu=h100 --cluster.memory_gb=70 "
                             "--cluster.node_gbs=100 --cluster.network_gbs=1 ";
    const json s = printed(args + "--plan=search --parallel.ranks=16");
    const json& best = s.at("candidates").at(0);
    EXPECT(best.at("options").at("zero_group") == 8 && best.at("options").at("zero") > 1, "%s",
           best.dump().c_str());
    const std::string command = s.at("command");
    EXPECT(command.find("--parallel.zero_group=8") != command.npos, "%s", command.c_str());
    const json over_all = printed(command.substr(12) + " --parallel.zero_group=0 --plan");
    EXPECT(over_all.at("step_seconds").get<double>() > 1.5 * best.at("step_seconds").get<double>(), "%s",
           over_all.dump().c_str());
}

// ---------------------------------------------------------------------------------------------------------
// published runs

// Lines with text.
static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::stringstream all(text);
    for (std::string line; std::getline(all, line);)
        if (!line.empty()) lines.push_back(line);
    return lines;
}

// A check prints what stands in dev/README.md between the marks of these names. A plan for a described
// machine is arithmetic: no printed digit depends on this machine.
static void expect_in_readme(const std::string& printed, const std::vector<std::string>& names) {
    const std::string readme = test::text_of("dev/README.md");
    std::vector<std::string> written;
    for (const std::string& name : names) {
        const std::string begin = "<!-- " + name + " -->";
        const size_t at = readme.find(begin), end = readme.find("<!-- /" + name + " -->");
        EXPECT(at < end && end != readme.npos, "no marks of %s", name.c_str());
        if (at >= end || end == readme.npos) return;
        for (const std::string& line : lines_of(readme.substr(at + begin.size(), end - at - begin.size())))
            written.push_back(line);
    }
    const std::vector<std::string> lines = lines_of(printed);
    EXPECT(lines.size() == written.size(), "%zu lines, dev/README.md has %zu", lines.size(), written.size());
    for (size_t i = 0; i < std::min(lines.size(), written.size()); i++)
        EXPECT(lines[i] == written[i], "'%s', in dev/README.md '%s': run dev/planner_check.py --write and "
               "dev/planner_gpu.py --write", lines[i].c_str(), written[i].c_str());
}

TEST(own_runs_on_gpus_are_met) {
    if (test::run("command -v " + python()).code != 0) return test::skip("no python3");
    const Ran ran = test::run(python() + " dev/planner_gpu.py");
    EXPECT(ran.code == 0 && has(ran.out, "| h200 | simple |"), "exit %d: %s%s", ran.code, ran.out.c_str(),
           ran.err.c_str());
    expect_in_readme(ran.out, {"planner-gpu"});
}

// The check's own verdict, and the figures that it prints.
TEST(published_runs_are_met) {
    if (test::run("command -v " + python()).code != 0) return test::skip("no python3");
    const Ran ran = test::run(python() + " dev/planner_check.py");
    EXPECT(ran.code == 0, "exit %d: %s", ran.code, ran.err.c_str());
    const size_t at = ran.out.find("\nA100 and H100 in bf16: ");
    int rows = 0, within = 0;
    double median = 100;
    EXPECT(at != ran.out.npos &&
               sscanf(ran.out.c_str() + at,
                      " A100 and H100 in bf16: %d rows, median error %lf%%, %d%% within 25%%", &rows, &median,
                      &within) == 3,
           "no summary: %s", ran.out.c_str());
    EXPECT(rows >= 68 && median <= 10 && within >= 80, "%d rows, %g%%, %d%%", rows, median, within);
    for (const char* line : {"| A | nanotron | 26 |", "| B | llm-foundry | 30 |", "| E | megatron | 10 |",
                             "| I16 | llm.q | 1 rtx5090 |", "| I18 | llm.q | 4 l40s |", "Memory: ",
                             "| A1 | nanotron |", "| A2 * | nanotron |", "| J1 | nanochat |"})
        EXPECT(has(ran.out, line), "'%s' is missing", line);
    expect_in_readme(ran.out, {"planner-check", "planner-check-memory"});
}

// A system with a single row would fit this row.
TEST(shares_are_fitted_on_several_rows) {
    const json rows = json::parse(test::text_of("dev/planner_rows.json")).at("rows"),
               systems = json::parse(test::text_of("dev/planner_systems.json"));
    for (const auto& [system, shares] : systems.items()) {
        const auto of_system = [&](const json& row) { return row.at("system") == system; };
        EXPECT(std::count_if(rows.begin(), rows.end(), of_system) > 1 && shares.size() == 2, "%s: %s",
               system.c_str(), shares.dump().c_str());
    }
}
