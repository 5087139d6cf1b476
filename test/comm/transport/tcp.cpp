// Ranks over TCP: pieces in orders that no two ranks share, ranks that go, callers that are no ranks.
// test/comm/comm.cpp has every verb over TCP.
#include <sys/wait.h>

#include <csignal>

#include "llmc/comm/transport/links.h"
#include "test/ranks.h"
#include "test/program.h"
#include "test/tcp_ranks.h"

using namespace test;

static std::vector<int> numbers(int rank, size_t count) {
    std::vector<int> v(count);
    for (size_t i = 0; i < count; i++) v[i] = int(i * 8 + size_t(rank));
    return v;
}

// A long message is on its way, a collective behind it; the receiver calls the collective first. Then two
// sends are in flight in both directions before anybody receives.
TEST(waits_in_any_order) {
    constexpr size_t kLong = 3 << 20;           // elements: more than connections hold
    for (const Memory memory : {Memory::Read, Memory::Apart}) {
        expect_success(run_over_tcp(config_of(2), 2, memory, [](const Mesh& mesh) {
            const Axis& a = mesh.world;
            const int other = 1 - a.index;
            const std::vector<int> mine = numbers(a.index, kLong), want = numbers(other, kLong);
            std::vector<int> got(kLong), gathered(2 * kLong);
            if (a.index == 0) {
                Pending sent = a.start_send(mine.data(), kLong, 1);
                a.all_gather(gathered.data(), mine.data(), kLong);
                a.wait(sent);
            } else {
                a.all_gather(gathered.data(), mine.data(), kLong);
                a.recv(got.data(), kLong, 0);
                EXPECT(got == want, "the message");
            }
            EXPECT(std::equal(want.begin(), want.end(), gathered.begin() + ptrdiff_t(size_t(other) * kLong)));
            Pending one = a.start_send(mine.data(), kLong, other), two = a.start_send(mine.data(), 5, other);
            a.recv(got.data(), kLong, other);
            EXPECT(got == want, "both send");
            a.recv(got.data(), 5, other);
            a.wait(one);
            a.wait(two);
        }));
    }
}

// The world and an axis of each rank are different groups: what waits in one does not hold up the other.
TEST(groups_do_not_wait_for_each_other) {
    Config c = config_of(4, 2);
    for (const Memory memory : {Memory::Read, Memory::Apart}) {
        expect_success(run_over_tcp(c, 4, memory, [](const Mesh& mesh) {
            constexpr size_t kLong = 1 << 20;
            const std::vector<int> mine = numbers(mesh.rank, kLong);
            std::vector<int> of_tp(2 * kLong), of_world(4 * kLong);
            Pending tp, world;
            // ranks of a pair start, and wait, in opposite orders
            for (const int turn : {mesh.tp.index, 1 - mesh.tp.index})
                if (turn) tp = mesh.tp.start_all_gather(of_tp.data(), mine.data(), kLong);
                else world = mesh.world.start_all_gather(of_world.data(), mine.data(), kLong);
            for (const int turn : {mesh.tp.index, 1 - mesh.tp.index})
                turn ? mesh.tp.wait(tp) : mesh.world.wait(world);
            for (int r = 0; r < 4; r++)
                EXPECT(of_world[size_t(r) * kLong + 7] == 56 + r, "rank %d", r);
        }));
    }
}

// Rank 1 throws: those that wait for it, and those that wait for these, end with 75 and its number.
TEST(a_rank_that_goes_is_named_to_all) {
    for (const Memory memory : {Memory::Read, Memory::Apart}) {
        const auto ended = run_over_tcp(config_of(3), 3, memory, [](const Mesh& mesh) {
            std::vector<int> x(50000, 1);
            mesh.world.all_reduce(x.data(), 100);
            if (mesh.rank == 1) fatal(kExitInternal, __FILE__, __LINE__, "a planted error");
            int y = 0;
            if (mesh.rank == 0) mesh.world.recv(&y, 1, 1);      // waits for rank 1
            mesh.world.recv(&y, 1, 0);                          // rank 2: for rank 0
        });
        for (const size_t r : {0, 2})
            EXPECT(ended[r].code == kExitRestart && has(ended[r].error, "rank 1"), "rank %zu: %d %s", r,
                   ended[r].code, ended[r].error.c_str());
    }
}

