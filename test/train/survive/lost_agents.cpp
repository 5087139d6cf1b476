// Agents that are lost together: the controller and another, both holders of an image.
#include <fstream>

#include "test/elastic_run.h"

using namespace test;
using std::string, std::vector;

namespace {

// Agents with so many slots each, in the order of their numbers; each has its copies with the next.
struct Agents {
    const string run, config;
    vector<std::unique_ptr<Started>> all;

    Agents(const string& name, const string& conf, const string& settings, const vector<int>& slots)
        : run(name), config(conf) {
        test::run("rm -rf " + folder(run));
        for (const int n : slots) {
            const string args = elastic_args(run, fmt::format("{} --run.slots={}", settings, n));
            all.push_back(std::make_unique<Started>(config, args, run + std::to_string(all.size()),
                                                    "FAULT=train:1:40"));
            // the first has the lease, the next come in their order
            for (int i = 0; i < 500 && !there(folder(run) + "/lease"); i++) usleep(10000);
            usleep(300000);
        }
    }
    void kill(const vector<size_t>& victims) {
        for (const size_t v : victims) all[v]->stop(SIGSTOP);
        for (const size_t v : victims) all[v]->stop(SIGKILL);
    }
    // Exit codes of the others are 0.
    void expect_end(const vector<size_t>& victims) {
        for (size_t i = 0; i < all.size(); i++) {
            const bool lost = std::find(victims.begin(), victims.end(), i) != victims.end();
            const int code = all[i]->wait();
            EXPECT(code == (lost ? 137 : 0), "agent %zu: code %d: '%s'", i, code, log(i).c_str());
        }
    }
    string log(size_t i) const { return text_of(all[i]->log); }
    string ranks_of(size_t i) const {
        string children;
        std::ifstream in(fmt::format("/proc/{0}/task/{0}/children", all[i]->id));
        std::getline(in, children);
        return children;
    }
};

const string kSteps = " --checkpoint.every=10 --eval.every=0 ";

}  // namespace

// The ranks that live go back to the checkpoint, in the same processes, and the rows behind it with them.
TEST(both_holders_of_an_image_lost_send_all_back_to_the_checkpoint) {
    const string config = config_of("holders", 40),
                 mesh = "--parallel.ranks=3 --parallel.zero=2" + kSteps;
    const Ran calm = train_gpt(config, mesh + "--run.elastic=true --parallel.transport=tcp --run.dir=" +
                                           folder("calm"));
    EXPECT(calm.code == 0, "'%s'", calm.err.c_str());
    Agents agents("holders", config, mesh, {1, 1, 3});
    wait_for_rows("holders", "train", 11);
    for (int i = 0; i < 1000 && !there(folder("holders") + "/step_10"); i++) usleep(10000);
    const string before = agents.ranks_of(2);
    agents.kill({0, 1});                            // 0 is the controller
    wait_for_rows("holders", "regroup", 1);
    const string after = agents.ranks_of(2);
    agents.expect_end({0, 1});
    const string log = agents.log(2);
    EXPECT(has(log, "an image is gone with its agents: training goes back to the last checkpoint"), "'%s'",
           log.c_str());
    EXPECT(before.size() > 1 && after.size() > before.size() && has(after, before), "ranks '%s', then '%s'",
           before.c_str(), after.c_str());
    const auto lost = rows_of("holders", "lost");
    EXPECT(lost.size() == 2 && lost[0]["step"] >= 10 && int(lost[0]["step"]) % 10 == 0,
           "%zu lost: '%s'", lost.size(), log.c_str());
    EXPECT(figures("holders") == figures("calm") && hash_of("holders", 40) == hash_of("calm", 40),
           "other figures");
}

// The controller and another agent, whose images lie with the two that live.
TEST(the_controller_and_an_agent_are_lost_at_once) {
    const string config = config_of("two", 40), mesh = "--parallel.ranks=4 --parallel.zero=2" + kSteps;
    const Ran calm = train_gpt(config, mesh + "--parallel.transport=threads --run.dir=" + folder("calm2"));
    EXPECT(calm.code == 0, "'%s'", calm.err.c_str());
    Agents agents("two", config, mesh, {1, 1, 1, 3});
    wait_for_rows("two", "train", 16);
    agents.kill({0, 2});
    agents.expect_end({0, 2});
    const auto lost = rows_of("two", "lost");
    EXPECT(lost.size() == 2 && lost[0]["step"] > 13 && !has(agents.log(1) + agents.log(3), "is gone with"),
           "%zu lost: '%s'", lost.size(), agents.log(1).c_str());
    EXPECT(figures("two") == figures("calm2") && hash_of("two", 40) == hash_of("calm2", 40), "other figures");
}
