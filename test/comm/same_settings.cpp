// Ranks with different settings: every rank ends, and the message names the setting.
#include "llmc/comm/same_settings.h"

#include <barrier>
#include <csignal>
#include <thread>

#include "llmc/base/config/fields.h"
#include "llmc/comm/rendezvous/rendezvous.h"
#include "test/program.h"

using namespace test;
using std::string;

static void change(int64_t* v) { ++*v; }
static void change(int* v) { ++*v; }
static void change(double* v) { *v += 0.25; }
static void change(bool* v) { *v = !*v; }
static void change(Word* v) { v->index = v->index ? 0 : 1; }
static void change(string* v) { *v += "x"; }
static void change(std::vector<Corpus>* v) { v->push_back({"more.bin"}); }
static void change(std::vector<string>* v) { v->push_back("more"); }
static void change(std::vector<int>* v) { v->push_back(1); }
static void change(std::vector<int64_t>* v) { v->push_back(1); }
static void change(RopeScaling* v) { v->kind = v->used() ? RopeScalingKind::None : RopeScalingKind::Yarn; }
static void change(RollbackRule* v) { v->every++; }

// What rank 0 of three ends in; rank 2 has settings of its own.
static Fatal end_of(const Config& cfg, const Config& other, const string& other_task = "") {
    constexpr int kRanks = 3;
    std::vector<string> texts(kRanks);
    std::barrier meet(kRanks);
    Fatal ends[kRanks] = {{0, ""}, {0, ""}, {0, ""}};
    {
        std::vector<std::jthread> ranks;
        for (int r = 0; r < kRanks; r++)
            ranks.emplace_back([&, r] {
                const auto exchange = [&](const string& own) {
                    texts[size_t(r)] = own;
                    meet.arrive_and_wait();
                    const std::vector<string> all = texts;
                    meet.arrive_and_wait();
                    return all;
                };
                ends[r] = fatal_of([&] {
                    check_same_settings(r == 2 ? other : cfg, r == 2 ? other_task : "", exchange);
                });
            });
    }
    for (const Fatal& e : ends)
        EXPECT(e.code == ends[0].code && string(e.what()) == ends[0].what(), "'%s', '%s'", e.what(),
               ends[0].what());
    return ends[0];
}

TEST(every_setting_is_compared) {
    const Config cfg;
    EXPECT(end_of(cfg, cfg).code == 0, "'%s'", end_of(cfg, cfg).what());
    Config other, defaults;
    const std::vector<Field> changed = fields(other), before = fields(defaults);
    for (size_t i = 0; i < changed.size(); i++) {
        const string old = value_json(before[i].value);
        other = cfg;
        std::visit([](auto* v) { change(v); }, changed[i].value);
        const string now = value_json(changed[i].value), path = changed[i].path();
        const Fatal e = end_of(cfg, other);
        const string want = path + " differs between ranks: " + old + " on rank 0, " + now + " on rank 2.";
        EXPECT(e.code == kExitConfig && string(e.what()).starts_with(want), "%s: '%s'", path.c_str(),
               e.what());
    }
    const Fatal task = end_of(cfg, cfg, "--generate=a");
    EXPECT(task.code == kExitConfig && string(task.what()).find("\"--generate=a\" on rank 2") != string::npos,
           "'%s'", task.what());
}

TEST(long_values_are_compared_whole) {
    Config cfg, other;
    cfg.sample.prompt = string(100000, 'a') + "b", other.sample.prompt = string(100000, 'a') + "c";
    const Fatal e = end_of(cfg, other);
    EXPECT(e.code == kExitConfig && strlen(e.what()) < 500 && string(e.what()).starts_with("sample.prompt "),
           "'%s'", e.what());
}

// Two meetings in a row, at the same port.
TEST(settings_are_compared_over_tcp) {
    Config cfg, other;
    other.optimizer.lr *= 2;
    for (const bool same : {true, false}) {
        Fatal ends[2] = {{0, ""}, {0, ""}};
        const uint16_t port = uint16_t(20000 + getpid() % 20000);
        std::vector<std::jthread> ranks;
        for (int r = 0; r < 2; r++)
            ranks.emplace_back([&, r] {
                const Rendezvous at = {.rank = r, .world = 2, .host = "localhost",
                                       .ports = {port, uint16_t(port + 1), uint16_t(port + 2)},
                                       .job = fmt::format("settings {}", getpid()), .secret = "",
                                       .timeout = 60};
                ends[r] = fatal_of([&] {
                    check_same_settings(r == 1 && !same ? other : cfg, "",
                                        [&](const string& own) { return exchange(at, own); });
                });
            });
        ranks.clear();
        for (const Fatal& e : ends)
            EXPECT(e.code == (same ? 0 : kExitConfig) &&
                       (same || string(e.what()).starts_with("optimizer.lr ")),
                   "code %d, '%s'", e.code, e.what());
    }
}

TEST(ranks_of_mpirun_with_different_settings) {
    if (run("command -v mpirun").code != 0 || run("./train_gpt --version").out.find("MPI") == string::npos)
        return skip("no mpirun, or built without MPI");
    const string one = "-np 1 ./train_gpt " + tiny_program_config("differs");
    const string mpirun = "mpirun -q --allow-run-as-root --oversubscribe --bind-to none ";
    const string both = mpirun + one + " : " + one + " ";
    for (const string arg :
         {"--model.layers=3", "--train.steps=12", "--parallel.tp=2", "--run.hang_timeout=9"}) {
        const Ran ran = run(both + arg);
        const string key = arg.substr(2, arg.find('=') - 2);
        const size_t said = ran.err.find("error: " + key + " differs between ranks: ");
        // mpirun's code is that of the rank whose end it sees first, perhaps by the signal of its supervisor
        const bool refused = ran.code == kExitConfig || ran.code == 128 + SIGSTKFLT;
        EXPECT(refused && said == 0 && ran.err.find("error: ", 1) == string::npos,
               "%s: exit code %d, '%s'", arg.c_str(), ran.code, ran.err.c_str());
        EXPECT(!there(folder("differs") + "/metrics.jsonl"), "%s: training has begun", arg.c_str());
    }
    const Ran one_plans = run(both + "--plan");
    EXPECT(one_plans.code == kExitConfig && one_plans.err.starts_with("error: what to do differs between"),
           "exit code %d, '%s'", one_plans.code, one_plans.err.c_str());
    const Ran all_plan = run(mpirun + one + " --plan : " + one + " --plan");
    EXPECT(all_plan.code == 0 && all_plan.out.find("memory plan") == all_plan.out.rfind("memory plan"),
           "exit code %d, '%s'", all_plan.code, all_plan.err.c_str());
    const Ran wrong = run(both + "--optimizer.lr=-1");
    EXPECT(wrong.code == kExitConfig && wrong.err.find("optimizer.lr=-1: expected") != string::npos &&
               wrong.err.find("(rank 1, start, step 0)") != string::npos, "exit code %d, '%s'", wrong.code,
           wrong.err.c_str());
}
