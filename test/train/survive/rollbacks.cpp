// train.rollback with run.elastic: a run that loses ranks goes back at the same steps, to the same bits.
#include "test/elastic_run.h"
#include "test/rolled_back.h"

using namespace test;
using std::string;
namespace fs = std::filesystem;

static string calm_run(int checkpoints) {
    const string name = fmt::format("calm_back_{}", checkpoints);
    const Ran ran = train_gpt(tiny_program_config(name, rolling(checkpoints)),
                              "--parallel.ranks=2 --parallel.zero=1 --parallel.transport=threads");
    EXPECT(ran.code == 0 && rows_of(name, "rollback").size() == 1, "code %d, '%s'", ran.code,
           ran.err.c_str());
    return name;
}

static std::set<string> checkpoints_of(const string& run) {
    std::set<string> names;
    for (const auto& e : fs::directory_iterator(folder(run)))
        if (has(e.path().filename(), "step_")) names.insert(e.path().filename());
    return names;
}

// Before the trouble, in it, and behind. Checkpoints: none before the end; one falls due in the trouble, and
// is saved behind it, whichever rank is lost meanwhile.
TEST(a_lost_rank_changes_no_rollback) {
    for (const int checkpoints : {100, 71}) {
        const string calm = calm_run(checkpoints);
        for (const string fault : {"train:69:kill:1", "train:73:kill:0", "train:74:kill:1",
                                   "train:90:kill:1"}) {
            const string name = fmt::format("lost_back_{}", checkpoints);
            fs::remove_all(folder(name));
            Started agent(tiny_program_config(name, rolling(checkpoints)),
                          elastic_args(name, "--parallel.ranks=2 --parallel.zero=1"), name,
                          "FAULT=" + fault);
            const int code = agent.wait();
            const string log = text_of(agent.log);
            EXPECT(code == 0 && has(log, "it is replaced") && !has(log, "back to the last checkpoint"),
                   "%s: code %d, '%s'", fault.c_str(), code, log.c_str());
            EXPECT(run_of(name) == run_of(calm), "%s, a checkpoint each %d steps: another run",
                   fault.c_str(), checkpoints);
            EXPECT(checkpoints_of(name) == checkpoints_of(calm), "%s: other checkpoints", fault.c_str());
            expect_each_step_once(name);
        }
    }
}

// The images that the run goes back to have copies with the other agent.
TEST(a_lost_agent_changes_no_rollback) {
    const string calm = calm_run(100), name = "agent_back", slow = "FAULT=train:60:60";
    fs::remove_all(folder(name));
    const string config = tiny_program_config(name, rolling(100)),
                 args = elastic_args(name, "--parallel.ranks=2 --parallel.zero=1 --run.slots=1");
    Started a(config, args, "a", slow);
    for (int i = 0; i < 500 && !there(folder(name) + "/lease"); i++) usleep(10000);
    auto b = std::make_unique<Started>(config, args, "b", slow);
    wait_for_rows(name, "train", 2);
    Started c(config, args, "c");
    wait_for_rows(name, "train", 67);
    b.reset();
    const int codes[] = {a.wait(), c.wait()};
    const string log = text_of(a.log);
    EXPECT(codes[0] == 0 && codes[1] == 0 && has(log, "lost") && !has(log, "back to the last checkpoint"),
           "%d %d '%s'", codes[0], codes[1], log.c_str());
    EXPECT(run_of(name) == run_of(calm), "another run");
}
