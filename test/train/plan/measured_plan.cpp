// cluster.gpu=auto: prices of a measured step, by hand; plans of this machine, as a user calls them.
#include <cmath>
#include <filesystem>

#include "test/program.h"
#include "test/train/price/slow_machine.h"

using test::Ran, test::json, std::string;

static MeasuredOp op(const char* name, const char* axis, Kind kind, uint64_t read, double calls,
                     double seconds) {
    return {.name = name, .axis = axis, .kind = kind, .read = read, .calls = calls, .seconds = seconds};
}
static Cost cost(const char* name, const char* axis, Kind kind, uint64_t read) {
    return {.name = name, .kind = kind, .read = read, .axis = axis};
}

static const MeasuredStep kStep = {
    .date = "",
    .ops = {op("copy", "", Kind::Memory, 100, 3, 1), op("copy", "", Kind::Memory, 400, 1, 8),
            op("norm", "", Kind::Memory, 800, 1, 36), op("all_gather", "shard", Kind::Collective, 8, 1, 2),
            op("all_gather", "shard", Kind::Wait, 0, 2, 4)}};

TEST(an_op_has_the_time_of_the_same_else_of_a_like_op) {
    const auto seconds = [](const char* name, Kind kind, uint64_t read, const char* axis = nullptr) {
        return kStep.seconds_of(cost(name, axis, kind, read));
    };
    EXPECT_NEAR(seconds("copy", Kind::Memory, 400), 8, 0);
    EXPECT_NEAR(seconds("copy", Kind::Memory, 200), 200 * std::sqrt(0.01 * 0.02), 1e-12);  // as near to both
    // copies are a doubling away, a norm two: an eighth of their weight
    EXPECT_NEAR(seconds("add", Kind::Memory, 200),
                200 * std::pow(0.01 * 0.02 * std::pow(0.045, 1 / 8.), 1 / 2.125), 1e-12);
    EXPECT_NEAR(seconds("all_gather", Kind::Collective, 16, "shard"), 4, 1e-12);
    EXPECT_NEAR(seconds("matmul", Kind::Product, 16), 0, 0);
}

// Collectives and waits are as long as they were; waits for messages are the simulation's.
TEST(a_measured_rank_stands_still) {
    const Prices prices = {.machine = {.gpu = "", .about = "", .sources = ""}, .measured = &kStep};
    const SecondsByKind p = seconds_of_action(
        {cost("all_gather", "shard", Kind::Collective, 8), cost("copy", nullptr, Kind::Memory, 400),
         cost("all_gather", "shard", Kind::Wait, 0), cost("recv", "pp", Kind::Wait, 0)},
        prices);
    EXPECT_NEAR(p.memory, 8, 0);
    EXPECT_NEAR(p.exposed, 2 + 4, 0);
    EXPECT_NEAR(p.hidden, 0, 0);
}

// ---------------------------------------------------------------------------------------------------------
// the program

static string cache_of(const string& name) { return test::folder("cache_" + name); }
static string machine_of(const string& name) { return cache_of(name) + "/train_gpt/machine.json"; }

static Ran planned(const string& name, const string& args) {
    return test::run("XDG_CACHE_HOME=" + cache_of(name) + " ./train_gpt " +
                     test::tiny_program_config("measured_plan", {{"model", {{"layers", 8}}}}) +
                     " --plan --cluster.gpu=auto " + args);
}
static json figures_of(const Ran& ran) {
    EXPECT(ran.code == 0, "exit %d: %s", ran.code, ran.err.c_str());
    const json p = json::parse(ran.out, nullptr, false);
    EXPECT(p.is_object(), "%s", ran.out.c_str());
    return p;
}
static bool measures(const Ran& ran) { return ran.err.find("measuring") != ran.err.npos; }

// The prices of a step add up to the step.
static void expect_whole(const json& machine) {
    for (const auto& [key, step] : machine.at("steps").items()) {
        double sum = 0;
        for (const json& row : step.at("ops")) sum += row[7].get<double>() * row[8].get<double>();
        EXPECT_NEAR(sum, step.at("seconds").get<double>(), 1e-9);
        EXPECT(step.at("layers") == 4, "%s", step.at("layers").dump().c_str());
    }
}

TEST(this_machine_is_measured_once) {
    const Ran first = planned("once", "--json"), again = planned("once", "--json");
    const json p = figures_of(first);
    EXPECT(measures(first) && !measures(again) && again.err.empty(), "%s", again.err.c_str());
    EXPECT(p == figures_of(again), "%s, then %s", first.out.c_str(), again.out.c_str());
    EXPECT(
        p.at("step_seconds").get<double>() > 0 && p.at("mfu").get<double>() > 0 && p.at("fits").get<bool>(),
        "%s", p.dump().c_str());
    json machine = json::parse(test::text_of(machine_of("once")));
    expect_whole(machine);
    // 8 layers of which 4 were measured: twice the blocks
    const double measured = machine.at("steps").begin()->at("seconds");
    const double ratio = p.at("step_seconds").get<double>() / measured;
    EXPECT(ratio > 1 && ratio < 2, "%g of the measured step", ratio);
    const Ran text = planned("once", "");
    for (const char* words : {"matrix products", "tokens/s", "4 of 8 layers", "machine.json"})
        EXPECT(text.out.find(words) != text.out.npos, "'%s' is missing in %s", words, text.out.c_str());
    EXPECT(measures(planned("once", "--train.micro_batch=2 --json")), "other sizes are not measured");
    for (const char* same : {"--optimizer.lr=1 --run.dir=elsewhere", "--model.layers=12"})
        EXPECT(!measures(planned("once", string(same) + " --json")), "%s is measured for nothing", same);
    machine["device"] = "cpu: another";
    std::ofstream(machine_of("once")) << machine.dump();
    EXPECT(measures(planned("once", "--json")), "another machine's measurement is taken");
    machine = json::parse(test::text_of(machine_of("once")));
    EXPECT(machine.at("steps").size() == 1, "another machine's measurements are kept");
}

