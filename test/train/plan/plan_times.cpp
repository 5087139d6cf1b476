// --plan with times, and --plan=search, as a user calls them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "test/program.h"

using test::Ran, test::json;

static const std::string kArgs = " --cluster.gpu=h100 --run.precision=bf16 ";

static json printed(const std::string& args) {
    const Ran ran = test::run("./train_gpt " + args);
    EXPECT(ran.code == 0 && ran.err.empty(), "%s: exit %d, %s", args.c_str(), ran.code, ran.err.c_str());
    return ran.code == 0 ? json::parse(ran.out, nullptr, false) : json();
}

TEST(the_object_has_every_figure) {
    const std::string config = test::tiny_program_config("plan_times");
    const json p = printed(config + kArgs +
                           "--plan --json --parallel.ranks=4 --parallel.zero=1 "
                           "--train.micro_batch=2");
    double sum = 0;
    for (const char* part : {"weights", "gradients", "optimizer", "activations", "other"})
        sum += p.at("memory").at(part).get<double>();
    EXPECT_NEAR(sum, p.at("memory_bytes").get<double>(), 0);
    EXPECT_NEAR(p.at("tokens_per_second").get<double>() * p.at("step_seconds").get<double>(), 256, 1e-6);
    EXPECT(p.at("fits").get<bool>() && p.at("mfu").get<double>() > 0 && p.at("mfu").get<double>() < 1, "%s",
           p.dump().c_str());
    EXPECT(p.at("mesh") == json({{"dp", 4}, {"tp", 1}, {"pp", 1}, {"cp", 1}, {"ranks", 4}}), "%s",
           p.dump().c_str());
    const double exposed = p.at("communication_exposed").get<double>();
    EXPECT(exposed > 0 && exposed < 1 && p.at("bubble").get<double>() == 0, "%s", p.dump().c_str());
    const json here = printed(config + " --plan --json");
    EXPECT(here.at("step_seconds").is_null() && here.at("memory_bytes").get<double>() > 0, "%s",
           here.dump().c_str());
}

TEST(a_plan_that_does_not_fit_says_so) {
    const std::string config = test::tiny_program_config("plan_times");
    const json p = printed(config + kArgs + "--plan --json --cluster.memory_gb=0.0001");
    EXPECT(!p.at("fits").get<bool>(), "%s", p.dump().c_str());
    const Ran ran = test::run("./train_gpt " + config + kArgs + "--plan --cluster.memory_gb=0.0001");
    EXPECT(ran.code == 0 && ran.out.starts_with("does not fit: ") &&
           has(ran.out, "of 100 kB of a h100\n  no ZeRO stage"), "%s", ran.out.c_str());
}

// As a run is refused on such a GPU.
TEST(products_of_fp8_need_a_machine_that_has_them) {
    const std::string fp8 = " --cluster.gpu=a100 --run.precision=bf16 --run.products=fp8 --plan";
    const std::string config = "./train_gpt scripts/gpt2_124M.json --parallel.ranks=8" + fp8;
    for (const std::string& command : {config, config + "=search", config + " --json"}) {
        const Ran ran = test::run(command);
        EXPECT(ran.code == 78 && ran.out.empty() &&
               ran.err.starts_with("error: run.products = fp8: the machine a100 states no fp8_tflops") &&
               has(ran.err, "set run.products to bf16, or cluster.gpu to one of b200, h100") &&
               ran.err.find('\n') == ran.err.size() - 1, "%s: exit %d, %s", command.c_str(), ran.code,
               ran.err.c_str());
    }
    const Ran has_them = test::run(config + " --cluster.gpu=h200");
    EXPECT(has_them.code == 0 && has(has_them.out, "FP8 products at 1978.9 TFLOP/s"), "%s",
           has_them.out.c_str());
}

