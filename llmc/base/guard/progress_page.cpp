#include "llmc/base/guard/progress_page.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/guard/flip.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"

inline namespace guard {

// The page as a file without a name, which the child keeps when it starts its program anew.
static constexpr const char* kPageVariable = "TRAIN_GPT_PAGE";
static int page_file = -1;

static ProgressPage* map_page(int fd) {
    const int kind = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void* const memory = mmap(nullptr, sizeof(ProgressPage), PROT_READ | PROT_WRITE, kind, fd, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<ProgressPage*>(memory);
}

ProgressPage* make_progress_page() {
    const auto before = signal(SIGXFSZ, SIG_IGN);          // of `ulimit -f`
    page_file = memfd_create("train_gpt", MFD_CLOEXEC);
    if (page_file >= 0 && ftruncate(page_file, sizeof(ProgressPage)) != 0) {
        close(page_file);
        page_file = -1;
    }
    signal(SIGXFSZ, before);
    return map_page(page_file);
}

bool keep_progress_page() {
    if (!progress_page) return true;
    if (page_file < 0 || fcntl(page_file, F_SETFD, 0) != 0) return false;
    const std::string kept =
        fmt::format("{}:{:d}:{:d}:{}", page_file, on_terminal(1), on_terminal(2), getppid());
    return setenv(kPageVariable, kept.c_str(), 1) == 0;
}

void close_page_file() {
    if (page_file >= 0) close(page_file);
    page_file = -1;
}

bool found_progress_page() {
    const char* const text = getenv(kPageVariable);
    int fd = -1, out = 0, err = 0, parent = 0;
    const bool read = text && sscanf(text, "%d:%d:%d:%d", &fd, &out, &err, &parent) == 4;
    unsetenv(kPageVariable);
    struct stat file;
    const bool is_page = read && parent == getppid() && fd > 2 && fstat(fd, &file) == 0 &&
                         size_t(file.st_size) == sizeof(ProgressPage);
    if (!is_page) return false;
    progress_page = map_page(fd);
    close(fd);
    if (!progress_page) return false;
    note_terminals(out, err);
    if (out) setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    return true;
}

const char* name_of(Phase p) {
    static const char* const names[] = {"start", "load", "train", "evaluate", "sample", "save", "end"};
    return names[int(p)];
}

void join_progress(int rank, int world, int local) {
    if (!progress_page || local >= ProgressPage::kMostRanks) return;
    RankProgress& r = progress_page->ranks[local];
    r.joined = rank + 1;
    progress_page->world = world;
    int used = progress_page->used;
    while (used < local + 1 && !progress_page->used.compare_exchange_weak(used, local + 1)) {}
    context.progress = &r;
}

// ---------------------------------------------------------------------------------------------------------
// faults for tests

struct Fault {
    std::string phase, action;
    int64_t step = -1;
    int rank = 0;
};

static Fault asked_fault() {
    const char* text = getenv("FAULT");
    char phase[16], action[32];
    long long step;
    int rank = 0;
    if (!text || sscanf(text, "%15[a-z]:%lld:%31[a-z0-9-]:%d", phase, &step, action, &rank) < 3) return {};
    return {.phase = phase, .action = action, .step = step, .rank = rank};
}

static void fail_as(const std::string& action) {
    stamp_fault();
    if (action == "kill") raise(SIGKILL);
    else if (action == "stop") raise(SIGSTOP);
    else if (action == "exit") exit(3);
    else if (action == "throw") throw std::runtime_error("thrown by FAULT");
    else if (action == "segv") raise(SIGSEGV);
    else if (action == "hang") for (;;) pause();
    else if (action.starts_with("slow")) context.progress->slow_ms = atoi(action.c_str() + 4);
}

static void fail_if_asked(Phase p, int64_t step, int rank) {
    static const Fault fault = asked_fault();
    if (fault.step < 0 || fault.rank != rank || fault.phase != name_of(p)) return;
    const int ms = atoi(fault.action.c_str());
    if (const Flip what = flip_named(fault.action); what != Flip::None) {
        if (step == fault.step || (step > fault.step && repeats_flip(fault.action))) ask_flip(what);
        return;
    }
    if (ms > 0 && step >= fault.step) usleep(useconds_t(ms) * 1000);
    else if (step == fault.step) fail_as(fault.action);
}

void be_slow(int ms) { usleep(useconds_t(ms) * 1000); }

void phase(Phase p, int64_t step) {
    RankProgress* const r = context.progress;
    if (!r) return;
    r->step = step;
    r->phase = p;
    beat();
    fail_if_asked(p, step, r->joined - 1);
}

}  // namespace guard
