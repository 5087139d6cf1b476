// scripts/run_*.sh: from a command line to ranks.
#include <filesystem>

#include "test/program.h"

using namespace test;
using std::string;

static bool has(const string& text, const string& word) { return text.find(word) != string::npos; }

TEST(one_machine_and_a_list_of_them) {
    if (run("command -v mpirun").code != 0 || !has(run("./train_gpt --version").out, "MPI"))
        return skip("no mpirun, or built without MPI");
    int count = 0;
    for (const char* start : {"scripts/run_node.sh -n 2", "scripts/run_nodes.sh -H localhost -n 3"}) {
        const string name = strf("run%d", count++), config = tiny_program_config(name);
        const Ran ran = run(string(start) + " " + config + " --train.batch_tokens=768 --train.steps=2");
        const auto rows = rows_of(name, "start");
        EXPECT(ran.code == 0 && steps_of(name, "train").size() == 2, "%s: code %d, '%s'", start, ran.code,
               ran.err.c_str());
        EXPECT(rows.size() == 1 && rows[0]["world"] == count + 1, "%s: %zu rows", start, rows.size());
    }
    const Ran wrong = run("scripts/run_node.sh -n 2 " + tiny_program_config("wrong") + " --train.batch=3");
    EXPECT(wrong.code == 78, "code %d", wrong.code);
}

// A stand-in for srun shows what it is asked for.
TEST(slurm) {
    const string bin = folder("bin");
    std::filesystem::create_directories(bin);
    std::ofstream(bin + "/srun") << "#!/bin/sh\npwd\necho \"$@\" cpus=$SRUN_CPUS_PER_TASK\n";
    const string set = "SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=4 SLURM_SUBMIT_DIR=$here PATH=" + bin + ":$PATH";
    const Ran ran = run("chmod +x " + bin + "/srun; here=$PWD; cd /; " + set +
                        " $here/scripts/run_slurm.sh a.json --train.steps=2; echo $here >&2");
    const string here = ran.err.substr(0, ran.err.find('\n'));
    EXPECT(ran.out == here + "\n--kill-on-bad-exit=1 --mpi=pmix ./train_gpt a.json --train.steps=2 cpus=4\n",
           "'%s' '%s'", ran.out.c_str(), ran.err.c_str());
}

TEST(without_arguments_they_show_how) {
    for (const char* name : {"run_node.sh", "run_nodes.sh", "run_slurm.sh"}) {
        const Ran ran = run(string("scripts/") + name);
        EXPECT(ran.code == 78 && has(ran.err, name) && has(ran.err, "CONFIG.json"), "%s: code %d, '%s'", name,
               ran.code, ran.err.c_str());
    }
}
