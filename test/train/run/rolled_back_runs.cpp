// ./train_gpt with train.rollback, on data with random ids in between: crashes anywhere end in the same run.
#include "test/rolled_back.h"

using namespace test;
using std::string;
namespace fs = std::filesystem;

// Checkpoints: one falls due in the trouble, one shortly before. Crashes: before, in the trouble, behind.
TEST(a_crash_in_between_replays_the_same) {
    for (const int checkpoints : {72, 68}) {
        const string straight = fmt::format("straight_{}", checkpoints);
        const Ran ran = train_gpt(tiny_program_config(straight, rolling(checkpoints)));
        EXPECT(ran.code == 0 && has(ran.out, "rollback  from step 7"), "code %d, '%s' '%s'", ran.code,
               ran.err.c_str(), ran.out.c_str());
        expect_each_step_once(straight);
        const auto back = rows_of(straight, "rollback");
        EXPECT(back.size() == 1 && back[0]["step"] >= kRandom && back[0]["to"] < kRandom - 1 &&
               back[0]["skipped"] > 9, "%zu rollbacks", back.size());
        for (const json& row : rows_of(straight, "train"))
            EXPECT(row["step"] < 40 || row["loss"] < 2, "%s", row.dump().c_str());
        for (const char* fault : {"train:69:kill", "train:73:kill", "train:90:kill", "evaluate:80:kill"}) {
            const string name = fmt::format("crashed_{}", checkpoints);
            fs::remove_all(folder(name));
            const string config = tiny_program_config(name, rolling(checkpoints));
            const Ran killed = run(string("FAULT=") + fault + " ./train_gpt " + config);
            const Ran again = train_gpt(config);
            EXPECT(killed.code == 75 && again.code == 0, "%s: codes %d %d, '%s'", fault, killed.code,
                   again.code, again.err.c_str());
            EXPECT(run_of(name) == run_of(straight), "%s, a checkpoint each %d steps: another run", fault,
                   checkpoints);
        }
    }
}

// The checkpoint of step 72 falls due in trouble: the run saves where it has gone back to.
TEST(no_checkpoint_is_of_a_run_in_trouble) {
    const Ran ran = train_gpt(tiny_program_config("late", rolling(72)));
    const int to = rows_of("late", "rollback").at(0)["to"];
    for (const int step : {to, 72}) {
        const string manifest = fmt::format("{}/step_{}/manifest.json", folder("late"), step);
        EXPECT(ran.code == 0 && there(manifest), "code %d, no step_%d", ran.code, step);
        const json state = json::parse(text_of(manifest))["state"];
        EXPECT(state["rollbacks"] == 1 && state["trouble"]["first"] == 0, "%s", state.dump().c_str());
    }
}

TEST(the_end_of_all_rollbacks) {
    const string wild =
        "--optimizer.warmup=0 --optimizer.lr=10 --optimizer.weight_decay=10 --optimizer.schedule=constant "
        "--eval.every=0 --train.steps=200 --train.max_skips=3 --optimizer.grad_clip=0 --log.tensorboard=true "
        "'--train.rollback={\"every\":20,\"most\":2}'";
    const Ran ran = train_gpt(tiny_program_config("wild"), wild);
    EXPECT(ran.code == 77 && has(ran.err, "after 2 rollbacks") && count_of(ran.err, "error:") == 1,
           "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(rows_of("wild", "rollback").size() == 2, "two rows");
    const std::vector<int> steps = steps_of("wild", "train");
    for (size_t i = 0; i < steps.size(); i++) EXPECT(steps[i] == int(i) + 1, "step %d twice", steps[i]);
}