// The first line is the verdict; the second has settings with which the plan fits.
TEST(what_would_fit_fits) {
    struct Case {
        const char *args, *settings;
    };
    for (const auto& [args, settings] : {
             Case{"scripts/gpt2_1558M.json --cluster.gpu=rtx4090", " --memory.offload=optimizer"},
             Case{"scripts/llama3_70B.json --cluster.gpu=h100 --parallel.ranks=64 --train.micro_batch=2",
                  " --parallel.zero=3 --train.micro_batch=1 --memory.recompute=block"},
             Case{"scripts/llama3_8B.json --cluster.gpu=rtx4090",
                  " --parallel.ranks=32 --parallel.zero=3 --memory.recompute=block"}}) {
        const std::string plan = "./train_gpt " + std::string(args) + " --plan";
        const Ran as_it_is = test::run(plan), smaller = test::run(plan + settings);
        EXPECT(as_it_is.out.starts_with("does not fit: ") &&
               has(as_it_is.out, std::string("\n  fits with") + settings + ":"), "%s: %s", args,
               as_it_is.out.substr(0, 400).c_str());
        EXPECT(smaller.out.starts_with("fits: "), "%s: %s", settings, smaller.out.substr(0, 400).c_str());
    }
}

// A terminal shows the settings by --plan=full, a script gets them.
TEST(settings_are_for_scripts) {
    if (test::run("script -qec true /dev/null").code != 0) return test::skip("no script(1)");
    const std::string config = test::tiny_program_config("plan_times"), key = "\"batch_tokens\"";
    const auto on_terminal = [&](const std::string& plan) {
        return test::run("script -qec './train_gpt " + config + " " + plan + "' /dev/null").out;
    };
    const std::string brief = on_terminal("--plan"), full = on_terminal("--plan=full");
    EXPECT(brief.starts_with("fits: ") && has(brief, "memory plan: ") && !has(brief, key), "%s",
           brief.c_str());
    EXPECT(full.starts_with("fits: ") && has(full, key), "%s", full.c_str());
    EXPECT(has(test::run("./train_gpt " + config + " --plan").out, key), "a script");
    EXPECT(printed(config + " --plan --json").at("settings").at("train").at("batch_tokens") == 256, "JSON");
}

TEST(the_printed_command_plans_the_same) {
    const std::string config = test::tiny_program_config("plan_times", {{"about", "it's quoted"}});
    const json s =
        printed(config + kArgs +
                "--plan=search --json --parallel.ranks=4 --train.micro_batch=1 '--about=it'\\''s quoted'");
    const json& best = s.at("candidates");
    EXPECT(best.size() > 1 && s.at("rejected").get<int>() > 0, "%s", s.dump().c_str());
    for (size_t i = 1; i < best.size(); i++)
        EXPECT(best[i].at("step_seconds").get<double>() >= best[i - 1].at("step_seconds").get<double>(),
               "order");
    std::string command = s.at("command").get<std::string>();
    EXPECT(command.starts_with("./train_gpt "), "%s", command.c_str());
    for (const char* key : {"--parallel.ranks=", "--train.micro_batch=", "--parallel.tp=", "--about="}) {
        const size_t at = command.find(key);
        EXPECT(at != command.npos && command.find(key, at + 1) == command.npos, "%s in %s", key,
               command.c_str());
    }
    const json again = printed(command.substr(12) + " --plan --json");
    for (const char* key : {"step_seconds", "memory_bytes", "mfu", "bubble", "communication_exposed"})
        EXPECT_NEAR(again.at(key).get<double>(), best[0].at(key).get<double>(), 0);
}

TEST(the_tables_say_what_matters) {
    const std::string config = test::tiny_program_config("plan_times");
    const Ran plan = test::run("./train_gpt " + config + kArgs + "--plan --parallel.ranks=4 --parallel.pp=2");
    for (const char* words :
         {"memory plan", "matrix products", "waiting for communication", "pipeline bubble", "tokens/s", "kWh",
          "$", "goodput", "checkpoint.every=", "of it the optimizer", "communication beside ops: "})
        EXPECT(plan.out.find(words) != plan.out.npos, "'%s' is missing in %s", words, plan.out.c_str());
    const Ran single = test::run("./train_gpt " + config + kArgs + "--plan --parallel.ranks=1");
    for (const char* words : {"waiting for communication", "pipeline bubble", "communication beside ops"})
        EXPECT(single.out.find(words) == single.out.npos, "'%s' of one rank", words);
    const Ran found = test::run("./train_gpt " + config + kArgs + "--plan=search --parallel.ranks=2");
    for (const char* words : {"the fastest of", "recompute", "need more memory", "./train_gpt "})
        EXPECT(found.out.find(words) != found.out.npos, "'%s' is missing in %s", words, found.out.c_str());
}

