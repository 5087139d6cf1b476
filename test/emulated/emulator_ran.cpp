// Every compiled kernel has run in an earlier test, and a test has counted its traffic: each instantiation of
// each __global__ function, in both precisions.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "test/test.h"

namespace fs = std::filesystem;

static std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// Each up to its first tab.
static std::set<std::string> lines_of(const std::string& text) {
    std::set<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line); ) lines.insert(line.substr(0, line.find('\t')));
    return lines;
}

static bool part_of_name(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The names of __global__ functions in a source: what stands before the parameters, launch bounds left out.
static void add_kernel_names(const std::string& source, std::set<std::string>& names) {
    for (size_t at = source.find("__global__"); at != std::string::npos; at = source.find("__global__", at)) {
        at += 10;
        const size_t bounds = source.find("__launch_bounds__", at), stop = source.find_first_of(";{", at);
        if (bounds < stop) {
            int depth = 0;
            for (at = source.find('(', bounds); ; at++) {
                depth += source[at] == '(' ? 1 : source[at] == ')' ? -1 : 0;
                if (depth == 0) break;
            }
        }
        const size_t end = source.find('(', at + 1);
        size_t start = end;
        while (start > at && part_of_name(source[start - 1])) start--;
        if (start < end) names.insert(source.substr(start, end - start));
    }
}

// Functions of the library with this name, demangled.
static std::set<std::string> compiled(const std::string& library, const std::set<std::string>& names) {
    std::set<std::string> kernels;
    for (const std::string& line : lines_of(test::run("nm -C --defined-only '" + library + "'").out)) {
        if (line.size() < 19 || !strchr("tTwW", line[17])) continue;
        if (line.find("[clone") != std::string::npos) continue;
        if (line.ends_with(" const")) continue;                     // a lambda inside a kernel
        const std::string function = line.substr(19);
        for (const std::string& name : names) {
            const size_t at = function.find("::" + name);
            if (at == std::string::npos) continue;
            const char after = function[at + 2 + name.size()];
            if (after == '(' || after == '<') kernels.insert(function);
        }
    }
    return kernels;
}

// Kernels missing from the file that the variable names.
static void expect_all_in(const char* variable, const char* what) {
    const char* ran_file = getenv(variable);
    if (test::kAddressSanitizer) return test::skip("tests have one precision in this build");
    if (!ran_file) return test::skip("%s names no list: test/run_all.sh makes one", variable);
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator("llmc"))
        if (entry.path().extension() == ".cu" || entry.path().extension() == ".h")
            add_kernel_names(text_of(entry.path()), names);
    EXPECT(names.size() >= 15, "%zu kernels in the sources", names.size());
    const std::string library = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "libcuda.a";
    const auto ran = lines_of(text_of(ran_file)), kernels = compiled(library, names);
    EXPECT(kernels.size() >= names.size(), "%zu functions in %s for %zu names", kernels.size(),
           library.c_str(), names.size());
    for (const std::string& kernel : kernels)
        EXPECT(ran.contains(kernel), "never %s: %s", what, kernel.c_str());
}

TEST(every_compiled_kernel_ran) { expect_all_in("EMU_RAN", "ran"); }
TEST(every_compiled_kernel_was_held_against_its_floor) { expect_all_in("EMU_FLOORS", "in EXPECT_FLOORS"); }
