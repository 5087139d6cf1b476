// A profiler of a test's own: a library that NVTX loads by NVTX_INJECTION64_PATH, built by gcc. It knows what
// ranges need of NVTX's binary interface (nvtx3/nvtxDetail/nvtxTypes.h).
#pragma once
#include <map>
#include <sstream>

#include "test/program.h"

namespace test {

// Writes a line to the file $RANGES for each range: "THREAD push NAME" and "THREAD pop".
inline std::string fake_profiler() {
    const std::string path = folder("profiler.so"), source = folder("profiler.c");
    std::ofstream(source) << R"(
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
typedef void (*function)(void);
struct callbacks { size_t size; int (*module_functions)(int module, function*** table, unsigned* size); };
enum { callbacks_table = 1, core = 1, core2 = 5, push_a = 9, pop = 11, domain_create_a = 12 };
static FILE* out;
static long thread(void) { return syscall(SYS_gettid); }
static int on_push(const char* name) { return fprintf(out, "%ld push %s\n", thread(), name), 0; }
static int on_pop(void) { return fprintf(out, "%ld pop\n", thread()), 0; }
static void* on_domain(const char* name) { return fprintf(out, "0 domain %s\n", name), (void*)out; }
int InitializeInjectionNvtx2(const void* (*table)(unsigned)) {
    const struct callbacks* all = table(callbacks_table);
    function** functions;
    unsigned size;
    if (!all || !(out = fopen(getenv("RANGES"), "w"))) return 0;
    setvbuf(out, NULL, _IOLBF, 1 << 16);
    if (!all->module_functions(core, &functions, &size) || size <= pop) return 0;
    *functions[push_a] = (function)on_push;
    *functions[pop] = (function)on_pop;
    if (!all->module_functions(core2, &functions, &size) || size <= domain_create_a) return 0;
    *functions[domain_create_a] = (function)on_domain;
    return 1;
}
)";
    const Ran built = run("gcc -Wall -Werror -shared -fPIC -o " + path + " " + source);
    EXPECT(built.code == 0, "%s", built.err.c_str());
    return path;
}

// Names of a thread's ranges in each step, without the steps' own and those around ops.
struct ProfiledThread {
    std::vector<std::string> open;
    std::map<int, std::vector<std::string>> steps;
    int step = 0, groups = 0;

    void push(const std::string& name) {
        const bool group = name.starts_with("block ") || name.starts_with("ends");
        if (open.empty()) {
            EXPECT(name == fmt::format("step {}", step + 1), "after step %d: %s", step, name.c_str());
            steps[++step];
        } else if (group) {
            EXPECT(open.size() == 1, "%s inside %s", name.c_str(), open.back().c_str());
            groups++;
        } else {
            steps[step].push_back(name);
        }
        open.push_back(name);
    }
    void pop() {
        EXPECT(!open.empty(), "step %d: more ranges end than begin", step);
        if (!open.empty()) open.pop_back();
    }
};

inline std::map<int64_t, ProfiledThread> read_ranges(const std::string& path) {
    std::map<int64_t, ProfiledThread> threads;
    std::istringstream lines(text_of(path));
    std::string what, name;
    for (int64_t thread; lines >> thread >> what && std::getline(lines, name);)
        if (what == "pop") threads[thread].pop();
        else if (what == "push") threads[thread].push(name.substr(1));
    return threads;
}

}  // namespace test
