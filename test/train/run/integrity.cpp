// run.sniff, run.check_every and run.replay_every from outside: exit codes, rows, what is saved, and no bit
// changed. FAULT flips the bits.
#include <filesystem>

#include "llmc/base/host/machine.h"
#include "test/program.h"

using namespace test;
using std::string;

static const string kAll = " --run.sniff=true --run.check_every=1 --run.replay_every=2";

static string config_of(const string& name, const json& changes = json::object()) {
    json all = {{"train", {{"batch_tokens", 384}, {"micro_batch", 2}}}, {"checkpoint", {{"every", 2}}}};
    all.merge_patch(changes);
    return tiny_program_config(name, all);
}

static Ran flipped(const string& config, const string& fault, const string& args,
                   const string& place = "3:30") {
    return run("export FAULT=" + fault + " FAULT_PLACE=" + place + "; ./train_gpt " + config + " " + args);
}

// Everything is compared, and the run is that without.
TEST(checks_change_no_bit_and_raise_no_alarm) {
    int count = 0;
    for (const string args : {"--parallel.ranks=3", "--parallel.ranks=3 --parallel.zero=2",
                              "--parallel.ranks=4 --parallel.zero=3 --parallel.tp=2",
                              "--parallel.ranks=4 --parallel.pp=2 --run.precision=bf16 --parallel.zero=1"}) {
        const string with = fmt::format("with{}", count), without = fmt::format("without{}", count++);
        const Ran a = train_gpt(config_of(with), args + kAll), b = train_gpt(config_of(without), args);
        EXPECT(a.code == 0 && b.code == 0, "%s: codes %d, %d, '%s'", args.c_str(), a.code, b.code,
               a.err.c_str());
        const auto rows = [](const string& name) {
            string text;
            for (const json& row : rows_of(name, "train"))
                text += row["loss"].dump() + " " + row["norm"].dump() + "\n";
            return text;
        };
        EXPECT(rows(with) == rows(without) && rows_of(with, "corrupt").empty(), "%s: other losses",
               args.c_str());
    }
}

// The checkpoint of step 2 is the last before the flip in step 4. The next start goes on from there, without
// the row, and its steps are those of a run without the flip.
TEST(a_flip_ends_the_run_and_a_restart_goes_on_from_before) {
    const string config = config_of("flip", {{"checkpoint", {{"async", false}}}});
    const string args = "--parallel.ranks=3 --run.check_every=3";
    const Ran ran = flipped(config, "train:4:flip-weights:1", args);
    EXPECT(ran.code == 75, "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(count_of(ran.err, "error: ") == 1 && has(ran.err, "found after step 4 by run.check_every: ") &&
               has(ran.err, "weights of rank 1 on " + host_name()) &&
               has(ran.err, "goes on from " + folder("flip") + "/step_2"), "'%s'", ran.err.c_str());
    const auto rows = rows_of("flip", "corrupt");
    EXPECT(rows.size() == 1 && rows[0]["step"] == 4 && rows[0]["rank"] == 1 && rows[0]["host"] == host_name(),
           "%s", rows.empty() ? "none" : rows[0].dump().c_str());
    EXPECT(there(folder("flip") + "/step_2/manifest.json") && !there(folder("flip") + "/step_4"),
           "a checkpoint of replicas that differ");
    EXPECT(train_gpt(config, args).code == 0 && train_gpt(config_of("whole"), args).code == 0, "a restart");
    EXPECT(rows_of("flip", "train").size() == 10 && rows_of("flip", "train").back()["loss"] ==
               rows_of("whole", "train").back()["loss"], "other steps after the restart");
}

// A save in the background is of replicas that agreed: it is finished first.
TEST(a_running_save_is_finished) {
    const Ran ran = flipped(config_of("saving"), "train:3:flip-weights:1",
                            "--parallel.ranks=3 --run.check_every=1");
    EXPECT(ran.code == 75 && there(folder("saving") + "/step_2/manifest.json"), "code %d", ran.code);
    EXPECT(has(ran.err, "/step_2"), "'%s'", ran.err.c_str());
}

TEST(two_replicas_end_with_a_row_of_no_rank) {
    const Ran ran = flipped(config_of("two"), "train:3:flip-moments:0",
                            "--parallel.ranks=2 --run.check_every=1");
    const auto rows = rows_of("two", "corrupt");
    EXPECT(ran.code == 75 && has(ran.err, "rank 0 on ") && has(ran.err, "rank 1 on "), "'%s'",
           ran.err.c_str());
    EXPECT(rows.size() == 1 && rows[0]["rank"] == -1 && rows[0]["step"] == 2, "%zu rows", rows.size());
}

// A rank that computes something else in every step from 3 on: replayed in its turn, or by itself.
TEST(a_rank_that_computes_something_else_ends_the_run) {
    for (const int ranks : {1, 3}) {
        const string name = fmt::format("core{}", ranks), rank = std::to_string(ranks - 1);
        const Ran ran = flipped(config_of(name), "train:3:flips-activations:" + rank,
                                fmt::format("--run.replay_every=1 --parallel.ranks={}", ranks), "1:30");
        const auto rows = rows_of(name, "corrupt");
        EXPECT(ran.code == 75 && has(ran.err, "run.replay_every"), "code %d, '%s'", ran.code,
               ran.err.c_str());
        EXPECT(rows.size() == 1 && rows[0]["rank"] == ranks - 1 && rows[0]["step"].get<int>() <= 5,
               "%zu rows", rows.size());
    }
}

TEST(comparisons_without_copies_are_refused) {
    const string config = config_of("alone");
    for (const string args : {"--parallel.ranks=1", "--parallel.ranks=2 --parallel.zero=3"}) {
        const Ran ran = train_gpt(config, args + " --run.check_every=10");
        EXPECT(ran.code == 78 && count_of(ran.err, "\n") <= 1 && has(ran.err, "run.check_every = 10: "),
               "'%s'", ran.err.c_str());
    }
    EXPECT(train_gpt(config, "--parallel.ranks=2 --run.check_every=10 --train.steps=0").code == 0, "75");
}
