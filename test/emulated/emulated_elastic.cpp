// run.elastic on emulated GPUs: agents whose ranks are processes over the emulated NCCL, which tells nobody
// of a process that is gone. Ranks die and hang in every phase; the end has the bytes of a calm run.
#include <filesystem>
#include <map>

#include "test/elastic_run.h"

using namespace test;
using std::string;

namespace {

const string kProgram = build_folder() + "/emulated/train_gpt";

string halls() {
    static const bool made = std::filesystem::create_directories(folder("halls"));
    (void)made;
    return folder("halls");
}

string args(const string& run, const string& more) {
    std::filesystem::remove_all(folder(run));
    std::filesystem::remove(folder(run) + ".lives");
    return "--run.dir=" + folder(run) + " --run.elastic=true --parallel.transport=nccl " + more;
}

// Two layers: a stage each.
string small_config(const string& name, int steps = 6) {
    return tiny_program_config(name, {{"run", {{"precision", "bf16"}}},
                                      {"train", {{"steps", steps}, {"batch_tokens", 128},
                                                 {"micro_batch", 1}}},
                                      {"eval", {{"every", 3}, {"batches", 1}}},
                                      {"checkpoint", {{"every", 3}}}});
}

string environment(const string& run, const string& more = "") {
    return "EMU_PROCESSES=" + halls() + " EMU_LIVES=" + folder(run) + ".lives " + more;
}

void run_calmly(const string& config, const string& mesh) {
    std::filesystem::remove_all(folder("calm"));
    const Ran calm = test::run(fmt::format("{} {} {} --parallel.transport=nccl --run.dir={}", kProgram,
                                           config, mesh, folder("calm")));
    EXPECT(calm.code == 0, "%s: '%s'", mesh.c_str(), calm.err.c_str());
}

void expect_equal(const string& what, const string& run, int step) {
    EXPECT(figures(run) == figures("calm"), "%s:\n%s\n%s", what.c_str(), figures(run).c_str(),
           figures("calm").c_str());
    EXPECT(hash_of(run, step) == hash_of("calm", step), "%s: other bytes", what.c_str());
}

// Of each process: communicators made, destroyed, aborted.
struct Lives { int made = 0, destroyed = 0, aborted = 0; };
std::map<int, Lives> lives_of(const string& run) {
    std::map<int, Lives> all;
    std::istringstream lines(text_of(folder(run) + ".lives"));
    int process;
    for (string what, name; lines >> process >> what && std::getline(lines, name);) {
        all[process].made += what == "made";
        all[process].destroyed += what == "destroyed";
        all[process].aborted += what == "aborted";
    }
    return all;
}

// Nothing leaks in a process that lives to the end; after a loss it has aborted what it had, and made others.
void expect_no_leak(const string& what, const string& run, int survivors) {
    int lived = 0;
    for (const auto& [process, l] : lives_of(run)) {
        const bool ended = l.made == l.destroyed + l.aborted;
        lived += ended && l.aborted > 0;
        EXPECT(ended || l.destroyed == 0, "%s: %d made, %d destroyed, %d aborted", what.c_str(), l.made,
               l.destroyed, l.aborted);
        EXPECT(!ended || l.aborted == 0 || l.destroyed > 0, "%s: it made none anew", what.c_str());
    }
    EXPECT(lived == survivors, "%s: %d processes have aborted and lived on", what.c_str(), lived);
}

}  // namespace

TEST(a_rank_that_dies_on_a_gpu_is_replaced_and_no_bit_differs) {
    const string config = small_config("phases");
    const struct { string mesh; std::vector<string> faults; } runs[] = {
        {"--parallel.ranks=2 --parallel.zero=2",
         {"train:1:kill:0", "train:3:kill:1", "train:4:segv:1", "evaluate:3:kill:1", "save:3:exit:0",
          "load:0:kill:1"}},
        {"--parallel.ranks=2 --parallel.zero=3", {"train:4:kill:1"}},
        {"--parallel.ranks=2 --parallel.tp=2", {"train:4:kill:0"}},
        {"--parallel.ranks=4 --parallel.pp=2 --parallel.zero=1", {"train:4:kill:2"}}};
    for (const auto& [mesh, faults] : runs) {
        run_calmly(config, mesh);
        for (const string& fault : faults) {
            const string what = mesh + ", " + fault;
            Started agent(config, args("faulty", mesh), "faulty", environment("faulty", "FAULT=" + fault),
                          kProgram);
            const int code = agent.wait();
            const string log = text_of(agent.log);
            EXPECT(code == 0 && has(log, "it is replaced"), "%s: code %d '%s'", what.c_str(), code,
                   log.c_str());
            expect_equal(what, "faulty", 6);
            EXPECT(rows_of("faulty", "lost").size() == 1, "%s: '%s'", what.c_str(), log.c_str());
            EXPECT(!has(fault, "train:4") || rows_of("faulty", "regroup")[0]["step"] == 3,
                   "%s: it went on from elsewhere", what.c_str());
            if (has(fault, "train:4")) expect_no_leak(what, "faulty", has(mesh, "ranks=4") ? 3 : 1);
        }
    }
}

