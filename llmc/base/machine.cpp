#include "llmc/base/machine.h"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

// What stands behind "key:" in a file of such lines.
static std::string entry(const char* file, std::string_view key) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with(key)) continue;
        const size_t colon = line.find(':'), begin = line.find_first_not_of(" \t", colon + 1);
        if (colon == std::string::npos || line.find_first_not_of(" \t", key.size()) != colon) continue;
        return begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
}

static size_t kilobytes(const char* file, const char* key) {
    return strtoull(entry(file, key).c_str(), nullptr, 10) * 1024;
}

void allow_many_files() {
    rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == files.rlim_max) return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

size_t peak_resident_bytes() { return kilobytes("/proc/self/status", "VmHWM"); }
// By itself malloc keeps blocks of a size that was freed before.
void return_freed_blocks() { mallopt(M_MMAP_THRESHOLD, 256 << 10); }
size_t resident_bytes() { return kilobytes("/proc/self/status", "VmRSS"); }

bool reset_peak_resident() {
    std::ofstream out("/proc/self/clear_refs");
    return bool(out << "5" << std::flush);
}

// The one number in a file; `none` where there is no such file, or it says "max".
static size_t number_in(const std::string& file, size_t none) {
    std::ifstream in(file);
    size_t n;
    return in >> n ? n : none;
}

// Version 2 of control groups: the least room of this process's group and those above it.
static size_t room_in_groups() {
    std::ifstream in("/proc/self/cgroup");
    std::string line, path;
    while (std::getline(in, line))
        if (line.starts_with("0::")) path = line.substr(3);
    size_t room = SIZE_MAX;
    for (;;) {
        const std::string dir = "/sys/fs/cgroup" + (path == "/" ? "" : path);
        const size_t limit = number_in(dir + "/memory.max", SIZE_MAX);
        const size_t used = number_in(dir + "/memory.current", 0);
        if (limit != SIZE_MAX) room = std::min(room, limit - std::min(used, limit));
        if (path.empty() || path == "/") return room;
        path.resize(path.rfind('/'));
    }
}

size_t available_memory_bytes() {
    return std::min(kilobytes("/proc/meminfo", "MemAvailable"), room_in_groups());
}

std::string cpu_name() { return entry("/proc/cpuinfo", "model name"); }

int cores() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string host_name() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

long out_of_memory_kills(const char* vmstat) {
    std::ifstream in(vmstat);
    long count = 0;
    for (std::string key; in >> key >> count;) if (key == "oom_kill") return count;
    return 0;
}