TEST(without_ranks_each_number_of_gpus_has_a_row) {
    const std::string config = test::tiny_program_config("plan_times") + kArgs + "--train.micro_batch=1 ";
    const json s = printed(config + "--plan=search --json");
    const json& all = s.at("candidates");
    std::set<int> ranks;
    for (const json& c : all) ranks.insert(c.at("mesh").at("ranks").get<int>());
    // 8 sequences over 1, 2, 4, 8 GPUs; then heads and layers divide, too
    EXPECT(ranks.size() == all.size() && all.size() > 4 && ranks.contains(8), "%s", s.dump().c_str());
    EXPECT(std::is_sorted(all.begin(), all.end(), [](const json& a, const json& b) {
               return a.at("step_seconds") < b.at("step_seconds");
           }), "the fastest is not the first");
    EXPECT(s.at("rejected") > int(all.size()), "%s", s.at("rejected").dump().c_str());
    const Ran again = test::run(s.at("command").get<std::string>() + " --plan --json");
    EXPECT(again.code == 0 && json::parse(again.out, nullptr, false).value("step_seconds", 0.) ==
           all[0].at("step_seconds"), "%s: %s", s.at("command").dump().c_str(), again.err.c_str());
    const Ran text = test::run("./train_gpt " + config + "--plan=search");
    for (const char* words : {"GPUs", "kWh", "$", "--parallel.ranks=N"})
        EXPECT(text.out.find(words) != text.out.npos, "'%s' is missing in %s", words, text.out.c_str());
}

TEST(a_deadline_has_one_answer_and_its_command) {
    const std::string config =
        test::tiny_program_config("plan_times") + kArgs + "--train.micro_batch=1 --cluster.days=1 ";
    const Ran text = test::run("./train_gpt " + config + "--plan=search");
    for (const char* words : {"the cheapest within 1 day: ", "--parallel.tp="})
        EXPECT(text.out.find(words) != text.out.npos, "'%s' is missing in %s", words, text.out.c_str());
    const json s = printed(config + "--plan=search --json --cluster.days=1e-9");
    EXPECT(s.at("candidates").empty() && s.at("command") == "" && s.at("rejected") > 4, "%s",
           s.dump().c_str());
    const Ran plan = test::run("./train_gpt " + config + "--plan --cluster.days=1e-9");
    EXPECT(plan.out.find("; more than 1e-09 days") != plan.out.npos, "%s", plan.out.c_str());
}

// A config may stand on the command line itself.
TEST(a_config_in_braces_is_the_config) {
    const json p = printed("'{\"model\": {\"layers\": 3, \"vocab\": 1000}}' --plan --json");
    const json two = printed("'{}' --model.layers=3 --model.vocab=1000 --plan --json");
    EXPECT(p.at("params") == two.at("params") && p.at("params") > 1000000, "%s", p.dump().c_str());
    const Ran wrong = test::run("./train_gpt '{\"model\": {\"layer\": 3}}' --plan");
    EXPECT(wrong.code == 78 && wrong.err.find("model.layer") != wrong.err.npos, "%s", wrong.err.c_str());
}