// Callers who hold the line, who send noise, and who claim to be a rank without its proof.
TEST(strangers_are_not_ranks) {
    std::vector<TcpDoor> doors;
    std::vector<TcpEndpoint> endpoints;
    for (int r = 0; r < 2; r++) {
        doors.push_back(tcp_listen(at_loopback(r, 2)));
        endpoints.push_back(doors.back().endpoint);
    }
    std::vector<Socket> strangers;
    for (int i = 0; i < 3; i++)
        strangers.push_back(
            std::move(connect_to("127.0.0.1", {endpoints[0].ports[0]}, seconds_now() + 5).at(0)));
    const std::string noise(100, 'x');
    strangers[1].send_some(noise.data(), noise.size());
    std::string claim(48, '\0');
    claim[0] = 1, claim[8] = char(index_of_group("world"));      // from rank 1, to rank 0
    strangers[2].send_some(claim.data(), claim.size());
    std::vector<std::thread> threads;
    std::vector<RankEnd> ended;
    ended.resize(2);
    for (int r = 0; r < 2; r++)
        threads.emplace_back([&, r] {
            usleep(r ? 300000 : 0);             // the strangers are first
            const Fatal e = fatal_of([&] {
                const Config c = config_of(2);
                RankMesh m(c.parallel, 2, r);
                tcp_begin(doors[size_t(r)], m, mesh_shape(c.parallel, 2), endpoints);
                int x = 1;
                m.mesh.world.all_reduce(&x, 1);
                EXPECT(x == 2);
                m.mesh.world.barrier();
                tcp_end();
            });
            ended[size_t(r)] = {e.code, e.what()};
        });
    for (std::thread& t : threads) t.join();
    expect_success(ended);
}

// ---------------------------------------------------------------------------------------------------------
// ./train_gpt

// The ranks of a job, as torchrun starts them: process ids and where each writes its errors.
struct Processes {
    std::vector<pid_t> ids;
    std::vector<int> codes;

    Processes(int ranks, const std::string& name, const std::string& args) {
        const int port = 20000 + getpid() % 20000;
        for (int r = 0; r < ranks; r++) {
            const std::string command = fmt::format(
                "exec env RANK={} WORLD_SIZE={} LOCAL_RANK={} LOCAL_WORLD_SIZE={} MASTER_ADDR=127.0.0.1 "
                "MASTER_PORT={} ./train_gpt {} > {}.{}.out 2> {}.{}.err",
                r, ranks, r, ranks, port, args, folder(name), r, folder(name), r);
            const pid_t id = fork();
            if (id == 0) {
                execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
                _exit(127);
            }
            ids.push_back(id);
        }
    }
    const std::vector<int>& wait() {
        for (const pid_t id : ids) {
            int status = 0;
            waitpid(id, &status, 0);
            codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
        return codes;
    }
};

TEST(a_run_below_torchrun_has_the_bits_of_threads) {
    const std::string args = " --run.precision=fp64 --train.batch_tokens=256 --train.micro_batch=1 ";
    for (const std::string mesh : {"zero=3", "tp=2", "pp=2"}) {
        const std::string threads = "threads_" + mesh, tcp = "tcp_" + mesh, axis = " --parallel." + mesh;
        const Ran ran = train_gpt(tiny_program_config(threads), args + "--parallel.ranks=4" + axis);
        EXPECT(ran.code == 0, "%s", ran.err.c_str());
        Processes ranks(4, tcp, tiny_program_config(tcp) + args + axis);
        EXPECT(ranks.wait() == std::vector<int>(4, 0), "%s: %s", mesh.c_str(),
               text_of(folder(tcp + ".0.err")).c_str());
        const auto a = rows_of(threads, "train"), b = rows_of(tcp, "train");
        EXPECT(!a.empty() && a.size() == b.size(), "%zu and %zu rows", a.size(), b.size());
        for (size_t i = 0; i < std::min(a.size(), b.size()); i++)
            EXPECT(a[i]["loss"] == b[i]["loss"] && a[i]["norm"] == b[i]["norm"], "%s: %s and %s",
                   mesh.c_str(), a[i].dump().c_str(), b[i].dump().c_str());
    }
}

TEST(a_killed_rank_ends_the_job_with_75) {
    const std::string config = tiny_program_config("killed", {{"train", {{"steps", 100000}}}});
    Processes ranks(3, "killed", config + " --train.batch_tokens=192 --train.micro_batch=1");
    for (int i = 0; i < 3000 && rows_of("killed", "train").size() < 3; i++) usleep(10000);
    // the rank itself, below its supervisor
    const Ran child = run(fmt::format("pgrep -P {}", ranks.ids[1]));
    kill(atoi(child.out.c_str()), SIGKILL);
    const auto& codes = ranks.wait();
    for (const int r : {0, 2}) {
        const std::string err = text_of(fmt::format("{}.{}.err", folder("killed"), r));
        EXPECT(codes[size_t(r)] == kExitRestart, "rank %d: code %d, '%s'", r, codes[size_t(r)], err.c_str());
    }
    std::string all;
    for (int r = 0; r < 3; r++) all += text_of(fmt::format("{}.{}.err", folder("killed"), r));
    EXPECT(has(all, "rank 1") && has(all, "SIGKILL"), "'%s'", all.c_str());
}
