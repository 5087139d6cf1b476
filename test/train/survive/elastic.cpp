// run.elastic as a user has it: agents whose ranks die in every phase end with the bytes of a calm run.
#include <cmath>

#include "test/elastic_run.h"

using namespace test;
using std::string, std::vector;

// The rank dies as it enters the phase; FAULT strikes once.
TEST(a_rank_that_dies_in_any_phase_is_replaced_and_no_bit_differs) {
    const string config = config_of("phases");
    for (const string mesh : {"--parallel.ranks=4 --parallel.zero=2", "--parallel.ranks=4 --parallel.tp=2",
                              "--parallel.ranks=4 --parallel.pp=2 --parallel.zero=1",
                              "--parallel.ranks=2 --parallel.zero=3"}) {
        const Ran calm = train_gpt(config, mesh + " --parallel.transport=threads --run.dir=" +
                                               folder("calm"));
        EXPECT(calm.code == 0, "%s: '%s'", mesh.c_str(), calm.err.c_str());
        const bool two = has(mesh, "ranks=2");
        for (const string fault : {"train:1:kill:0", "train:4:kill:1", "train:6:segv:0", "evaluate:3:kill:1",
                                   "save:3:exit:0", "load:0:kill:1", "save:6:kill:1"}) {
            if (!two && (fault[0] == 'l' || has(fault, "segv"))) continue;      // the same on every mesh
            test::run("rm -rf " + folder("faulty"));
            Started agent(config, elastic_args("faulty", mesh), "faulty", "FAULT=" + fault);
            const int code = agent.wait();
            const string log = text_of(agent.log);
            EXPECT(code == 0 && has(log, "it is replaced"), "%s, %s: code %d '%s'", mesh.c_str(),
                   fault.c_str(), code, log.c_str());
            EXPECT(figures("faulty") == figures("calm"), "%s, %s:\n%s\n%s", mesh.c_str(), fault.c_str(),
                   figures("faulty").c_str(), figures("calm").c_str());
            EXPECT(hash_of("faulty", 6) == hash_of("calm", 6), "%s, %s: other bytes", mesh.c_str(),
                   fault.c_str());
            EXPECT(!has(fault, "train:4") || (rows_of("faulty", "lost").size() == 1 &&
                                              rows_of("faulty", "regroup")[0]["step"] == 3),
                   "%s: it went on from elsewhere", mesh.c_str());
            EXPECT(!there(folder("faulty") + "/lease"), "the lease stays");
        }
        test::run("rm -rf " + folder("calm"));
    }
}

// Images that one agent holds have copies at another: with it goes its share of the state.
TEST(a_lost_agent_is_replaced_by_a_spare) {
    const string config = config_of("agents", 60),
                 mesh = "--parallel.ranks=4 --parallel.zero=2 --checkpoint.every=60 --eval.every=0 ";
    const Ran calm = train_gpt(config, mesh + "--parallel.transport=threads --run.dir=" +
                                           folder("calm_lost"));
    EXPECT(calm.code == 0, "'%s'", calm.err.c_str());
    // with slots for all, two spares know nothing of the run but what the lease says
    for (const auto& [victim, slots] : {std::pair{0, 2}, {1, 2}, {0, 4}}) {
        test::run("rm -rf " + folder("lost"));
        const string args = elastic_args("lost", fmt::format("{}--run.slots={}", mesh, slots));
        const string slow = "FAULT=train:1:40";         // agents have time to join
        Started a(config, args, "a", slow);
        for (int i = 0; i < 500 && !there(folder("lost") + "/lease"); i++) usleep(10000);
        Started b(config, args, "b", slow);
        wait_for_rows("lost", "train", 2);
        Started c(config, args, "c", slow);
        wait_for_rows("lost", "train", 25);
        (victim ? b : a).stop(SIGKILL);
        const int codes[] = {a.wait(), b.wait(), c.wait()};
        EXPECT(codes[victim] == 137 && codes[1 - victim] == 0 && codes[2] == 0, "%d %d %d: '%s'", codes[0],
               codes[1], codes[2], text_of(b.log).c_str());
        const auto lost = rows_of("lost", "lost");
        EXPECT(int(lost.size()) == slots && lost[0]["step"] >= 3, "agent %d: %zu lost: '%s'", victim,
               lost.size(), text_of(b.log).c_str());
        EXPECT(figures("lost") == figures("calm_lost") && hash_of("lost", 60) == hash_of("calm_lost", 60),
               "agent %d: other figures", victim);
    }
}

