// Silent data corruption with run.elastic: the host at fault is put aside, and no bit of it stays.
#include "test/elastic_run.h"

using namespace test;
using std::string, std::vector;

namespace {

const char* const kMesh = "--parallel.ranks=3 --checkpoint.every=30 --eval.every=10 "
                          "--train.batch_tokens=384 ";

// Three agents and a spare; rank 1 is on the second, whose FAULT flips bits.
struct Faulty {
    string name;
    vector<std::unique_ptr<Started>> agents;
    vector<int> codes = {};

    Faulty(const string& run, const string& config, const string& args, const string& fault, int count = 4)
        : name(run) {
        test::run("rm -rf " + folder(name));
        for (int i = 0; i < count; i++) {
            const string environment = i == 1 ? "FAULT=" + fault + " FAULT_PLACE=1:30" : "FAULT=train:1:20";
            agents.push_back(std::make_unique<Started>(config, elastic_args(name, "--run.slots=1 " + args),
                                                       name + std::to_string(i), environment));
            // seats are in the order of starts
            for (int j = 0; j < 500 && !there(folder(name) + "/lease"); j++) usleep(10000);
            usleep(200000);
        }
        for (const auto& agent : agents) codes.push_back(agent->wait());
    }
    string logs() const {
        string all;
        for (const auto& agent : agents) all += text_of(agent->log);
        return all;
    }
    bool end_with(int code) const { return codes == vector<int>(codes.size(), code); }
};

}  // namespace

// Compared in each step the image before it is restored; compared seldom, the image that passed last.
TEST(wrong_bits_are_put_aside_and_training_goes_back) {
    const string config = config_of("bits", 30);
    const Ran calm = train_gpt(config, string(kMesh) + "--parallel.transport=threads --run.dir=" +
                                           folder("calm_bits"));
    EXPECT(calm.code == 0, "'%s'", calm.err.c_str());
    for (const auto& [every, what, to] : {std::tuple{1, "weights", 18}, {8, "moments", 15}}) {
        const Faulty run("bits", config, fmt::format("{}--run.check_every={}", kMesh, every),
                         fmt::format("train:20:flip-{}:1", what));
        const string log = run.logs();
        EXPECT(run.end_with(0) && has(log, "by run.check_every: weights of rank 1 on ") &&
                   has(log, "is put aside") && !has(log, "back to the last checkpoint"), "%d: '%s'", every,
               log.c_str());
        const auto corrupt = rows_of("bits", "corrupt"), regroups = rows_of("bits", "regroup");
        EXPECT(corrupt.size() == 1 && corrupt[0]["rank"] == 1, "%zu rows", corrupt.size());
        EXPECT(regroups.size() == 1 && regroups[0]["step"] == to && regroups[0]["world"] == 3, "%s",
               regroups.empty() ? "none" : regroups[0].dump().c_str());
        EXPECT(figures("bits") == figures("calm_bits") && hash_of("bits", 30) == hash_of("calm_bits", 30),
               "%d: other figures", every);
    }
}

// A replay shows it; every generation sniffs.
TEST(a_rank_that_computes_wrong_numbers_is_put_aside) {
    const string config = config_of("numbers", 30);
    const Faulty run("numbers", config, string(kMesh) + "--run.sniff=true --run.replay_every=1",
                     "train:12:flips-activations:1");
    const auto lost = rows_of("numbers", "lost");
    EXPECT(run.end_with(0) && lost.size() == 1 && lost[0]["rank"] == 1 &&
               has(lost[0]["cause"], "by run.replay_every"), "'%s'", run.logs().c_str());
}

// Two replicas tell that they differ, not whose bits are right.
TEST(two_replicas_end_the_job) {
    const string config = config_of("halves", 30);
    const Faulty run("halves", config, "--parallel.ranks=2 --run.check_every=1",
                     "train:12:flip-weights:1", 3);
    const auto rows = rows_of("halves", "corrupt");
    EXPECT(run.end_with(75) && rows.size() == 1 && rows[0]["rank"] == -1, "%zu rows, '%s'", rows.size(),
           run.logs().c_str());
}