// Kernels of this program for norms take at most 32,768 channels in bf16. Plans of other programs' runs know
// no such limit.
TEST(another_programs_kernels_take_every_size) {
    const std::string file = test::folder("any_size") + "/machine.json";
    std::filesystem::create_directories(test::folder("any_size"));
    std::ofstream(file) << R"({"gpu": "a100", "any_size": 1})";
    const std::string wide = test::tiny_program_config("plan_times") +
                             " --model.channels=40960 --model.heads=320 --run.precision=bf16 --plan --json ";
    const json p = printed(wide + "--cluster.file=" + file);
    EXPECT(p.at("step_seconds").get<double>() > 0, "%s", p.dump().c_str());
    const std::string as_text = wide.substr(0, wide.find(" --json"));
    const Ran text = test::run("./train_gpt " + as_text + " --cluster.file=" + file);
    EXPECT(text.code == 0 && text.out.find("memory plan") != text.out.npos, "%s", text.err.c_str());
    const Ran own = test::run("./train_gpt " + wide + "--cluster.gpu=a100");
    EXPECT(own.code == 78 && own.err.find("32768") != own.err.npos, "exit %d: %s", own.code, own.err.c_str());
    const Ran most = test::run("./train_gpt " + as_text + " --cluster.gpu=h100 --model.channels=25600 "
                               "--model.heads=200 --parallel.ranks=2");
    EXPECT(most.code == 0 && most.out.find("buffers of NCCL") != most.out.npos, "exit %d: %s", most.code,
           most.err.c_str());
    EXPECT(text.out.find("NCCL") == text.out.npos, "one rank: %s", text.out.c_str());
}

// NCCL has more channels on a GPU with more multiprocessors.
TEST(buffers_of_nccl_are_planned_with_the_rest) {
    const std::string folder = test::folder("units");
    const std::string ranks = test::tiny_program_config("plan_times") +
                              " --run.precision=bf16 --plan --json --parallel.ranks=";
    std::filesystem::create_directories(folder);
    const auto other = [&](int units, int count) {
        const std::string file = fmt::format("{}/units_{}.json", folder, units);
        std::ofstream(file) << R"({"gpu": "a100", "units": )" << units << "}";
        const json p = printed(fmt::format("{}{} --cluster.file={}", ranks, count, file));
        return p.at("memory").at("other").get<double>();
    };
    EXPECT(other(8, 1) == other(64, 1), "%g and %g bytes without NCCL", other(8, 1), other(64, 1));
    EXPECT(other(8, 2) - other(8, 1) > 1e7 && other(64, 2) - other(8, 2) > 1e8, "%g, %g and %g bytes",
           other(8, 1), other(8, 2), other(64, 2));
}

// Heads of 160 channels, 8 x 35 and 8 x 64 GPUs (Narayanan et al. 2021, arXiv 2104.04473).
TEST(the_largest_models_of_megatron_have_plans) {
    const std::string shared = "scripts/gpt2_124M.json --model.context=2048 --model.vocab=51200 "
                               "--parallel.tp=8 --train.micro_batch=1 --memory.recompute=block "
                               "--cluster.gpu=a100 --run.precision=bf16 --plan --json ";
    const json half = printed(shared + "--model.layers=105 --model.channels=20480 --model.heads=128 "
                              "--parallel.pp=35 --parallel.ranks=280 --train.batch_tokens=4587520");
    const json whole = printed(shared + "--model.layers=128 --model.channels=25600 --model.heads=160 "
                               "--parallel.pp=64 --parallel.ranks=512 --train.batch_tokens=6291456");
    for (const json& p : {half, whole})
        EXPECT(p.at("fits").get<bool>() && p.at("mfu").get<double>() > 0.2, "%s", p.dump().c_str());
}

