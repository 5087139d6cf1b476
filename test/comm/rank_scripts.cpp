// scripts/run_*.sh: from a command line to ranks.
#include <cstring>
#include <filesystem>

#include "test/program.h"

using namespace test;
using std::string;

TEST(one_machine_and_a_list_of_them) {
    if (no_mpi()) return skip("no mpirun, or built without MPI");
    int count = 0;
    for (const char* start : {"scripts/run_node.sh -n 2", "scripts/run_nodes.sh -H localhost -n 3"}) {
        const string name = fmt::format("run{}", count++), config = tiny_program_config(name);
        const Ran ran = run(string(start) + " " + config + " --train.batch_tokens=768 --train.steps=2");
        const auto rows = rows_of(name, "start");
        EXPECT(ran.code == 0 && steps_of(name, "train").size() == 2, "%s: code %d, '%s'", start, ran.code,
               ran.err.c_str());
        EXPECT(rows.size() == 1 && rows[0]["world"] == count + 1, "%s: %zu rows", start, rows.size());
    }
    const Ran wrong = run("scripts/run_node.sh -n 2 " + tiny_program_config("wrong") + " --train.batch=3");
    EXPECT(wrong.code == 78, "code %d", wrong.code);
}

// A stand-in for srun prints its arguments.
TEST(slurm) {
    const string bin = folder("bin");
    std::filesystem::create_directories(bin);
    std::ofstream(bin + "/srun") << "#!/bin/sh\npwd\necho \"$@\" cpus=$SRUN_CPUS_PER_TASK\n";
    const string config = tiny_program_config("slurm");
    const string set = "SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=4 SLURM_SUBMIT_DIR=$here PATH=" + bin + ":$PATH";
    const Ran ran = run("chmod +x " + bin + "/srun; here=$PWD; cd /; " + set +
                        " $here/scripts/run_slurm.sh " + config + " --train.steps=2; echo $here >&2");
    for (const auto& [cores, want] : {std::pair{"SLURM_CPUS_ON_NODE=64 SLURM_NTASKS_PER_NODE=8", "cpus=8"},
                                      {"SLURM_CPUS_ON_NODE=64 SLURM_TASKS_PER_NODE='4(x2)'", "cpus=16"},
                                      {"SLURM_CPUS_ON_NODE=2 SLURM_NTASKS_PER_NODE=8", "cpus="}}) {
        const Ran asked = run("unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK; PATH=" + bin + ":$PATH " +
                              cores + " SLURM_JOB_ID=7 SLURM_SUBMIT_DIR=$PWD scripts/run_slurm.sh " + config);
        EXPECT(asked.out.ends_with(string(" ") + want + "\n"), "%s: '%s' '%s'", cores, asked.out.c_str(),
               asked.err.c_str());
    }
    const string here = ran.err.substr(0, ran.err.find('\n'));
    EXPECT(ran.out == here + "\n--kill-on-bad-exit=1 --mpi=pmix ./train_gpt " + config +
                          " --train.steps=2 cpus=4\n",
           "'%s' '%s'", ran.out.c_str(), ran.err.c_str());
}

// Each start gets a new secret; a user's secret is passed on.
TEST(ranks_are_given_a_secret) {
    const string bin = folder("with_secret"), config = tiny_program_config("secret");
    std::filesystem::create_directories(bin);
    std::ofstream(bin + "/mpirun") << "#!/bin/sh\necho \"$TRAIN_GPT_SECRET $*\"\n";
    std::ofstream(bin + "/srun") << "#!/bin/sh\necho \"$TRAIN_GPT_SECRET $*\"; [ -e " + bin +
                                        "/again ] || { >" + bin + "/again; exit 75; }\n";
    const auto secrets_of = [&](const string& start, const string& set = "") {
        const Ran ran = run("chmod +x " + bin + "/*run; unset TRAIN_GPT_SECRET; PATH=" + bin +
                            ":$PATH SLURM_JOB_ID=7 SLURM_SUBMIT_DIR=$PWD PAUSE=0 " + set + " " + start + " " +
                            config);
        std::vector<string> secrets;
        std::istringstream lines(ran.out);
        for (string line; std::getline(lines, line);) secrets.push_back(line.substr(0, line.find(' ')));
        EXPECT(ran.code == 0 && (!has(start, "run_nodes") || has(ran.out, " -x TRAIN_GPT_SECRET ")), "%s: %s",
               start.c_str(), ran.out.c_str());
        return secrets;
    };
    std::set<string> all;
    size_t starts = 0;
    for (const char* start : {"scripts/run_node.sh -n 2", "scripts/run_node.sh -n 2",
                              "scripts/run_nodes.sh -H localhost -n 2", "scripts/run_slurm.sh",
                              "scripts/restart.sh scripts/run_node.sh -n 2"})
        for (const string& secret : secrets_of(start)) {
            EXPECT(secret.size() == 32 && secret.find_first_not_of("0123456789abcdef") == string::npos,
                   "%s: '%s'", start, secret.c_str());
            all.insert(secret), starts++;
        }
    EXPECT(starts == 6 && all.size() == 6, "%zu secrets of %zu starts", all.size(), starts);
    EXPECT(secrets_of("scripts/run_node.sh -n 2", "TRAIN_GPT_SECRET=mine") == std::vector<string>{"mine"});
}

