#include "test/test.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/base/progress.h"

namespace test {

static std::vector<Case>& cases() { static std::vector<Case> all; return all; }
static std::atomic<int> failures = 0; // of the running test
static std::string skipped;           // reason, where the running test was skipped

bool add(const char* file, const char* precision, const char* name, void (*body)()) {
    const std::string stem = std::filesystem::path(file).stem();
    cases().push_back({stem + "." + (*precision ? precision + std::string(".") : "") + name, body});
    return true;
}

void fail(const char* file, int line, const char* fmt, ...) {
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (++failures <= 5) printf("    %s:%d: %s\n", file, line, text);
}

void fail_expected(const char* file, int line, const char* condition, const char* fmt, ...) {
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fail(file, line, "EXPECT(%s)%s", condition, text);
}

void skip(const char* fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    skipped = text;
}

Fatal fatal_of(const std::function<void()>& f) {
    const bool before = context.throw_on_fatal;
    context.throw_on_fatal = true;
    Fatal result(0, "");
    try { f(); } catch (const Fatal& e) { result = e; }
    context.throw_on_fatal = before;
    return result;
}

static std::string slurp(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

Ran run(const std::string& command) {
    static std::atomic<int> count = 0;
    const std::string base = temporary_directory() + "/ran" + std::to_string(count++);
    const std::string line = "{ " + command + "\n} >" + base + ".out 2>" + base + ".err </dev/null";
    const int status = system(line.c_str());
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return {code, slurp(base + ".out"), slurp(base + ".err")};
}

std::string no_message(const std::string& err) {
    if (err.size() > 4000 || std::count(err.begin(), err.end(), '\n') > 8) return "too long";
    for (size_t i = 0; i < err.size(); i++) {
        const uint8_t c = uint8_t(err[i]), next = uint8_t(err[i + 1]);
        const bool c1 = c == 0xC2 && next >= 0x80 && next < 0xA0;
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || c1) return "control characters";
    }
    for (const char* word : {"terminate called", "std::", "Aborted", "(rank ", ".cpp:"})
        if (err.find(word) != err.npos) return word;
    return "";
}

std::string captured(int fd, const std::function<void()>& f) {
    const std::string path = temporary_directory() + "/captured" + std::to_string(fd);
    fflush(stdout), fflush(stderr);
    const int kept = dup(fd), to = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(to, fd), close(to);
    f();
    fflush(stdout), fflush(stderr);
    dup2(kept, fd), close(kept);
    return slurp(path);
}

static std::string started_as;
std::string own_path() { return started_as; }

std::string build_folder() {        // BUILD/test/NAME, or BUILD/checks/test/NAME
    auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
    return folder.filename() == "checks" ? folder.parent_path() : folder;
}

struct TemporaryDirectory {
    std::string path;
    TemporaryDirectory() {
        const char* where = getenv("TMPDIR");
        path = std::string(where && *where ? where : "/tmp") + "/train_gpt_test_XXXXXX";
        if (!mkdtemp(path.data())) fprintf(stderr, "no folder %s\n", path.c_str()), exit(1);
    }
    ~TemporaryDirectory() { std::error_code e; std::filesystem::remove_all(path, e); }
};

std::string temporary_directory() {
    static TemporaryDirectory dir;
    return dir.path;
}

// A binary holds the tests of a room. By the name of one of its files it runs that file's alone.
static std::string file_of_name(const char* program) {
    const std::string prefix = std::filesystem::path(program).filename().string() + ".";
    for (const Case& c : cases()) if (c.name.starts_with(prefix)) return prefix;
    return "";
}

static bool selected(const std::string& name, const std::vector<std::string>& filters) {
    for (const auto& f : filters) if (name.find(f) != std::string::npos) return true;
    return filters.empty();
}

}  // namespace test

int main(int argc, char** argv) {
    using namespace test;
    bool verbose = false;
    std::vector<std::string> filters;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-v")) verbose = true;
        else filters.push_back(argv[i]);
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (access("test/data", F_OK) != 0)
        return fprintf(stderr, "error: no folder test/data here: tests run in the project's folder\n"), 1;
    context.throw_on_fatal = true;    // a failed CHECK fails its test and not the whole binary
    started_as = std::filesystem::absolute(argv[0]);
    const std::string file = file_of_name(argv[0]);
    int passed = 0, failed = 0, skips = 0;
    for (const Case& c : cases()) {
        if (!c.name.starts_with(file) || !selected(c.name, filters)) continue;
        failures = 0;
        skipped.clear();
        const double start = seconds_now();
        try { c.body(); } catch (const std::exception& e) { fail("exception", 0, "%s", e.what()); }
        const bool skip = !failures && !skipped.empty();
        failures ? failed++ : skip ? skips++ : passed++;
        if (failures) printf("FAIL  %s (%d)\n", c.name.c_str(), failures.load());
        else if (skip) printf("skip  %s: %s\n", c.name.c_str(), skipped.c_str());
        else if (verbose) printf("ok    %s  (%.1f s)\n", c.name.c_str(), seconds_now() - start);
    }
    if (passed + failed + skips == 0 && !filters.empty()) {     // a precision misspelt is not one that passes
        printf("FAIL  no test here has %s in its name\n", filters[0].c_str());
        failed = 1;
    }
    if (skips) printf("%d passed, %d failed, %d skipped\n", passed, failed, skips);
    else printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
