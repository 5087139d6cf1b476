// Errors of kernels, told with kernel, file and line, block and thread. Addresses become lines by addr2line,
// names of kernels come from nm: both of binutils, run only when there is something to tell.
#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "llmc/base/check.h"
#include "test/emulator/scheduler.h"

extern "C" const char __executable_start;

namespace emulator {

static std::string output_of(const std::string& command) {
    std::string out;
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) return out;
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, pipe)) > 0; ) out.append(piece, n);
    pclose(pipe);
    return out;
}

static std::string executable() {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    return n > 0 ? std::string(path, size_t(n)) : "";
}

// Addresses in the file are relative to the load address, unless linked to a fixed address.
static uintptr_t in_file(Site site) {
    const auto start = reinterpret_cast<uintptr_t>(&__executable_start);
    const auto address = reinterpret_cast<uintptr_t>(site);
    return start == 0x400000 ? address : address - start;
}

// The innermost line outside the emulation, then the callers of the inlined code.
std::string place_of(Site site) {
    if (!site) return "?";
    const std::string text = output_of(fmt::format("addr2line -i -e '{}' 0x{:x} 2>/dev/null", executable(),
                                                   in_file(site) - 1));
    std::string places;
    for (size_t at = 0; at < text.size(); ) {
        const size_t end = std::min(text.find('\n', at), text.size());
        std::string line = text.substr(at, end - at);
        at = end + 1;
        if (line.find(" (disc") != std::string::npos) line.resize(line.find(" (disc"));
        const bool emulation = line.find("test/emulator/") != std::string::npos;
        if (line.starts_with("??") || line.starts_with("/usr/")) continue;
        if (emulation && line.find(".cu:") == std::string::npos) continue;
        if (line.starts_with("./")) line.erase(0, 2);
        places += (places.empty() ? "" : ", from ") + line;
    }
    return places.empty() ? fmt::format("address 0x{:x}", in_file(site)) : places;
}

// Functions by where they begin in the file. Never destroyed: needed until the very end.
static const std::map<uintptr_t, std::string>& functions() {
    static std::mutex guard;
    static auto& names = *new std::map<uintptr_t, std::string>;
    const std::lock_guard lock(guard);
    if (names.empty()) {
        const std::string text = output_of(fmt::format("nm --defined-only '{}' 2>/dev/null", executable()));
        for (size_t at = 0; at < text.size(); ) {
            const size_t end = std::min(text.find('\n', at), text.size());
            unsigned long address;
            char type, name[4096];
            if (sscanf(text.substr(at, end - at).c_str(), "%lx %c %4095s", &address, &type, name) == 3 &&
                strchr("tTwW", type))
                names[address] = name;
            at = end + 1;
        }
    }
    return names;
}

std::string kernel_name(const void* address) {
    const auto after = functions().upper_bound(in_file(address));
    if (after == functions().begin()) return fmt::format("code at 0x{:x}", in_file(address));
    const std::string& mangled = std::prev(after)->second;
    int status = 0;
    char* demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
    std::string name = status == 0 ? demangled : mangled;
    free(demangled);
    return name;
}

const std::string& report() { return this_machine().report; }

static std::string triple(const uint3& i) { return fmt::format("({},{},{})", i.x, i.y, i.z); }

void fail_at(const Thread* thread, Site site, const std::string& text) {
    Machine& m = *machine;
    Thread* const running = std::exchange(current, nullptr);       // from here on, not the kernel
    m.report = fmt::format("{}\n    in {}\n    at {}, block {} thread {}", text,
                           kernel_name(m.launch->kernel), place_of(site),
                           triple(thread->block->index), triple(thread->index));
    current = running;
    leave_launch();
}

void fail(Site site, const char* fmt, ...) {
    va_list list;
    va_start(list, fmt);
    char text[4096];
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    fail_at(current, site, text);
}

}  // namespace emulator
