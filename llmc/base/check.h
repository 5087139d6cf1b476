// Room base: errors, the terminal and progress lines, for every program here.
// Every other room calls it. The room knows no setting and no model.
//
// Errors. Every failed check calls fatal(): prints the failure, the place and the remedy, then ends the job.
#pragma once
#ifdef __CUDACC__
#define FMT_USE_CONSTEXPR 1       // fmt 9 leaves it out for nvcc, which has it
#endif
#include <fmt/core.h>

#include <stdexcept>
#include <string>

inline namespace base {

// Exit codes are a contract with scripts and schedulers.
enum Exit : int {
    kExitDone = 0,
    kExitInternal = 1,        // a CHECK failed: a bug of ours
    kExitRestart = 75,        // stopped by a signal or a lost peer: start again
    kExitHang = 76,
    kExitNotFinite = 77,
    kExitConfig = 78,         // configuration or input
    kExitCheckpoint = 79,     // no checkpoint passes verification
};

// Thrown by fatal() instead of exiting if Context::throw_on_fatal is set (tests, fuzzers).
struct Fatal : std::runtime_error {
    int code;
    Fatal(int code, const std::string& message) : std::runtime_error(message), code(code) {}
};

// Messages are formats of libfmt. fatal() and warning() escape and shorten text from outside.
[[noreturn]] void fatal_message(int code, const char* file, int line, const std::string& message);
template <class... A>
[[noreturn]] void fatal(int code, const char* file, int line, fmt::format_string<A...> format,
                        const A&... args) {
    fatal_message(code, file, line, fmt::vformat(format, fmt::make_format_args(args...)));
}

// Prints "warning: ..." as a line on stderr.
void warning_message(const std::string& message);
template <class... A> void warning(fmt::format_string<A...> format, const A&... args) {
    warning_message(fmt::vformat(format, fmt::make_format_args(args...)));
}

// Makes a failed `new` print the message and end the process with exit code 78.
void end_without_memory(const char* message);

}  // namespace base

// An invariant of the program. Always compiled in.
#define CHECK(cond, ...) \
    do { if (!(cond)) [[unlikely]] fatal(kExitInternal, __FILE__, __LINE__, __VA_ARGS__); } while (0)

// Checks user input: configuration, data, files. The message has place, expected and found value, and remedy.
#define CHECK_INPUT(cond, ...) \
    do { if (!(cond)) [[unlikely]] fatal(kExitConfig, __FILE__, __LINE__, __VA_ARGS__); } while (0)