// The others wait for it in a kernel, and the host for the kernel.
TEST(a_rank_that_hangs_on_a_gpu_is_replaced) {
    const string config = small_config("hangs"), mesh = "--parallel.ranks=2 --parallel.zero=2";
    run_calmly(config, mesh);
    for (const string fault : {"train:5:stop:1", "train:5:hang:0"}) {
        Started agent(config, args("hangs", mesh + " --run.hang_timeout=3"), "hangs",
                      environment("hangs", "FAULT=" + fault), kProgram);
        EXPECT(agent.wait() == 0, "%s: '%s'", fault.c_str(), text_of(agent.log).c_str());
        const auto lost = rows_of("hangs", "lost");
        EXPECT(lost.size() == 1 && lost[0]["rank"] == (fault.back() - '0') &&
                   has(lost[0]["cause"], "no progress"), "%s: %zu lost: '%s'", fault.c_str(), lost.size(),
               text_of(agent.log).c_str());
        expect_equal(fault, "hangs", 6);
        expect_no_leak(fault, "hangs", 1);
    }
}

// CUDA repeats an error of a kernel until the process ends: the rank's process ends, and no other.
TEST(a_poisoned_context_ends_its_process_alone) {
    const string config = small_config("poisoned", 12), mesh = "--parallel.ranks=2 --parallel.zero=2";
    run_calmly(config, mesh);
    Started agent(config, args("poisoned", mesh), "poisoned",
                  environment("poisoned", "EMU_POISON=" + folder("poison")), kProgram);
    wait_for_rows("poisoned", "train", 3);
    std::ofstream(folder("poison")) << "1";
    EXPECT(agent.wait() == 0, "'%s'", text_of(agent.log).c_str());
    const auto lost = rows_of("poisoned", "lost");
    EXPECT(lost.size() == 1 && has(lost[0]["cause"], "exit code 1") && lost[0]["step"] >= 2 &&
               has(text_of(agent.log), "illegal memory access"), "%zu lost: '%s'", lost.size(),
           text_of(agent.log).c_str());
    expect_equal("poisoned", "poisoned", 12);
    expect_no_leak("poisoned", "poisoned", 1);
}

// Ranks get other numbers as an agent is lost, and keep their GPUs; they leave as an agent joins.
TEST(a_job_on_gpus_shrinks_and_grows_again) {
    const string config = small_config("shrinks", 40),
                 mesh = "--parallel.ranks=4 --run.slots=2 --run.min_ranks=2 --checkpoint.every=40 "
                        "--eval.every=0";
    const string all = args("shrinks", mesh), slow = environment("shrinks", "FAULT=train:1:40");
    auto a = std::make_unique<Started>(config, all, "a", slow, kProgram);
    for (int i = 0; i < 500 && !there(folder("shrinks") + "/lease"); i++) usleep(10000);
    Started b(config, all, "b", slow, kProgram);
    wait_for_rows("shrinks", "train", 3);
    a.reset();
    wait_for_rows("shrinks", "regroup", 1);
    Started c(config, all, "c", slow, kProgram);
    wait_for_rows("shrinks", "regroup", 2);
    EXPECT(b.wait() == 0 && c.wait() == 0, "'%s' '%s'", text_of(b.log).c_str(), text_of(c.log).c_str());
    const auto regroups = rows_of("shrinks", "regroup");
    EXPECT(regroups.size() == 2 && regroups[0]["world"] == 2 && regroups[1]["world"] == 4,
           "%zu regroups: '%s'", regroups.size(), text_of(b.log).c_str());
    EXPECT(rows_of("shrinks", "lost").size() == 2, "'%s'", text_of(b.log).c_str());
    const auto steps = steps_of("shrinks", "train");
    for (int i = 0; i < 40; i++) EXPECT(steps.size() == 40 && steps[size_t(i)] == i + 1, "row %d", i);
    expect_no_leak("shrinks", "shrinks", 2);
}

TEST(what_gpus_cannot_do_is_told) {
    const string config = small_config("refused");
    const auto told = [&](const string& more, const string& words) {
        const Ran ran = test::run(fmt::format("{} {} --run.elastic=true --parallel.ranks=2 {}", kProgram,
                                              config, more));
        EXPECT(ran.code == 78 && has(ran.err, words), "%s: code %d '%s'", more.c_str(), ran.code,
               ran.err.c_str());
    };
    told("--parallel.transport=tcp", "come and go over nccl alone");
    told("--parallel.transport=nccl --parallel.ranks=20 --train.batch_tokens=640", "more than the 16 GPUs");
    told("--parallel.transport=auto", "set parallel.transport to nccl");
}
