// Every wait has a name, which the line about a death or a hang of the waiting rank shows. Every wait outside
// of libraries ends where in_wait throws.
#include "llmc/base/guard/wait.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>

#include <cstring>

#include "llmc/base/disk/output_file.h"
#include "llmc/base/guard/obituary.h"
#include "llmc/base/guard/supervisor.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/transport/mpi.h"
#include "llmc/comm/rendezvous/socket.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/data/loader.h"
#include "llmc/train/save/run_folder.h"
#include "llmc/train/save/saver.h"
#include "llmc/train/save/verify.h"
#include "test/meeting.h"
#include "test/own_processes.h"
#include "test/ranks.h"
#include "test/saving.h"
#include "test/shards.h"

using namespace test;
using std::string;

// ---------------------------------------------------------------------------------------------------------
// waits that last for ever, or long

static const std::function<void()>* look = nullptr;     // in_wait of every rank

// A place for files; of a program, below the folder of the test that runs it.
static string place(const string& name) {
    const char* const of_test = getenv("WAIT_DIR");
    return of_test ? string(of_test) + "/" + name : folder(name);
}

static void on_two_ranks(const Config& c, void (*body)(const Mesh&)) {
    run_threads(c, [&](Config, const Mesh& mesh) {
        in_wait = look;
        phase(Phase::Train, 5);
        body(mesh);
        return 0;
    });
}

static void await_message(const Mesh& mesh) {
    float x;
    mesh.pp.recv(&x, 1, 1 - mesh.pp.index);
}
static void receive() { on_two_ranks(config_of(2, 1, 2), await_message); }

static void send() {
    on_two_ranks(config_of(2, 1, 2), [](const Mesh& mesh) { mesh.pp.send("x", 1, 1 - mesh.pp.index); });
}

// The ranks are in different collectives.
static void gather() {
    on_two_ranks(config_of(2, 2), [](const Mesh& mesh) {
        const Axis& axis = mesh.rank == 0 ? mesh.world : mesh.tp;
        float x = 0, all[2];
        axis.all_gather(all, &x, 1);
    });
}

static void meet_nobody() { (void)exchange(place_of_rank(0, 2, {free_port()}), "x"); }
static void find_nobody() { (void)exchange(place_of_rank(1, 2, {free_port()}), "x"); }

static void read_socket() {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no sockets");
    const Socket here(ends[0]), there(ends[1]);
    char c;
    here.recv_all(&c, 1, seconds_now() + 1000);
}

// A micro-batch of which many rows take long.
static void load() {
    const string path = place("rows.bin");
    (void)write_shard(path, random_ids(101, 50));
    const Dataset set = open_dataset("data.train", {{path}}, 2, 1, true);
    Loader(set, 1 << 20, 0).next();
}

static std::atomic<bool> disk_goes_on;

static void save() {
    struct Unblock { ~Unblock() { disk_goes_on = true; } };
    Disk disk = posix_disk();
    disk.create = [](auto&&...) {
        while (!disk_goes_on) usleep(1000);
        return EIO;
    };
    const Share share = share_of(0, 1, 3);
    const auto data = std::as_bytes(std::span(share.data));
    Votes votes;
    const Axis alone;
    Saver saver(alone, two_are_kept(), votes, disk);
    const Unblock before_the_saver_ends;
    make_directories(place("saved"));
    SaveJob job = {};
    job.place.run_dir = place("saved"), job.place.step = 3;
    job.pieces = share.pieces, job.total_bytes = 1000, job.manifest = head_of(3);
    job.data = {data.first(data.size() / 2), data.last(data.size() / 2)};
    saver.begin(std::move(job));
    (void)saver.finish();
}

static void lock_twice() {
    const RunLock first(place("run")), second(place("run"));
}

static void hold_what_is_renamed() {
    make_directories(place("step_1"));
    const string path = place("step_1") + "/" + kManifest;
    const Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    CHECK(file && flock(file.fd, LOCK_EX) == 0, "no lock");
    (void)hold_checkpoint(place("step_1"));
}

static void block_in_library() {
    const Waiting named("MPI_Init", Awaits::Ranks, 0.5);
    for (;;) pause();
}

static void wait_at_the_end() {
    wait_for_the_end();
    for (;;) pause();
}

// Two processes, each waiting for the other.
static void receive_over_mpi() {
    const MpiJob job = mpi_begin();
    const Config c = config_of(0, 1, 2);
    RankMesh ranks(c.parallel, job.size, job.rank);
    for (int axis = 0; axis < kGroups; axis++)
        join_mpi(ranks.groups[axis], ranks.places[size_t(axis)].color, ranks.places[size_t(axis)].index);
    await_message(ranks.mesh);
}

