// Without threads or memory from the system, a run continues, or ends in a message before training.
// seccomp(2) refuses threads to any user; the limits of `ulimit -u` hold for users other than root.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>

#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

// This process and its children get no thread, but they may fork. The flags of clone3 are in memory, where no
// filter can look: libraries fall back to clone.
static bool refuse_threads() {
    constexpr auto kNumber = uint32_t(offsetof(seccomp_data, nr));
    constexpr auto kFlags = uint32_t(offsetof(seccomp_data, args));
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN)};
    const sock_fprog program = {.len = std::size(code), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Where NO_THREADS is set this binary starts the program of its arguments, without threads.
[[gnu::constructor]] static void start_without_threads(int, char** argv) {
    if (!getenv("NO_THREADS")) return;
    unsetenv("NO_THREADS");
    if (!refuse_threads()) _exit(126);
    execv(argv[1], argv + 1);
    _exit(127);
}

static string without_threads(const string& command) {
    return "NO_THREADS=1 " + fs::read_symlink("/proc/self/exe").string() + " " + command;
}

static bool can_refuse() {
    static const bool can = !kThreadSanitizer && run(without_threads("/bin/true")).code == 0;
    if (!can) skip("seccomp is not allowed here, or a sanitizer needs threads");
    return can;
}

static bool saved(const string& name, int step) {
    return there(folder(name) + fmt::format("/step_{}/manifest.json", step));
}

static const json kSaving = {{"checkpoint", {{"every", 2}, {"keep_last", 9}}}};

TEST(a_run_goes_on_without_threads) {
    if (!can_refuse()) return;
    const Ran plain = train_gpt(tiny_program_config("plain", kSaving));
    for (const string threads : {"1", "4"}) {
        const string name = "without" + threads;
        const Ran ran = run(without_threads("./train_gpt " + tiny_program_config(name, kSaving) +
                                            " --run.threads=" + threads));
        EXPECT(plain.code == 0 && ran.code == 0, "exit code %d, '%s'", ran.code, ran.err.c_str());
        for (const char* word : {"tokens are read between steps", "training waits for its checkpoints",
                                 "ulimit -u"})
            EXPECT(ran.err.find(word) != string::npos, "no '%s' in '%s'", word, ran.err.c_str());
        EXPECT(std::count(ran.err.begin(), ran.err.end(), '\n') == (threads == "1" ? 2 : 3), "'%s'",
               ran.err.c_str());
        EXPECT(timeless(name) == timeless("plain"), "other rows");
        for (const int step : {2, 4, 6, 8, 10}) EXPECT(saved(name, step), "no step_%d", step);
    }
}

// No thread waits for signals: the training loop asks for them.
TEST(signals_reach_a_run_without_threads) {
    if (!can_refuse()) return;
    const string config = tiny_program_config("signalled", {{"train", {{"steps", 1000000}}}});
    const string dir = folder("signalled");
    const Ran ran = run(without_threads("./train_gpt " + config) + " & pid=$!\n"
                        "when() { until \"$@\" || ! kill -0 $pid; do sleep 0.02; done >/dev/null 2>&1; }\n"
                        "when grep -q '\"train\"' " + dir + "/metrics.jsonl; kill -USR1 $pid\n"
                        "when grep -q step_ " + dir + "/checkpoints.jsonl; kill -TERM $pid; wait $pid");
    EXPECT(ran.code == kExitRestart, "exit code %d, '%s'", ran.code, ran.err.c_str());
    const std::vector<int> steps = steps_of("signalled", "train");
    EXPECT(!steps.empty() && saved("signalled", steps.back()), "the last step is not saved");
}

TEST(ranks_need_threads) {
    if (!can_refuse()) return;
    const string config = tiny_program_config("ranks");
    const Ran ran = run(without_threads("./train_gpt " + config + " --parallel.ranks=2"));
    EXPECT(ran.code == kExitConfig && no_message(ran.err).empty(), "exit code %d, '%s'", ran.code,
           ran.err.c_str());
    EXPECT(ran.err.find("parallel.ranks = 2") != string::npos && !there(folder("ranks") + "/metrics.jsonl"),
           "'%s'", ran.err.c_str());
}

TEST(mpi_needs_threads) {
    if (run("command -v mpirun").code != 0 || run("./train_gpt --version").out.find("MPI") == string::npos)
        return skip("no mpirun, or built without MPI");
    if (!can_refuse()) return;
    const string self = fs::read_symlink("/proc/self/exe");
    const string mpirun = "mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np 2 ";
    const Ran ran = run("NO_THREADS=1 " + mpirun + self + " ./train_gpt " + tiny_program_config("mpi"));
    EXPECT(ran.code == kExitConfig && ran.err.starts_with("error: MPI needs 3 threads") &&
               ran.err.find("error: ", 1) == string::npos, "exit code %d, '%s'", ran.code, ran.err.c_str());
}

TEST(tokenize_goes_on_without_threads) {
    if (!can_refuse()) return;
    text_config();
    const string encode = "./tokenize encode --threads=3 --tokenizer=" + folder("tokenizer.json") + " ";
    const Ran plain = run(encode + "--out=" + folder("a") + " " + folder("text.txt"));
    const Ran ran = run(without_threads(encode + "--out=" + folder("b") + " " + folder("text.txt")));
    EXPECT(plain.code == 0 && ran.code == 0 && ran.err.find("1 of 3 threads") != string::npos,
           "exit code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(text_of(folder("a_train_000000.bin")) == text_of(folder("b_train_000000.bin")), "other shards");
}

// Refused with a message before training, or done.
static bool refused_or_done(const string& what, const string& name, const Ran& ran) {
    const bool begun = !rows_of(name, "train").empty();
    const bool done = ran.code == 0 && saved(name, 10);
    const bool refused = ran.code == kExitConfig && !begun && no_message(ran.err).empty();
    EXPECT(done || refused, "%s: exit code %d, '%s'", what.c_str(), ran.code, ran.err.c_str());
    return done;
}

// As many processes and threads as a user may have: a user whom nobody else is.
TEST(every_number_of_threads) {
    const string user = "setpriv --reuid=54321 --regid=54321 --clear-groups ";
    if (kAddressSanitizer || kThreadSanitizer || getuid() != 0 || run(user + "true").code != 0)
        return skip("needs root, setpriv(1), and no sanitizer");
    fs::permissions(temporary_directory(), fs::perms::all);
    const string program = folder("train_gpt");
    fs::copy_file("train_gpt", program);
    for (const int ranks : {1, 2}) {
        int done = 0;
        for (const int n : ranks == 1 ? std::vector{1, 2, 3, 4, 5, 6} : std::vector{2, 4, 5, 6, 8}) {
            const string name = fmt::format("limit{}_{}", n, ranks),
            config = tiny_program_config(name, kSaving);
            const Ran ran = run(user + fmt::format("bash -c 'ulimit -u {}; exec ",
                                                   n) + program + " " + config +
                                fmt::format(" --run.threads=2 --parallel.ranks={}'", ranks));
            done += refused_or_done(fmt::format("{} threads, {} ranks", n, ranks), name, ran);
        }
        EXPECT(done > 0, "%d ranks: no run is done", ranks);
    }
}

// `ulimit -v`: below the first step libraries cannot be loaded; the last step is enough for a run.
TEST(every_size_of_the_address_space) {
    if (kAddressSanitizer || kThreadSanitizer) return skip("a sanitizer takes address space of its own");
    int done = 0, refused = 0;
    for (int mb = 40; mb <= 640; mb = mb * 3 / 2) {
        const string name = fmt::format("space{}", mb);
        const Ran ran = run(fmt::format("ulimit -v {}; ./train_gpt ", mb * 1024) +
                            tiny_program_config(name, kSaving) + " --run.threads=2");
        if (ran.code == 127 || (ran.code == 1 && ran.err.empty())) continue;        // the loader
        const bool ends = refused_or_done(fmt::format("{} MB", mb), name, ran);
        ends ? done++ : refused++;
    }
    EXPECT(done > 0 && refused > 0, "%d done, %d refused", done, refused);
}