// The job shrinks to what fits the mesh, and grows. Ranks that do not divide the batch have unequal shares of
// it: same samples, losses to rounding.
TEST(without_a_spare_the_job_shrinks_and_grows_again) {
    const string config = config_of("shrinks", 100), slow = "FAULT=train:1:25",
                 mesh = "--parallel.ranks=4 --run.min_ranks=2 --checkpoint.every=100 --eval.every=20 "
                        "--run.precision=fp64 ";
    const Ran calm = train_gpt(config, mesh + "--parallel.transport=threads --run.dir=" +
                                           folder("calm_shrinks"));
    EXPECT(calm.code == 0, "'%s'", calm.err.c_str());
    for (const auto& [stays, more] : {std::pair{3, "--parallel.zero=2"}, {2, "--parallel.tp=2"}}) {
        test::run("rm -rf " + folder("shrinks"));
        const string args = elastic_args("shrinks", mesh + more);
        const string first = fmt::format("{} --run.slots=3", args), second = args + " --run.slots=1";
        Started a(config, first, "a", slow);
        auto b = std::make_unique<Started>(config, second, "b", slow);
        wait_for_rows("shrinks", "train", 3);
        b.reset();
        wait_for_rows("shrinks", "regroup", 1);
        const size_t alone = rows_of("shrinks", "train").size();
        wait_for_rows("shrinks", "train", alone + 5);
        Started c(config, second, "c");
        wait_for_rows("shrinks", "regroup", 2);
        EXPECT(a.wait() == 0 && c.wait() == 0, "'%s'", text_of(a.log).c_str());
        const auto regroups = rows_of("shrinks", "regroup");
        EXPECT(regroups.size() == 2 && regroups[0]["world"] == stays && regroups[1]["world"] == 4, "%s: %s",
               more, regroups[0].dump().c_str());
        const auto rows = rows_of("shrinks", "train"), expected = rows_of("calm_shrinks", "train");
        EXPECT(rows.size() == 100 && expected.size() == 100, "%s: %zu rows", more, rows.size());
        for (size_t i = 0; i < std::min(rows.size(), expected.size()); i++)
            for (const char* key : {"loss", "norm"}) {
                const double is = rows[i][key], was = expected[i][key];
                EXPECT(rows[i]["step"] == int(i) + 1 && std::abs(is - was) <= 1e-10 * std::abs(was),
                       "%s, row %zu, %s: %.17g, not %.17g", more, i, key, is, was);
            }
    }
}

TEST(signals_and_errors_end_the_job_as_ever) {
    const string config = config_of("ends", 100000);
    {
        Started a(config, elastic_args("ends", "--parallel.ranks=2"), "ends");
        wait_for_rows("ends", "train", 3);
        a.stop(SIGTERM);
        const int code = a.wait();
        EXPECT(code == 75 && has(text_of(a.log), "saved as"), "code %d '%s'", code, text_of(a.log).c_str());
    }
    {
        const size_t before = rows_of("ends", "train").size();
        Started a(config, elastic_args("ends", "--parallel.ranks=2"), "ends");     // goes on
        wait_for_rows("ends", "train", before + 2);
        a.stop(SIGUSR2);
        EXPECT(a.wait() == 75 && rows_of("ends", "resume").size() == 1, "'%s'", text_of(a.log).c_str());
    }
    const Ran odd = train_gpt(config, elastic_args("odd", "--parallel.ranks=3 --parallel.tp=2"));
    EXPECT(odd.code == 78 && has(odd.err, "parallel.tp"), "code %d '%s'", odd.code, odd.err.c_str());
    Started wrong(config, elastic_args("wrong", "--parallel.ranks=2 --data.train=/nowhere/*.bin"), "wrong");
    const int code = wrong.wait();
    const string log = text_of(wrong.log);
    EXPECT(code == 78 && count_of(log, "error:") == 1 && has(log, "/nowhere"), "code %d '%s'", code,
           log.c_str());
}

// A rank that is stopped while all wait for each other is found, named and replaced.
TEST(a_stopped_rank_is_replaced) {
    const string config = config_of("stopped", 30);
    for (const string fault : {"train:5:stop:1", "train:5:hang:0"}) {
        test::run("rm -rf " + folder("stopped"));
        Started a(config, elastic_args("stopped", "--parallel.ranks=2 --run.hang_timeout=3"), "stopped",
                  "FAULT=" + fault);
        EXPECT(a.wait() == 0, "%s: '%s'", fault.c_str(), text_of(a.log).c_str());
        const auto lost = rows_of("stopped", "lost");
        EXPECT(lost.size() == 1 && lost[0]["rank"] == (fault.back() - '0') &&
                   has(lost[0]["cause"], "no progress"), "%s: %zu lost: '%s'", fault.c_str(), lost.size(),
               text_of(a.log).c_str());
    }
}