// A stand-in for the trainer: ends with the codes of `codes` in turn, with a new checkpoint where the code is
// followed by +, and with the rows of a run that stopped (:) or is done (.); "wait" stays until
// USR2 and then ends with 75.
static void write_trainer(const string& command, const string& dir, const string& codes) {
    std::ofstream(command) << "#!/bin/bash\n"
                              "cd " + dir + "; echo start >>starts; n=$(wc -l <starts)\n"
                              "code=$(echo '" + codes + "' | cut -d' ' -f$n)\n"
                              "case $code in *+) echo {} >>checkpoints.jsonl ;; esac\n"
                              "case $code in *:) echo '{\"event\":\"train\"}' >>metrics.jsonl ;;\n"
                              "    *.) echo '{\"event\":\"done\"}' >>metrics.jsonl ;; esac\n"
                              "[ $code != wait ] || { trap 'echo saved >>starts; exit 75' USR2; >ready\n"
                              "    for i in $(seq 200); do sleep 0.05; done; exit 1; }\n"
                              "exit ${code%[+:.]}\n";
    std::filesystem::permissions(command, std::filesystem::perms::all);
}

// Returns what the trainer wrote of its starts.
static Ran restarts(const string& name, const string& codes, const string& during = "") {
    const string dir = folder(name), command = dir + "/trainer";
    std::filesystem::create_directories(dir);
    std::ofstream(dir + "/a.json") << "{\"run\": {\"dir\": \"" + dir + "\"}}";
    write_trainer(command, dir, codes);
    const string wait = during.empty() ? "" : "& " + during + "; wait $!; code=$?";
    return run("PAUSE=0 scripts/restart.sh " + command + " " + dir + "/a.json " + wait +
               "; code=${code:-$?}; cat " + dir + "/starts; exit $code");
}

TEST(a_run_that_dies_is_started_again) {
    const string start = "start\n";
    struct Case { const char *name, *codes; int code, starts; };
    for (const Case& c : {Case{"mends", "76 75 0", 0, 3}, Case{"fruitless", "76 75 134 0", 134, 3},
                          Case{"progress", "76 75+ 76 76+ 76 76 0", 0, 7},
                          Case{"input", "78 0", 78, 1}, Case{"diverged", "77 0", 77, 1},
                          Case{"damaged", "76 79 0", 79, 2},
                          // mpirun --enable-recovery: 0 after a death
                          Case{"recovery", "0: 75 0.", 0, 3}, Case{"lost", "0: 0: 0: 0.", 75, 3},
                          Case{"read", "0: 0 0.", 0, 2}}) {
        const Ran ran = restarts(c.name, c.codes);
        string starts;
        for (int i = 0; i < c.starts; i++) starts += start;
        EXPECT(ran.code == c.code && ran.out == starts, "%s: code %d, '%s' '%s'", c.name, ran.code,
               ran.out.c_str(), ran.err.c_str());
    }
    EXPECT(has(restarts("says", "76 76 76").err, "ended with 76, 3 times in a row without a new checkpoint"),
           "says nothing");
}

TEST(a_restart_loop_that_is_told_to_stop_saves_and_stops) {
    for (const char* signal : {"TERM", "USR2"}) {
        const string name = string("told") + signal;
        const Ran ran = restarts(name, "76 wait 0", "while [ ! -e " + folder(name) + "/ready ]; do sleep " +
                                                        "0.05; done; kill -" + signal + " $!");
        EXPECT(ran.code == 75 && ran.out == "start\nstart\nsaved\n", "%s: code %d, '%s' '%s'", signal,
               ran.code, ran.out.c_str(), ran.err.c_str());
    }
}

