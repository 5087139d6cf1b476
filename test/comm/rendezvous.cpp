// Ranks meeting over TCP: other jobs, missing ranks, and the environment's description of a job.
// test/comm/rendezvous/rendezvous_strangers.cpp has strangers and secrets.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/sha256.h"
#include "llmc/comm/rendezvous/socket.h"
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

// An address whose packets are lost: its queue of connections is full. Others are tried at the same time.
TEST(a_dead_address_delays_no_other) {
    const Door dead(true, 0);
    const uint16_t last = free_port();
    std::vector<Socket> queue;
    for (bool full = false; !full;) {
        std::vector<Socket> more = connect_to("127.0.0.1", {dead.port}, seconds_now() + 0.5);
        full = more.empty();
        for (Socket& s : more) queue.push_back(std::move(s));
    }
    EXPECT(!queue.empty(), "nobody is in the queue");
    Rendezvous zero = place_of_rank(0, 2, {dead.port, last}), one = place_of_rank(1, 2, {dead.port, last});
    one.patience = 10;
    Result first;
    std::thread rank([&] { first = meet(zero, text_of(0)); });
    const double begin = seconds_now();
    const Result second = meet(one, text_of(1), 50);
    rank.join();
    expect_all({first, second});
    EXPECT(seconds_now() - begin < 5, "%.1f s", seconds_now() - begin);
}

// Rank 0 hashes all texts once, not once for each peer.
TEST(work_of_rank_0_grows_with_the_texts_alone) {
    uint64_t hashed = 0;
    const auto hashed_by_rank_0 = [&](int world) {
        std::vector<Result> all;
        all.resize(size_t(world));
        const std::vector<uint16_t> ports = {free_port()};
        std::vector<std::thread> ranks;
        for (int r = 0; r < world; r++)
            ranks.emplace_back([&, r] {
                const uint64_t before = sha256_bytes;
                all[size_t(r)] = meet(place_of_rank(r, world, ports), text_of(r));
                if (r == 0) hashed = sha256_bytes - before;
            });
        for (std::thread& t : ranks) t.join();
        expect_all(all);
        return hashed;
    };
    // each text by itself, then all of them; 1 kB for the proofs of a peer
    for (const int world : {8, 32}) {
        const uint64_t texts = uint64_t(world * (world - 1) / 2) * 1000;
        const uint64_t most = 2 * texts + uint64_t(world) * 1500, bytes = hashed_by_rank_0(world);
        EXPECT(bytes > texts && bytes < most, "%d ranks: %lu bytes of %lu are hashed", world, bytes, texts);
    }
}

// A wait for a late rank is no hang: it has a name, and longer patience than the loops of rank 0.
TEST(a_wait_for_a_late_rank_has_a_name_and_patience) {
    const std::vector<uint16_t> ports = {free_port()};
    RankProgress progress = {};
    Result zero;
    std::thread rank([&] {
        context.progress = &progress;
        zero = meet(place_of_rank(0, 2, ports), text_of(0));
    });
    usleep(300000);
    EXPECT(progress.wait.text == std::string("rendezvous"), "in '%s'", progress.wait.text);
    EXPECT(progress.waits_for_ranks() && progress.patience == 50, "%g s", progress.patience.load());
    const Result one = meet(place_of_rank(1, 2, ports), text_of(1));
    rank.join();
    expect_all({zero, one});
    EXPECT(!progress.wait.text[0], "waits for ever");
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
    Rendezvous r = place_of_rank(0, 3, {free_port()});
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
                                 "TRAIN_GPT_SECRET", "PMIX_NAMESPACE", "SLURM_PTY_PORT",
                                 "TORCHELASTIC_RUN_ID", "LOCAL_WORLD_SIZE"}) unsetenv(name);
        for (const auto& [name, value] : environment) setenv(name, value, 1);
        std::string text;
        Rendezvous r;
        const Fatal e = test::fatal_of([&] { r = rendezvous_of_environment(); });
        const std::string wrong = find_launcher().contradiction;
        if (!wrong.empty()) text = "contradiction: " + wrong;
        else if (e.code) text = e.what();
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
                       {"OMPI_COMMAND", "y"}, {"MASTER_ADDR", "a"}, {"WORLD_SIZE", "9"}}),
           "1 of 2, x.y: a ");
    // a batch script of Slurm is one process
    starts(found_with({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}}), "0 of 1, : ");
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

