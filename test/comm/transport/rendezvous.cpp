// Ranks meeting over TCP: other jobs, missing ranks, and the environment's description of a job.
// test/comm/transport/rendezvous_strangers.cpp has strangers and secrets.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "test/meeting.h"

TEST(all_meet) {
    expect_all(run(1, {}, "one", -1));
    for (const int latest : {0, 2}) expect_all(run(5, {free_port()}, "five", latest));
}

TEST(ports_in_use) {
    const Door stranger(true);          // takes connections, and never answers
    const uint16_t last = free_port();
    expect_all(run(3, {stranger.port, last}, "behind one", 0));
}

TEST(two_jobs_at_the_same_ports) {
    const std::vector<uint16_t> ports = {free_port(), free_port()};
    std::vector<Result> first, second;
    std::thread other([&] { first = run(4, ports, "first", 0); });
    second = run(3, ports, "second", 2);
    other.join();
    expect_all(first);
    expect_all(second);
}

TEST(who_does_not_come) {
    Rendezvous r = rendezvous(0, 3, {free_port()});
    r.timeout = 0.3;
    Result e = meet(r, "");
    EXPECT(e.code == kExitRestart && strstr(e.error.c_str(), "did not come within 0.3 s: 1, 2"), "%s",
           e.error.c_str());
    r.rank = 2;
    e = meet(r, "");
    EXPECT(e.code == kExitRestart && strstr(e.error.c_str(), "rank 0 does not answer at localhost"), "%s",
           e.error.c_str());
    const Door taken(true);
    r.rank = 0;
    r.ports = {taken.port};
    e = meet(r, "");
    EXPECT(e.code == kExitConfig && strstr(e.error.c_str(), "cannot listen"), "%s", e.error.c_str());
}

// The job as seen by a child with this environment and no other variable of launchers: "rank of world, job:
// host, ports".
static std::string found_with(const std::vector<std::pair<const char*, const char*>>& environment) {
    int ends[2];
    EXPECT(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK", "MASTER_ADDR",
                                 "MASTER_PORT", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                 "TRAIN_GPT_SECRET"}) unsetenv(name);
        for (const auto& [name, value] : environment) setenv(name, value, 1);
        std::string text;
        Rendezvous r;
        const Fatal e = test::fatal_of([&] { r = rendezvous_of_environment(); });
        if (e.code) text = e.what();
        else {
            text = fmt::format("{} of {}, {}: {}", r.rank, r.world, r.job, r.host);
            for (const uint16_t port : r.ports) text += " " + std::to_string(port);
            if (!r.secret.empty()) text += ", secret " + r.secret;
        }
        _exit(write(ends[1], text.data(), text.size()) != ssize_t(text.size()));
    }
    close(ends[1]);
    std::string text(4096, 0);
    text.resize(size_t(std::max<ssize_t>(0, read(ends[0], text.data(), text.size()))));
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return text;
}

static void starts(const std::string& text, const char* with) {
    EXPECT(text.starts_with(with), "'%s', expected '%s...'", text.c_str(), with);
}

TEST(environments_of_launchers) {
    const auto blanks = [](const std::string& text) { return std::count(text.begin(), text.end(), ' '); };
    // torchrun: MASTER_PORT first, and others behind it; not where its agent listens there
    const std::string plain = found_with({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node7"},
                                          {"MASTER_PORT", "29500"}});
    starts(plain, "3 of 4, node7.29500: node7 29500 ");
    const std::string agent = found_with({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node7"},
                                          {"MASTER_PORT", "29500"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    starts(agent, "3 of 4, node7.29500: node7 ");
    EXPECT(agent.find(": node7 29500") == std::string::npos && blanks(plain) == blanks(agent) + 1,
           "'%s' and '%s'", plain.c_str(), agent.c_str());
    // Slurm, with and without PMI; a step's own nodes go before the job's
    const std::string step = found_with({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"},
                                         {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "2"},
                                         {"SLURM_JOB_NODELIST", "gpu[01-04]"},
                                         {"SLURM_STEP_NODELIST", "gpu[03-04]"}});
    starts(step, "5 of 8, 77.2: gpu03 ");
    starts(found_with({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "2"}, {"SLURM_JOB_NODELIST", "gpu[01-04]"}}),
           "5 of 8, 77.2: gpu01 ");
    starts(found_with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}}), "1 of 2, ");
    starts(found_with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "x"},
                       {"OMPI_COMMAND", "y"}, {"MASTER_ADDR", "a"}, {"RANK", "0"}, {"WORLD_SIZE", "9"}}),
           "1 of 2, x.y: a ");
    // a batch script of Slurm is one process; nonsense is no job
    starts(found_with({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}}), "0 of 1, : ");
    starts(found_with({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), "0 of 1, : ");
    const std::string nowhere = found_with({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    EXPECT(nowhere.find("set MASTER_ADDR to its host") != std::string::npos, "'%s'", nowhere.c_str());
    const std::string secret = found_with({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"},
                                           {"TRAIN_GPT_SECRET", "between us"}});
    EXPECT(secret.ends_with(", secret between us"), "'%s'", secret.c_str());
    // ports follow from the job, the same for all of its ranks
    const std::string again = found_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"},
                                          {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "2"},
                                          {"SLURM_JOB_NODELIST", "gpu[03-04]"}});
    const std::string other = found_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"},
                                          {"SLURM_JOB_ID", "78"}, {"SLURM_STEP_ID", "2"},
                                          {"SLURM_JOB_NODELIST", "gpu[03-04]"}});
    EXPECT(step.substr(1) == again.substr(1), "'%s' and '%s'", step.c_str(), again.c_str());
    EXPECT(again.substr(again.find(": ")) != other.substr(other.find(": ")), "'%s'", other.c_str());
}

TEST(ranks_of_one_host_meet_on_it) {
    // mpirun tells the number of ranks on this host, but not the other hosts
    starts(found_with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "x"},
                       {"OMPI_COMMAND", "y"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
           "1 of 2, x.y: 127.0.0.1 ");
    // ... also where a name is given; torchrun's and Slurm's own numbers say the same
    starts(found_with({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}}),
           "1 of 2, node7.29500: 127.0.0.1 29500 ");
    starts(found_with({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NUM_NODES", "1"},
                       {"SLURM_JOB_NODELIST", "gpu[01-04]"}}), "1 of 2, .: 127.0.0.1 ");
    starts(found_with({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"},
                       {"MASTER_ADDR", "node7"}, {"SLURM_STEP_NUM_TASKS", "1"},
                       {"SLURM_STEP_NUM_NODES", "1"}}), "1 of 2, node7.: node7 ");
    const std::string two_hosts = found_with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"},
                                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
    EXPECT(two_hosts.find("set MASTER_ADDR to its host") != std::string::npos, "'%s'", two_hosts.c_str());
}

TEST(names_of_nodes) {
    EXPECT(first_host("gpu[003-006,9],login1") == "gpu003");
    EXPECT(first_host("gpu[7,9]-ib,b") == "gpu7-ib");
    EXPECT(first_host("a1,b[1-2]") == "a1");
    EXPECT(first_host("alone") == "alone" && first_host("").empty());
}