// Progress is looked for in the command's run.dir, from config or command line. FOLDER is the run itself.
TEST(progress_is_looked_for_in_the_runs_folder) {
    const string here = std::filesystem::current_path();
    int count = 0;
    for (const string form : {"CONFIG --data.tokenizer=/none/tokenizer.json", "CONFIG --run.dir=DIR",
                               "CONFIG --run.dir DIR", "CONFIG --data.tokenizer /none/tokenizer.json",
                               "FOLDER --run.threads 1", "FOLDER/step_5",
                               "INLINE --run.threads=1"}) {
        const string dir = folder(fmt::format("form{}", count++)), command = dir + "/trainer";
        const bool of_config = !has(form, "run.dir");
        std::filesystem::create_directories(dir);
        // relative to the folder of the scripts, not to that of the caller
        const string relative = std::filesystem::relative(dir, here);
        std::ofstream(dir + "/a.json")
            << "{\"run\": {\"dir\": \"" + (of_config ? relative : "/none") + "\"}}";
        write_trainer(command, dir, "76+ 76+ 76+ 76+ 0");
        std::filesystem::create_directories(dir + "/step_5");
        for (const char* name : {"/config.json", "/step_5/config.json"})
            std::ofstream(dir + name) << "{\"run\": {\"dir\": \"/none\"}}";
        std::ofstream(dir + "/step_5/manifest.json") << "{}";
        string args = form;
        string first = form.starts_with("CONFIG") ? dir + "/a.json" : relative;
        if (form.starts_with("INLINE")) first = "'{\"run\": {\"dir\": \"" + relative + "\"}}'";
        args.replace(0, strlen("CONFIG"), first);
        if (!of_config) args.replace(args.find("DIR"), strlen("DIR"), relative);
        const Ran ran = run("cd /; PAUSE=0 " + here + "/scripts/restart.sh " + command + " " + args);
        EXPECT(ran.code == 0, "%s: code %d, '%s'", args.c_str(), ran.code, ran.err.c_str());
    }
}

// The trainer itself refuses a bad config, once; a config with a byte order mark is read.
TEST(restart_leaves_what_is_wrong_with_a_config_to_the_trainer) {
    const string dir = folder("configs"), command = dir + "/trainer", config = dir + "/a.json";
    std::filesystem::create_directories(dir);
    for (const char* broken : {"{", "[]", "\"x\"", "{\"run\": null}", "{\"run\": [1]}",
                               "{\"run\": {\"dir\": \"\\ud800\"}}"}) {
        std::ofstream(config) << broken;
        write_trainer(command, dir, "78 0");
        const Ran ran = run("PAUSE=0 scripts/restart.sh " + command + " " + config + "; code=$?; cat " + dir +
                            "/starts; rm " + dir + "/starts; exit $code");
        EXPECT(ran.code == 78 && ran.out == "start\n" && ran.err.empty(), "%s: code %d, '%s' '%s'", broken,
               ran.code, ran.out.c_str(), ran.err.c_str());
    }
    std::ofstream(config) << "\xef\xbb\xbf{\"run\": {\"dir\": \"" + dir + "\"}}";
    write_trainer(command, dir, "76+ 76+ 76+ 76+ 0");
    const Ran ran = run("PAUSE=0 scripts/restart.sh " + command + " " + config);
    EXPECT(ran.code == 0, "a byte order mark: code %d, '%s'", ran.code, ran.err.c_str());
}

// mpirun itself would end its ranks within a second of a TERM.
TEST(a_run_that_is_told_to_stop_saves) {
    if (no_mpi()) return skip("no mpirun, or built without MPI");
    int count = 0;
    for (const auto& [start, signal] : {std::pair{"scripts/run_node.sh -n 2", "TERM"},
                                        std::pair{"scripts/run_nodes.sh -H localhost -n 2", "INT"}}) {
        const string name = fmt::format("stopped{}", count++), metrics = folder(name) + "/metrics.jsonl";
        const string config = tiny_program_config(name, {{"train", {{"steps", 1000000}}}});
        const Ran ran = run(string("env --default-signal=INT ") + start + " " + config + " & pid=$!\n"
                            "i=0; until grep -q '\"train\"' " + metrics + " 2>/dev/null || [ $i -ge 750 ]; "
                            "do sleep 0.02; i=$((i+1)); done; kill -" + signal + " $pid\n"
                            "wait $pid; code=$?; exit $code");
        EXPECT(ran.code == 75, "%s, %s: code %d, '%s'", start, signal, ran.code, ran.err.c_str());
        EXPECT(has(text_of(folder(name) + "/checkpoints.jsonl"), "\"step\":"), "%s, %s: nothing is saved",
               start, signal);
    }
}

