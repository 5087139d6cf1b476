// Ranks that are slow on purpose: named, and replaced where an agent has a free slot.
#include "test/elastic_run.h"

using namespace test;
using std::string, std::vector;

namespace {
const char* const kSlow = "is slow: without waits for other ranks";
}

TEST(a_slow_rank_is_named_and_a_spare_takes_its_place) {
    const string config = config_of("slow", 60),
                 mesh = "--parallel.ranks=2 --parallel.zero=1 --checkpoint.every=60 --eval.every=20 ";
    const Ran calm = train_gpt(config, mesh + "--parallel.transport=threads --run.dir=" +
                                           folder("calm_slow"));
    EXPECT(calm.code == 0 && !has(calm.err, kSlow), "'%s'", calm.err.c_str());
    Started a(config, elastic_args("slow", mesh), "a", "FAULT=train:3:slow5:1");
    for (int i = 0; i < 500 && !there(folder("slow") + "/lease"); i++) usleep(10000);
    Started b(config, elastic_args("slow", mesh + "--run.slots=1"), "b");
    const int codes[] = {a.wait(), b.wait()};
    const string log = text_of(a.log);
    EXPECT(codes[0] == 0 && codes[1] == 0, "%d %d '%s'", codes[0], codes[1], log.c_str());
    EXPECT(count_of(log, kSlow) == 1 && has(log, "rank 1 of 2 on ") && !has(text_of(b.log), kSlow), "'%s'",
           log.c_str());
    const auto lost = rows_of("slow", "lost"), regroups = rows_of("slow", "regroup");
    EXPECT(lost.size() == 1 && lost[0]["rank"] == 1 && has(lost[0]["cause"], "times slower"), "%zu lost",
           lost.size());
    EXPECT(regroups.size() == 1 && regroups[0]["world"] == 2, "%zu regroups", regroups.size());
    EXPECT(figures("slow") == figures("calm_slow") && hash_of("slow", 60) == hash_of("calm_slow", 60),
           "other figures");
}

// A fixed world names the rank as well. Work between two steps is no part of a rank's own time.
TEST(slow_steps_are_named_and_slow_evaluations_are_not) {
    const string config = config_of("named", 40),
                 args = "--parallel.ranks=2 --parallel.transport=threads --checkpoint.every=0 ";
    const Ran slow = run("FAULT=train:3:slow5:1 ./train_gpt " + config + " " + args + "--eval.every=0");
    EXPECT(slow.code == 0 && count_of(slow.err, kSlow) == 1 && has(slow.err, "rank 1 of 2 on "), "'%s'",
           slow.err.c_str());
    test::run("rm -rf " + folder("named"));
    const Ran evaluates = run("FAULT=evaluate:1:120:1 ./train_gpt " + config + " " + args + "--eval.every=1");
    EXPECT(evaluates.code == 0 && !has(evaluates.err, kSlow), "'%s'", evaluates.err.c_str());
}