// Nobody knows what this machine costs and how often it fails, but the user.
TEST(costs_of_this_machine_are_settings) {
    const string steps = "--train.steps=1000000 ", costs = "--cluster.watts=100 --cluster.dollars_per_hour=2 "
                                                           "--cluster.failure_hours=0.01 ";
    const Ran unknown = planned("costs", steps), known = planned("costs", steps + costs);
    for (const char* words : {"kWh", "$", "goodput"})
        EXPECT(unknown.out.find(words) == unknown.out.npos, "'%s' in %s", words, unknown.out.c_str());
    const json p = figures_of(planned("costs", steps + costs + "--checkpoint.every=1000 --json"));
    const double hours = 1e6 * p.at("step_seconds").get<double>() / 3600;
    for (const string& words : {fmt::format("{:.4g} kWh", 0.1 * hours), string("at $2.00 an hour and rank"),
                                string("goodput")})
        EXPECT(known.out.find(words) != known.out.npos, "'%s' is missing in %s", words.c_str(),
               known.out.c_str());
    // a failure each 36 s: the restart of 600 s costs nearly all
    const double lost = 600 / 36. + 1000 * p.at("step_seconds").get<double>() / 2 / 36;
    EXPECT_NEAR(p.at("goodput").get<double>(), 1 / (1 + lost), 0.01 / (1 + lost));
    EXPECT(figures_of(planned("costs", steps + "--json")).at("goodput").is_null(), "failures from nowhere");
}

TEST(what_does_not_fit_is_not_measured) {
    const string args = "--model.layers=96 --model.heads=96 --model.channels=12288 ";
    const Ran ran = planned("large", args + "--json"), text = planned("large", args);
    const json p = figures_of(ran);
    EXPECT(!p.at("fits").get<bool>() && p.at("step_seconds").is_null() && !measures(ran), "%s%s",
           p.dump().c_str(), ran.err.c_str());
    EXPECT(text.code == 0 && text.out.find("total ") != text.out.npos, "%d: %s", text.code, text.err.c_str());
}

TEST(a_file_that_is_damaged_or_cannot_be_is_a_warning) {
    std::filesystem::create_directories(cache_of("damaged") + "/train_gpt");
    for (const char* text : {"{", "[1]", "{\"format\": 1}"}) {
        std::ofstream(machine_of("damaged")) << text;
        const Ran ran = planned("damaged", "--json");
        figures_of(ran);
        EXPECT(measures(ran) && ran.err.find("machine.json") != ran.err.npos, "%s: %s", text,
               ran.err.c_str());
    }
    json machine = json::parse(test::text_of(machine_of("damaged")));
    machine["steps"].begin()->at("ops")[0].erase(8);
    std::ofstream(machine_of("damaged")) << machine.dump();
    const Ran row = planned("damaged", "--json");
    EXPECT(row.code == 0 && measures(row) && row.err.find("machine.json") != row.err.npos, "%s",
           row.err.c_str());
    std::ofstream(cache_of("file")) << "no folder";
    const Ran ran = planned("file", "--json");
    figures_of(ran);
    EXPECT(measures(ran) && ran.err.find("cannot be written") != ran.err.npos, "%s", ran.err.c_str());
}

TEST(meshes_of_threads_are_measured) {
    const struct {
        const char* args;
        int dp, pp, tp;
    } meshes[] = {{"--parallel.ranks=2 --parallel.zero=3", 2, 1, 1},
                  {"--parallel.ranks=2 --parallel.tp=2", 1, 1, 2},
                  {"--parallel.ranks=4 --parallel.pp=2 --parallel.zero=1 --memory.recompute=block", 2, 2, 1}};
    for (const auto& [args, dp, pp, tp] : meshes) {
        const json p = figures_of(planned("meshes", string("--json --train.micro_batch=1 ") + args));
        EXPECT(p.at("mesh").at("dp") == dp && p.at("mesh").at("pp") == pp && p.at("mesh").at("tp") == tp,
               "%s", p.dump().c_str());
        const double exposed = p.at("communication_exposed"), bubble = p.at("bubble");
        EXPECT(exposed > 0 && exposed < 1 && (pp > 1 ? bubble > 0 : std::abs(bubble) < 1e-9), "%s: %g, %g",
               args, exposed, bubble);
    }
}

TEST(what_cannot_be_measured_is_one_line) {
    const std::pair<const char*, const char*> cases[] = {
        {"--cluster.node_gbs=5", "node_gbs"},
        {"--cluster.file=mine.json", "cluster.file"},
        {"--train.micro_batch=3", "micro_batch"}};
    for (const auto& [args, words] : cases) {
        const Ran ran = planned("mistakes", args);
        EXPECT(ran.code == 78 && ran.out.empty() && ran.err.find(words) != ran.err.npos, "%s: exit %d, %s",
               args, ran.code, ran.err.c_str());
    }
    EXPECT(!test::there(machine_of("mistakes")), "a mistake is measured");
}
