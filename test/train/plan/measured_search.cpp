// --plan=search with cluster.gpu=auto: which models it measures, and the times of ops by their steps. The
// search against brute force. Tables of 1, 2 and 4 ranks, as a user asks for them.
#include <filesystem>
#include <set>

#include "llmc/train/plan/measured_search.h"
#include "test/program.h"
#include "test/tiny.h"

namespace PRECISION {

static Config searched_config() {
    Config cfg = tiny_config();
    cfg.model.layers = 4, cfg.model.heads = 4, cfg.model.channels = 64, cfg.model.context = 32;
    cfg.train.batch_tokens = 16 * 32;
    cfg.sample.every = 0;
    cfg.run.threads = 1;
    return cfg;
}

// The machine of `ranks` ranks without rates.
static Machine here(int ranks) {
    Machine m = {.gpu = "this", .about = "", .sources = ""};
    m.memory_gb = 1, m.gpus_per_node = ranks, m.bf16_tflops = m.fp32_tflops = 1;
    m.product_unit = 1;
    return m;
}

// Every tp and every pp is measured once, with few tokens, and a larger micro-batch.
TEST(few_small_models_are_measured) {
    Config cfg = searched_config();
    cfg.model.context = 4096, cfg.model.vocab = 50000;
    cfg.train.batch_tokens = 16 * 4096;
    std::set<std::pair<int, int>> meshes;
    const std::vector<Config> models = models_to_measure(candidates_of(cfg, 4, here(4)), 4);
    for (const Config& c : models) {
        const ParallelConfig& p = c.parallel;
        meshes.insert({p.tp, p.pp});
        EXPECT(c.model.layers == p.pp && c.model.context == 512 && c.model.vocab == 4096, "%d of %d",
               c.model.layers, c.model.context);
        const int dp = 4 / (p.tp * p.pp);
        EXPECT(mesh_mistake(p, c.model, 4).empty() && batch_divides(c, dp, c.train.micro_batch),
               "tp %d, pp %d: no mesh", p.tp, p.pp);
    }
    EXPECT(meshes == (std::set<std::pair<int, int>>{{1, 1}, {1, 2}, {1, 4}, {2, 1}, {4, 1}}), "%zu meshes",
           meshes.size());
    EXPECT(models.size() == 6 && models.back().train.micro_batch == 2, "%zu models, micro-batch %d",
           models.size(), models.back().train.micro_batch);
    EXPECT(models_to_measure({}, 4).empty(), "a model without candidates");
}

static MeasuredOp op(const char* name, const char* axis, Kind kind, uint64_t read, double calls,
                     double seconds) {
    return {.name = name, .axis = axis, .kind = kind, .read = read, .calls = calls, .seconds = seconds};
}

// An op has its time on a mesh with as many stages; a collective takes its waits' time, by bytes.
TEST(an_op_is_of_its_number_of_stages) {
    Config one, two;
    two.parallel.pp = 2;
    const MeasuredMeshes all = {
        {{one, {.date = "", .ops = {op("norm", "", Kind::Memory, 100, 1, 3),
                                    op("copy", "", Kind::Memory, 100, 1, 5),
                                    op("all_gather", "shard", Kind::Collective, 10, 1, 1),
                                    op("all_gather", "shard", Kind::Collective, 30, 1, 1),
                                    op("all_gather", "shard", Kind::Wait, 0, 2, 3)}}},
         {two, {.date = "", .ops = {op("norm", "", Kind::Memory, 100, 1, 2)}}}}};
    const auto seconds = [&](int pp, const char* name, Kind kind, uint64_t read, const char* axis = nullptr) {
        return all.of_stages(pp).seconds_of({.name = name, .kind = kind, .read = read, .axis = axis});
    };
    EXPECT_NEAR(seconds(1, "norm", Kind::Memory, 100), 3, 0);
    EXPECT_NEAR(seconds(2, "norm", Kind::Memory, 100), 2, 0);
    EXPECT_NEAR(seconds(0, "norm", Kind::Memory, 100), 2, 0);
    EXPECT_NEAR(seconds(2, "copy", Kind::Memory, 100), 5, 0);
    EXPECT_NEAR(seconds(1, "all_gather", Kind::Collective, 10, "shard"), 2, 1e-12);
    EXPECT_NEAR(seconds(1, "all_gather", Kind::Collective, 30, "shard"), 6, 1e-12);
    EXPECT_NEAR(seconds(1, "all_gather", Kind::Wait, 0, "shard"), 0, 0);
}

// Of real steps of this machine: no candidate is faster than those that are found.
TEST(no_mesh_of_this_machine_is_overlooked) {
    const Config cfg = searched_config();
    const Machine machine = here(2);
    MeasuredMeshes measured;
    for (const Config& c : models_to_measure(candidates_of(cfg, 2, machine), 2))
        measured.steps.emplace_back(c, measure_step(c, 2, {.seconds = 0.05, .taken = Taken::Fastest}));
    const Estimator estimate = measured_estimator(measured, 2, 1);
    const Search found = search(cfg, 2, machine, estimate);
    std::vector<double> seconds;
    for (const Config& c : candidates_of(cfg, 2, machine)) {
        const Estimate e = estimate(c, 2, machine);
        EXPECT(e.step.seconds > 0 && e.fits, "tp %d, pp %d: %g s", c.parallel.tp, c.parallel.pp,
               e.step.seconds);
        seconds.push_back(e.step.seconds);
    }
    std::sort(seconds.begin(), seconds.end());
    EXPECT(found.best.size() == Search::kShown && found.rejected() + found.best.size() == seconds.size(),
           "%zu of %zu shown", found.best.size(), seconds.size());
    for (size_t i = 0; i < found.best.size(); i++) EXPECT_NEAR(found.best[i].step.seconds, seconds[i], 0);
    context.threads = 1;
}

// ---------------------------------------------------------------------------------------------------------
// the program, once

using test::Ran, test::json, std::string;

static Ran searched(const string& args) {
    return test::run("XDG_CACHE_HOME=" + test::folder("cache_measured_search") + " ./train_gpt " +
                     test::tiny_program_config("measured_search", {{"model", {{"layers", 4}}}}) +
                     " --plan=search --cluster.gpu=auto " + args);
}

TEST(this_machine_has_a_table_of_meshes) {
    if (!kIsBf16) return;
    for (const int ranks : {1, 2, 4}) {
        const string args = "--parallel.ranks=" + std::to_string(ranks);
        const Ran first = searched(args), again = searched(args), text = searched(args + " --json");
        EXPECT(first.code == 0 && first.err.find("measuring") != first.err.npos, "%d ranks: exit %d, %s",
               ranks, first.code, first.err.c_str());
        EXPECT(again.err.empty() && again.out == first.out, "%d ranks: measured twice: %s", ranks,
               again.err.c_str());
        for (const char* words : {"the fastest of", "tokens/s", "small models", "machine.json"})
            EXPECT(first.out.find(words) != first.out.npos, "'%s' is missing in %s", words,
                   first.out.c_str());
        const json s = json::parse(text.out, nullptr, false);
        EXPECT(s.is_object() && !s.at("candidates").empty(), "%s", text.out.c_str());
        for (const json& c : s.at("candidates"))
            EXPECT(c.at("mesh").at("ranks") == ranks && c.at("step_seconds").get<double>() > 0, "%s",
                   c.dump().c_str());
        // the command plans, by a measurement of its own
        const Ran plan = test::run("XDG_CACHE_HOME=" + test::folder("cache_measured_search") + " " +
                                   s.at("command").get<string>() + " --plan --json");
        EXPECT(plan.code == 0 && json::parse(plan.out, nullptr, false).at("memory_bytes") ==
                                     s.at("candidates")[0].at("memory_bytes"),
               "%s: %s", s.at("command").dump().c_str(), plan.err.c_str());
    }
    const Ran counts = searched("");
    EXPECT(counts.code == 0 && counts.out.find("ranks") < counts.out.find("tokens/s"), "exit %d: %s",
           counts.code, counts.out.c_str());
    const Ran priced = searched("--cluster.dollars_per_hour=2 --cluster.dollars=1000");
    EXPECT(priced.code == 0 && priced.out.find("the fastest within $1,000: ") != priced.out.npos,
           "exit %d: %s%s", priced.code, priced.out.c_str(), priced.err.c_str());
    for (const char* key : {"node_gbs", "dollars"}) {
        const Ran wrong = searched("--cluster." + string(key) + "=5");
        EXPECT(wrong.code == 78 && wrong.out.empty() && wrong.err.find(key) != wrong.err.npos, "%s",
               wrong.err.c_str());
    }
}

}  // namespace PRECISION