// Killed: a signal ends the process while the ranks wait. Hangs, Late: the supervisor ends the process.
enum class End { Killed, Hangs, Late };
struct Case { const char* name; void (*wait)(); End end = End::Killed; int ranks = 1; bool throws = true; };
static constexpr Case kWaits[] = {
    {"recv pp", receive, End::Hangs, 2}, {"recv pp", receive, End::Killed, 2},
    {"send pp", send, End::Killed, 2}, {"all_gather world", gather, End::Killed, 2},
    {"rendezvous", meet_nobody}, {"rendezvous", find_nobody}, {"a socket", read_socket}, {"loader", load},
    {"a wait for the disk", save, End::Hangs}, {"a wait for the lock of run.dir", lock_twice},
    {"a wait for a checkpoint", hold_what_is_renamed},
    {"MPI_Init", block_in_library, End::Late, 1, false},
    {"finalize", wait_at_the_end, End::Hangs, 1, false}};
static constexpr Case kOverMpi = {"recv pp from rank", receive_over_mpi, End::Hangs, 2};

// ---------------------------------------------------------------------------------------------------------
// the program

static void kill_when_all_wait(int ranks) {
    for (int i = 0; i < ranks; i++)
        while (!progress_page->ranks[i].wait.text[0]) usleep(1000);
    usleep(20000);
    kill(getpid(), SIGKILL);
}

static void wait_supervised(const Case& c) {
    supervise();
    set_hang_timeout(c.wait == receive_over_mpi ? 2 : 0.3);
    phase(Phase::Train, 5);
    std::thread killer;
    if (c.end == End::Killed) killer = std::thread(kill_when_all_wait, c.ranks);
    c.wait();
}

struct Lost {};

static bool ends_by_throw(const Case& c) {
    const std::function<void()> lose = [] { throw Lost(); };
    in_wait = look = &lose;
    bool lost = false;
    try {
        c.wait();
    } catch (const Lost&) {
        lost = true;
    }
    in_wait = look = nullptr;
    return lost;
}

TEST(a_program_that_waits) {
    const char* const number = getenv("WAIT_OF");
    if (number) wait_supervised(kWaits[atoi(number)]);
}
TEST(processes_that_wait) {
    const char* const throws = getenv("WAIT_THROWS");
    if (!throws) return;
    if (!strcmp(throws, "0")) return wait_supervised(kOverMpi);
    puts(ends_by_throw(kOverMpi) ? "the wait ended by a throw" : "no throw");
    fflush(stdout);
    _exit(0);           // messages are under way: MPI cannot end
}

// ---------------------------------------------------------------------------------------------------------

TEST(the_line_about_an_end_names_the_wait) {
    for (size_t i = 0; i < std::size(kWaits); i++) {
        const Case& c = kWaits[i];
        const string dir = folder("wait" + std::to_string(i));
        make_directories(dir);
        const Ran r = run(fmt::format("WAIT_OF={} WAIT_DIR={} {} a_program_that_waits", i, dir, own_path()));
        static constexpr const char* kSaid[] = {"was killed by signal 9", "hangs", "has waited for"};
        const int code = c.end == End::Hangs ? kExitHang : kExitRestart;
        const bool named = r.err.find(fmt::format(", in {};", c.name)) != r.err.npos;
        EXPECT(r.code == code, "%s: exit code %d", c.name, r.code);
        EXPECT(named && r.err.find(kSaid[int(c.end)]) != r.err.npos, "%s: '%s'", c.name, r.err.c_str());
    }
}

TEST(a_wait_can_be_made_to_throw) {
    for (const Case& c : kWaits) {
        if (!c.throws) continue;
        RankProgress progress = {};
        context.progress = &progress;
        EXPECT(ends_by_throw(c), "%s: no throw ends the wait", c.name);
        EXPECT(!progress.wait.text[0], "%s: still in '%s'", c.name, progress.wait.text);
        context.progress = nullptr;
    }
}

TEST(waits_of_processes) {
    if (launcher().world > 1 || !can_start_processes()) return;
    const Ran hang = run_own_processes(2, "processes_that_wait", "WAIT_THROWS=0");
    EXPECT(hang.code == kExitHang && hang.err.find(", in recv pp from rank ") != string::npos,
           "exit code %d, '%s'", hang.code, hang.err.c_str());
    const Ran thrown = run_own_processes(2, "processes_that_wait", "WAIT_THROWS=1");
    EXPECT(thrown.out.find("ended by a throw") != string::npos, "'%s'", thrown.out.c_str());
}