TEST(without_arguments_they_show_how) {
    for (const char* name : {"run_node.sh", "run_nodes.sh", "run_slurm.sh"}) {
        const Ran ran = run(string("scripts/") + name);
        EXPECT(ran.code == 78 && has(ran.err, name) && has(ran.err, "CONFIG.json"), "%s: code %d, '%s'", name,
               ran.code, ran.err.c_str());
    }
}

// Open MPI would find each process alone.
TEST(below_srun_without_pmix_ranks_talk_over_tcp) {
    const bool pmi2 = run("find /usr/lib* -name 'mca_pmix_s[12].so' 2>/dev/null | grep .").code == 0;
    for (const string more : {"", "PMI_RANK=$r PMI_SIZE=2 PMI_FD=9 "}) {    // also --mpi=pmi2
        if (!more.empty() && pmi2) continue;
        const string name = more.empty() ? "plain_srun" : "srun_pmi2", config = tiny_program_config(name);
        const Ran ran = run("for r in 0 1; do SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=$r "
                            "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_NODELIST=localhost "
                            "SLURM_JOB_NODELIST=localhost " + more + "./train_gpt " + config +
                            " --train.batch_tokens=128 --train.micro_batch=1 & done; wait");
        const auto start = rows_of(name, "start");
        EXPECT(start.size() == 1 && start[0]["world"] == 2 && !rows_of(name, "train").empty(), "%s: '%s'",
               name.c_str(), ran.err.c_str());
    }
}

TEST(mpirun_and_variables_of_torchrun_contradict) {
    if (no_mpi()) return skip("no mpirun, or built without MPI");
    const Ran ran = run("RANK=0 WORLD_SIZE=9 mpirun -q --allow-run-as-root --oversubscribe --bind-to none "
                        "-np 2 ./train_gpt " + tiny_program_config("contradicts"));
    EXPECT(ran.code == 78 && has(ran.err, "error: mpirun says that this is rank") &&
           has(ran.err, "unset RANK WORLD_SIZE"), "code %d, '%s'", ran.code, ran.err.c_str());
}

// Ranks that wait see who makes progress: by files, as in training, and beside those of a run that trains.
TEST(ranks_that_evaluate_see_each_other) {
    if (no_mpi()) return skip("no mpirun, or built without MPI");
    const string config = tiny_program_config("talks"), dir = folder("talks");
    const Ran trained = run("./train_gpt " + config + " --train.steps=1 --checkpoint.every=1");
    const string files = dir + "/ranks_that_read";
    const Ran ran = run("mkdir " + dir + "/ranks; >" + dir + "/ranks/0.json; FAULT=load:0:2000 mpirun -q "
                        "--allow-run-as-root --oversubscribe --bind-to none -np 2 ./train_gpt " + config +
                        " --evaluate=loss --run.hang_timeout=4 >" + dir + "/text & i=0; "
                        "until [ -e " + files + "/0.json ] && [ -e " + files + "/1.json ]; do "
                        "sleep 0.02; i=$((i+1)); [ $i -lt 300 ] || break; done; "
                        "cat " + files + "/0.json " + dir + "/ranks/*; wait $!; ls -d " + files);
    EXPECT(trained.code == 0, "code %d, '%s'", trained.code, trained.err.c_str());
    EXPECT(ran.out.starts_with("{\"event\":\"rank\",\"rank\":0,") &&
           has(ran.out, "load") && !has(ran.out.substr(2), "\"event\":\"rank\"") && !has(ran.out, files),
           "'%s' '%s'", ran.out.c_str(), ran.err.c_str());
}

// A daemon of mpirun, a connection or a supervisor is lost: mpirun's own codes are restartable.
TEST(codes_of_mpirun_are_documented_ones) {
    const string bin = folder("ends");
    std::filesystem::create_directories(bin);
    std::ofstream(bin + "/mpirun") << "#!/bin/bash\n[ $CODE != STKFLT ] || kill -STKFLT $$; exit $CODE\n";
    struct Case { const char* code; int expected; bool says; };
    for (const Case& c : {Case{"205", 75, true}, {"137", 75, true}, {"STKFLT", 75, false}, {"76", 76, false},
                          {"1", 1, false}, {"0", 0, false}})
        for (const char* start : {"scripts/run_node.sh -n 2", "scripts/run_nodes.sh -H localhost -n 2"}) {
            const Ran ran = run("chmod +x " + bin + "/mpirun; CODE=" + c.code + " PATH=" + bin + ":$PATH " +
                                start + " none.json");
            EXPECT(ran.code == c.expected && ran.err.empty() != c.says &&
                       (!c.says || has(ran.err, string("error: mpirun ended with ") + c.code)),
                   "%s, %s: code %d, '%s'", start, c.code, ran.code, ran.err.c_str());
        }
}
