// The ends of base/check.h: a line, and the process is over.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/guard/obituary.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/terminal.h"

inline namespace guard {

// "rank 2", and among several ranks "rank 2, train, step 17"
static std::string whereabouts() {
    const RankProgress* p = context.progress;
    if (!p || progress_page->world == 1) return fmt::format("rank {}", context.rank);
    return fmt::format("rank {}, {}, step {}", context.rank, name_of(p->phase), p->step);
}

// Behind an error: the rank and the line of the source. Users mend their input by the message alone, and need
// the rank only where there are several.
static std::string origin_of(int code, const char* file, int line) {
    if (code != kExitConfig) return fmt::format("\n       ({}, {}:{})", whereabouts(), file, line);
    const bool several = progress_page && progress_page->world > 1;
    return several ? fmt::format("\n       ({})", whereabouts()) : "";
}

}  // namespace guard

inline namespace base {

void fatal_message(int code, const char* file, int line, const std::string& message) {
    const std::string text = for_terminal(message);
    if (context.throw_on_fatal) throw Fatal(code, text);
    if (first_to_speak()) {
        fflush(stdout);
        print(stderr, "error: {}{}\n", text, origin_of(code, file, line));
        fflush(stderr);
    } else usleep(500000);      // who speaks ends the job
    if (context.undo) (*context.undo)();
    ends_on_purpose();
    hold_the_floor();
    _exit(code);    // no destructors: other threads may be in the middle of anything
}

static const char* memory_message;

// Nothing here may allocate.
[[noreturn]] static void out_of_memory() {
    (void)!write(2, memory_message, strlen(memory_message));
    ends_on_purpose();
    _exit(kExitConfig);
}

void end_without_memory(const char* message) {
    memory_message = message;
    std::set_new_handler(out_of_memory);
}

}  // namespace base
