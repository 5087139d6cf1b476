// A single process of a job prints the cause of the end, against interference from other users.
#include "llmc/base/guard/obituary.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "llmc/base/guard/progress_page.h"
#include "test/test.h"

using std::string;

// A process that runs f, and lives until the test ends the process.
struct Process {
    pid_t pid;
    int said, end;

    template <class F> explicit Process(F&& f) {
        int from[2], to[2];
        CHECK(pipe(from) == 0 && pipe(to) == 0, "no pipe");
        pid = fork();
        if (pid == 0) {
            char answer = char('0' + f());
            close(to[1]);
            (void)!write(from[1], &answer, 1);
            (void)!read(to[0], &answer, 1);
            _exit(0);
        }
        close(from[1]), close(to[0]);
        said = from[0], end = to[1];
    }
    ~Process() {
        close(end), close(said);
        waitpid(pid, nullptr, 0);
    }
    bool answer() const {
        char c = '?';
        CHECK(read(said, &c, 1) == 1, "no answer");
        return c == '1';
    }
};

static bool speaks() {
    const Process p(first_to_speak);
    return p.answer();
}

// The name of this job's socket, readable by every user.
static string name_of_socket(const string& job) {
    std::ifstream in("/proc/net/unix");
    for (string line; std::getline(in, line);)
        if (const size_t at = line.find('@'); at != line.npos && line.find(job) != line.npos)
            return line.substr(at + 1);
    return "";
}

// Takes the name as another user does who wants the job to end in silence.
static bool squat(const string& name, int type) {
    if (getuid() == 0 && setuid(65534) != 0) return false;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, name.data(), name.size());
    const int fd = socket(AF_UNIX, type, 0);
    const auto size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) return false;
    return type == SOCK_DGRAM || listen(fd, 8) == 0;
}

TEST(one_process_of_a_job_speaks) {
    const string job = fmt::format("job{}", getpid());
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
        setenv(name, strcmp(name, "MASTER_ADDR") ? "2" : job.c_str(), 1);
    setenv("RANK", "0", 1);
    static ProgressPage page;
    progress_page = &page;
    string name;
    {
        const Process first(first_to_speak);
        EXPECT(first.answer(), "nobody speaks");
        EXPECT(!speaks() && !speaks(), "two processes speak");
        name = name_of_socket(job);
        EXPECT(!name.empty(), "no socket of this job");
    }
    EXPECT(speaks(), "nobody speaks after the first is gone");
    for (const int type : {SOCK_DGRAM, SOCK_STREAM}) {
        if (type == SOCK_STREAM && getuid() != 0) continue;     // this user's would count
        const Process other([&] { return squat(name, type); });
        EXPECT(other.answer() && speaks() && speaks(), "another user's socket keeps the job silent");
    }
}

// mpirun waits for a host that is gone: a process ends mpirun and its children. A launcher that ends in time
// is left alone.
TEST(a_launcher_that_does_not_end_is_ended) {
    int ends[2];                        // closed when nobody is left
    EXPECT(pipe(ends) == 0);
    const auto start = [&](bool in_time, const char* name) {
        const pid_t launcher = fork();
        if (launcher == 0) {
            setpgid(0, 0);
            prctl(PR_SET_NAME, name);
            if (in_time) _exit(7);
            if (fork() >= 0) for (;;) pause();
        }
        return launcher;
    };
    int status = 0;
    for (const auto& [in_time, name] : {std::pair{true, "mpirun"}, {false, "orted"}, {false, "sh"}}) {
        const bool shell = !strcmp(name, "sh");     // below mpirun: goes on
        const pid_t launcher = start(in_time, name);
        usleep(20000);
        const pid_t self = fork();      // a supervisor, which ends at once
        if (self == 0) {
            end_launcher_later(launcher, 0.1);
            _exit(0);
        }
        waitpid(self, nullptr, 0);
        if (shell) {
            usleep(300000);
            EXPECT(waitpid(launcher, &status, WNOHANG) == 0, "a shell is ended: %x", status);
            kill(-launcher, SIGKILL);
        }
        waitpid(launcher, &status, 0);
        if (in_time) EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %x", status);
        else if (!shell) EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSTKFLT, "status %x", status);
    }
    close(ends[1]);
    pollfd left = {.fd = ends[0], .events = POLLIN, .revents = 0};
    EXPECT(poll(&left, 1, 3000) == 1, "a process is left");
    close(ends[0]);
}
