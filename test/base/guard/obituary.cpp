// A single process of a job prints the cause of the end, against interference from other users.
#include "llmc/base/guard/obituary.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

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

static bool speaks(const string& folder, const char* job = "2") {
    const Process p([&] {
        setenv("MASTER_PORT", job, 1);
        return first_to_speak(folder.c_str());
    });
    return p.answer();
}

// Another user who wants the job to end in silence. False: this user can be no other.
static bool takes(const string& path) {
    if (getuid() != 0 || setuid(65534) != 0) return false;
    const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0666);
    struct flock all = {};
    all.l_type = F_WRLCK;
    return fd >= 0 && fcntl(fd, F_OFD_SETLK, &all) == 0;
}

TEST(one_process_of_a_job_speaks) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) setenv(name, "2", 1);
    setenv("RANK", "0", 1);
    static ProgressPage page;
    progress_page = &page;
    const string mine = test::folder("mine"), all = test::folder("all");
    for (const string& folder : {test::temporary_directory(), mine, all}) {
        std::filesystem::create_directories(folder);
        std::filesystem::permissions(folder, std::filesystem::perms(folder == all ? 0777 : 0755));
    }
    {
        const Process first([&] { return first_to_speak(mine.c_str()); });
        EXPECT(first.answer(), "nobody speaks");
        EXPECT(!speaks(mine) && !speaks(mine), "two processes speak");
        EXPECT(speaks(mine, "3"), "another job is silent");
    }
    EXPECT(speaks(mine), "nobody speaks after the first is gone");
    EXPECT(speaks(mine + "/none") && speaks(mine + "/none"), "without a file the job is silent");
    const string file = fmt::format("{}/train_gpt.{}", all, getuid());
    const Process other([&] { return takes(file); });
    EXPECT(other.answer() || getuid() != 0, "no other user");
    EXPECT(speaks(all) && (getuid() != 0 || speaks(all)), "another user's file keeps the job silent");
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