using Variables = std::vector<std::pair<const char*, const char*>>;
static Variables operator+(Variables a, const Variables& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A rank's own launcher is the innermost one.
TEST(launchers_nest) {
    const auto mpirun = [](const char* rank, const char* world, const char* here) {
        return Variables{{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", world},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", here}, {"PMIX_NAMESPACE", "9"},
                         {"OMPI_COMMAND", "y"}};
    };
    const auto srun = [](const char* rank, const char* world) {
        return Variables{{"SLURM_PROCID", rank}, {"SLURM_STEP_NUM_TASKS", world}, {"SLURM_JOB_ID", "7"},
                         {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NODELIST", "a"}};
    };
    const auto torchrun = [](const char* rank, const char* world, const char* here) {
        return Variables{{"RANK", rank}, {"WORLD_SIZE", world}, {"LOCAL_WORLD_SIZE", here},
                         {"MASTER_ADDR", "b"}, {"MASTER_PORT", "29500"}};
    };
    const Variables elastic = {{"TORCHELASTIC_RUN_ID", "none"}};
    const Variables by_hand = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "b"}};
    const struct { Variables all; const char* starts; } cases[] = {
        // mpirun in an allocation, in an interactive step, and below orteds that srun has started
        {Variables{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}} + mpirun("1", "2", "2"), "1 of 2, 9.y: "},
        {srun("0", "1") + mpirun("1", "2", "2"), "1 of 2, 9.y: "},
        {srun("2", "3") + mpirun("5", "8", "8"), "5 of 8, 9.y: "},
        // srun in a shell below mpirun
        {mpirun("0", "1", "1") + srun("3", "4") + Variables{{"PMIX_NAMESPACE", "slurm.pmix.7.0"}},
         "3 of 4, 7.0: a "},
        // torchrun in an allocation, in a step of one task, on each host of a step or of an mpirun
        {Variables{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "1"}} + torchrun("1", "2", "2"), "1 of 2, b."},
        {srun("0", "1") + torchrun("1", "2", "2"), "1 of 2, b.29500: 127.0.0.1"},
        {srun("1", "2") + torchrun("3", "16", "8"), "3 of 16, b.29500: b "},
        {srun("1", "2") + torchrun("0", "2", "1") + elastic, "0 of 2, b.29500: b "},
        {srun("0", "8") + torchrun("3", "4", "4") + Variables{{"SLURM_PTY_PORT", "1"}}, "3 of 4, b.29500"},
        {mpirun("1", "2", "1") + torchrun("3", "16", "8"), "3 of 16, b.29500: b "},
        // RANK and WORLD_SIZE set from the launcher's own numbers
        {srun("1", "2") + by_hand, "1 of 2, 7.0: b "},
        {mpirun("1", "2", "1") + by_hand, "1 of 2, 9.y: b "},
        // contradictions: exported by a shell, half of the ranks, a torchrun of its own on every host
        {mpirun("0", "2", "2") + torchrun("0", "9", ""), "contradiction: mpirun says that this is ra"},
        {mpirun("0", "2", "2") + torchrun("0", "1", "1"), "contradiction: mpirun says"},
        {mpirun("1", "2", "2") + torchrun("0", "2", "1"), "contradiction: mpirun says"},
        {srun("1", "2") + torchrun("0", "2", "2"), "contradiction: srun says that this is rank 1 of 2"},
        {srun("1", "2") + torchrun("0", "8", "8") + elastic, "contradiction: srun says"},
        {mpirun("0", "2", "2") + torchrun("x", "2", "2"), "contradiction: mpirun says"},
        {{{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "contradiction: RANK = 4 of WORLD_SIZE = 4 is no rank"},
        {{{"RANK", "one"}, {"WORLD_SIZE", "4"}}, "contradiction: RANK = one of WORLD_SIZE = 4 is no rank"},
        {{{"RANK", ""}, {"WORLD_SIZE", ""}}, "0 of 1, : "},
        // launchers that say too little: each process would train alone
        {{{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "b"}}, "contradiction: WORLD_SIZE = 4 is set, as by torchrun"},
        {{{"RANK", "1"}, {"MASTER_ADDR", "b"}}, "contradiction: RANK = 1 is set, as by torchrun"},
        {{{"PET_NNODES", "1:2"}, {"PET_NODE_RANK", "0"}}, "contradiction: PET_NNODES = 1:2 is set"},
        {{{"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_RANK", "0"}}, "contradiction: FLUX_JOB_SIZE = 2"},
        {{{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "prun.1"}}, "contradiction: PMIX_RANK = 0"},
        {{{"FLUX_JOB_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "b"}}, "1 of 2, "},
        {{{"RANK", "0"}, {"PET_NNODES", "1"}, {"FLUX_JOB_SIZE", "1"}, {"MASTER_ADDR", "b"}}, "0 of 1, : "},
    };
    for (const auto& c : cases) starts(found_with(c.all), c.starts);
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
