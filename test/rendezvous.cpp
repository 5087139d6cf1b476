// Ranks that meet over TCP: strangers, other jobs and ranks that do not come.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "llmc/base/context.h"
#include "llmc/comm/rendezvous.h"
#include "test/test.h"

// A socket that listens at a port of the kernel's choice; not listening, it only keeps the port from others.
struct Door {
    int fd;
    uint16_t port;
    explicit Door(bool listens) : fd(socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in a = {};
        a.sin_family = AF_INET;
        bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a);
        if (listens) listen(fd, 16);
        socklen_t n = sizeof a;
        getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n);
        port = ntohs(a.sin_port);
    }
    ~Door() { close(fd); }
};

static uint16_t free_port() { return Door(false).port; }

struct Result { std::vector<std::string> texts; int code = 0; std::string error; };

static Result meet(const Rendezvous& r, const std::string& text, int delay_ms = 0) {
    Result result;
    usleep(unsigned(delay_ms) * 1000);
    const Fatal e = test::fatal_of([&] { result.texts = exchange(r, text); });
    result.code = e.code;
    result.error = e.what();
    return result;
}

static Rendezvous rendezvous(int rank, int world, std::vector<uint16_t> ports, std::string job = "a job") {
    return {.rank = rank,
            .world = world,
            .host = "localhost",
            .ports = std::move(ports),
            .job = std::move(job),
            .timeout = 20,
            .patience = 0.5};
}

static std::string text_of(int rank) { return std::string(size_t(rank) * 1000, 'x') + std::to_string(rank); }

static void expect_all(const std::vector<Result>& all) {
    for (size_t r = 0; r < all.size(); r++) {
        EXPECT(all[r].code == 0, "rank %zu: %s", r, all[r].error.c_str());
        EXPECT(all[r].texts.size() == all.size(), "rank %zu has %zu", r, all[r].texts.size());
        for (size_t i = 0; i < all[r].texts.size(); i++) EXPECT(all[r].texts[i] == text_of(int(i)));
    }
}

static std::vector<Result> run(int world, const std::vector<uint16_t>& ports, const std::string& job,
                               int latest) {
    std::vector<Result> all;
    all.resize(size_t(world));
    std::vector<std::thread> threads;
    for (int r = 0; r < world; r++)
        threads.emplace_back([&, r] {
            all[size_t(r)] = meet(rendezvous(r, world, ports, job), text_of(r), r == latest ? 300 : 0);
        });
    for (auto& t : threads) t.join();
    return all;
}

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

TEST(strangers_are_turned_away) {
    const uint16_t port = free_port();
    std::vector<Result> all;
    std::thread job([&] { all = run(2, {port}, "strangers", 1); });
    sockaddr_in a = {};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 3; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        for (int t = 0; t < 100 && connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a); t++) usleep(2000);
        const char words[] = "GET / HTTP/1.0\r\n\r\n and what it takes to be as long as Hello";
        EXPECT(send(fd, words, sizeof words, MSG_NOSIGNAL) >= 0 || errno == EPIPE);
        close(fd);
    }
    job.join();
    expect_all(all);
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

// What a child with this environment, and nothing else that launchers set, finds: "rank of world, job: host,
// ports".
static std::string found_with(const std::vector<std::pair<const char*, const char*>>& environment) {
    int ends[2];
    EXPECT(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK", "MASTER_ADDR",
                                 "MASTER_PORT", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) unsetenv(name);
        for (const auto& [name, value] : environment) setenv(name, value, 1);
        std::string text;
        Rendezvous r;
        const Fatal e = test::fatal_of([&] { r = rendezvous_of_environment(); });
        if (e.code) text = e.what();
        else {
            text = strf("%d of %d, %s: %s", r.rank, r.world, r.job.c_str(), r.host.c_str());
            for (const uint16_t port : r.ports) text += " " + std::to_string(port);
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

TEST(environments_of_launchers) {
    const auto starts = [](const std::string& text, const char* with) {
        EXPECT(text.starts_with(with), "'%s', expected '%s...'", text.c_str(), with);
    };
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
    // mpirun says whether all are here; of another host it does not
    starts(found_with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "x"},
                       {"OMPI_COMMAND", "y"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
           "1 of 2, x.y: localhost ");
    const std::string two_hosts = found_with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"},
                                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
    EXPECT(two_hosts.find("set MASTER_ADDR to its host") != std::string::npos, "'%s'", two_hosts.c_str());
    // a script of Slurm's is one process; what makes no sense is none
    starts(found_with({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}}), "0 of 1, : ");
    starts(found_with({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), "0 of 1, : ");
    const std::string nowhere = found_with({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    EXPECT(nowhere.find("set MASTER_ADDR to its host") != std::string::npos, "'%s'", nowhere.c_str());
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

TEST(names_of_nodes) {
    EXPECT(first_host("gpu[003-006,9],login1") == "gpu003");
    EXPECT(first_host("gpu[7,9]-ib,b") == "gpu7-ib");
    EXPECT(first_host("a1,b[1-2]") == "a1");
    EXPECT(first_host("alone") == "alone" && first_host("").empty());
}