TEST(mistakes_are_one_line) {
    const std::string config = test::tiny_program_config("plan_times");
    struct { const char *args, *words; int64_t lines = 1; } const cases[] = {
        {"--plan=serach", "serach"},
        {"--plan --cluster.gpu=b9000", "b9000"},
        {"--plan=search --parallel.ranks=8", "cluster.gpu"},
        {"--plan=search --cluster.gpu=auto", "--cluster.gpu"},
        {"--plan --cluster.gpu=h100 --cluster.network_gbs=-1", "network_gbs", 2},    // and its meaning
        {"--plan --cluster.gpu=h100 --run.precision=fp64", "bf16 or fp32"},
        {"--plan=search --cluster.file=scripts/machines/a100.json --run.precision=fp64", "bf16 or fp32"},
        {"--plan --cluster.gpu=h100 --parallel.ranks=8 --parallel.tp=3", "parallel.tp"},
        {"--plan --cluster.gpu=h100 --parallel.ranks=3 --parallel.pp=2", "3 ranks"},
        {"--plan --cluster.gpu=h100 --train.steps=0", "train.steps = 0"},
        {"--plan=search --cluster.gpu=h100 --train.steps=0", "train.steps = 0"},
        {"--plan --cluster.gpu=auto --train.steps=0", "train.steps = 0"},
        {"--json", "--plan"},
        {"--plan --cluster.file=/nowhere.json", "/nowhere.json"}};
    for (const auto& [args, words, expected] : cases) {
        const Ran ran = test::run("./train_gpt " + config + " " + args);
        EXPECT(ran.code == 78 && ran.out.empty() && ran.err.find(words) != ran.err.npos, "%s: exit %d, %s",
               args, ran.code, ran.err.c_str());
        const auto lines = std::count(ran.err.begin(), ran.err.end(), '\n');
        EXPECT(lines == expected && ran.err.back() == '\n', "%s: %td lines: %s", args, lines,
               ran.err.c_str());
    }
}

// README's answers are the planner's.
TEST(the_readme_states_what_is_planned) {
    const std::string readme = test::text_of("README.md"),
                      h100 = " --json --cluster.gpu=h100 --parallel.ranks=";
    const auto parsed = [](const std::string& path) { return json::parse(std::ifstream("scripts/" + path)); };
    const double dollars = parsed("machines/h100.json").at("dollars_per_hour").get<double>();
    const auto expect_said = [&](const std::string& words) {
        EXPECT(readme.find(words) != readme.npos, "README lacks '%s'", words.c_str());
    };
    const auto hours = [&](const std::string& name, const json& plan) {
        const double steps = parsed(name).at("train").at("steps");
        return steps * plan.at("step_seconds").get<double>() / 3600;
    };
    const json small = printed("scripts/gpt2_774M.json --plan --json --cluster.gpu=rtx4090");
    const json large = printed("scripts/gpt2_1558M.json --plan --json --cluster.gpu=rtx4090");
    EXPECT(small.at("fits").get<bool>() && !large.at("fits").get<bool>(), "what fits");
    const double bytes = small.at("memory_bytes");
    expect_said(fmt::format("fits: {:.1f} of 24 GB; 1558M does not", 1e-9 * bytes));
    const double h = hours("gpt2_1558M.json", printed("scripts/gpt2_1558M.json --plan" + h100 + "8")),
                 few = hours("gpt2_124M.json", printed("scripts/gpt2_124M.json --plan" + h100 + "8"));
    expect_said(fmt::format("124M: {:.0f} min, ${:.0f}<br>1558M: {:.0f} h, ${:.0f}<br>8B: ", 60 * few,
                            8 * dollars * few, h, 8 * dollars * h));
    for (const char* model : {"124M", "1558M"})
        expect_said(fmt::format("`scripts/gpt2_{}.json --plan --cluster.gpu=h100 --parallel.ranks=8`",
                                model));
    const auto best = [&](const std::string& args) { return printed(args).at("candidates").at(0); };
    const json of_8B = best("scripts/llama3_8B.json --plan=search" + h100 + "512");
    const double days = hours("llama3_8B.json", of_8B) / 24;
    expect_said(fmt::format("ZeRO {}: {:.0f} days, ${:.1f} M", int(of_8B.at("options").at("zero")), days,
                            1e-6 * 512 * 24 * dollars * days));
    const json of_70B = best("scripts/llama3_70B.json --plan=search" + h100 + "256");
    const json &mesh = of_70B.at("mesh"), &options = of_70B.at("options");
    const std::string recompute = options.at("recompute");
    expect_said(fmt::format("dp {}, tp {}, pp {}, ZeRO {}, micro-batch {}, recompute {}: {:.0f} s a step",
                            int(mesh.at("dp")), int(mesh.at("tp")), int(mesh.at("pp")),
                            int(options.at("zero")), int(options.at("micro_batch")), recompute,
                            double(of_70B.at("step_seconds"))));
}
