#include "llmc/base/host/machine.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "llmc/base/check.h"

inline namespace host {

// The text after "key:" in a file of such lines.
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

void meet_limits() {
    static constexpr rlim_t kStack = 8 << 20, kLeast = 512 << 10;      // bytes
    signal(SIGXFSZ, SIG_IGN);
    rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) || stack.rlim_cur >= kStack) return;
    stack.rlim_cur = std::min(kStack, stack.rlim_max);
    CHECK_INPUT(stack.rlim_cur >= kLeast, "`ulimit -s` allows a stack of {} kB, expected {} or more: raise "
                "the limit", stack.rlim_cur >> 10, kLeast >> 10);
    (void)setrlimit(RLIMIT_STACK, &stack);
    pthread_attr_t threads;
    if (pthread_attr_init(&threads)) return;
    if (pthread_attr_setstacksize(&threads, kStack) == 0) (void)pthread_setattr_default_np(&threads);
    pthread_attr_destroy(&threads);
}

void allow_many_files() {
    rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == files.rlim_max) return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

size_t peak_resident_bytes() { return kilobytes("/proc/self/status", "VmHWM"); }
// Without this, malloc keeps freed blocks of sizes seen before, and reserves 64 MB of addresses for each
// thread.
void return_freed_blocks() {
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    if (room_in_address_space() != SIZE_MAX) mallopt(M_ARENA_MAX, 1);
}
size_t resident_bytes() { return kilobytes("/proc/self/status", "VmRSS"); }
size_t resident_shared_bytes() {
    return kilobytes("/proc/self/status", "RssFile") + kilobytes("/proc/self/status", "RssShmem");
}

bool reset_peak_resident() {
    std::ofstream out("/proc/self/clear_refs");
    return bool(out << "5" << std::flush);
}

// The number in a file; `none` if the file is missing or contains "max".
static size_t number_in(const std::string& file, size_t none) {
    std::ifstream in(file);
    size_t n;
    return in >> n ? n : none;
}

// The files of a version of control groups, and the kind of its file systems.
struct GroupVersion {
    const char *file_system, *limit, *used, *cache;
};
static constexpr GroupVersion kGroups1 = {"cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                          "total_inactive_file"};
static constexpr GroupVersion kGroups2 = {"cgroup2", "memory.max", "memory.current", "inactive_file"};

static bool in_list(const std::string& list, const char* word) {        // "rw,memory"
    return ("," + list + ",").find("," + std::string(word) + ",") != std::string::npos;
}

// Mount point of the memory groups, and the group visible there: a container's own, or "/".
struct GroupMount { std::string root, point; };

// proc_pid_mountinfo(5): "36 35 98:0 ROOT POINT options - FILE_SYSTEM source super_options"
static std::optional<GroupMount> mount_of(const GroupVersion& v, const std::string& host) {
    std::ifstream in(host + "/proc/self/mountinfo");
    for (std::string line; std::getline(in, line);) {
        const size_t dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        std::istringstream front(line.substr(0, dash)), back(line.substr(dash + 3));
        std::string skipped, type, options;
        GroupMount m;
        front >> skipped >> skipped >> skipped >> m.root >> m.point;
        back >> type >> skipped >> options;
        if (type == v.file_system && (&v == &kGroups2 || in_list(options, "memory"))) return m;
    }
    return std::nullopt;
}

static size_t entry_of_statistics(const std::string& file, std::string_view key) {
    std::ifstream in(file);
    size_t n;
    for (std::string word; in >> word >> n;) if (word == key) return n;
    return 0;
}

// The least room of a group and its ancestors. Unused cached files count as room: the kernel drops them on
// demand.
static size_t room_in(const GroupVersion& v, const std::string& path, const std::string& host) {
    const std::optional<GroupMount> mount = mount_of(v, host);
    if (!mount) return SIZE_MAX;
    const std::string& root = mount->root;
    std::string below = path;           // the mount
    if (root != "/") below = path.starts_with(root) ? path.substr(root.size()) : "";
    if (below == "/" || below.find("..") != std::string::npos) below = "";
    for (size_t room = SIZE_MAX;;) {
        const std::string dir = host + mount->point + below + "/";
        const size_t limit = number_in(dir + v.limit, SIZE_MAX), used = number_in(dir + v.used, 0);
        const size_t cache = entry_of_statistics(dir + "memory.stat", v.cache);
        const size_t held = used - std::min(used, cache);
        if (limit != SIZE_MAX) room = std::min(room, limit - std::min(held, limit));
        if (below.empty()) return room;
        below.resize(below.rfind('/'));
    }
}

// cgroups(7): lines "ID:CONTROLLERS:PATH", version 2 without controllers. A host may have both versions.
static size_t room_in_groups(const std::string& host) {
    std::ifstream in(host + "/proc/self/cgroup");
    size_t room = SIZE_MAX;
    for (std::string line; std::getline(in, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (!controllers.empty() && !in_list(controllers, "memory")) continue;
        const GroupVersion& v = controllers.empty() ? kGroups2 : kGroups1;
        room = std::min(room, room_in(v, line.substr(second + 1), host));
    }
    return room;
}

size_t room_in_address_space() {
    rlimit space;
    if (getrlimit(RLIMIT_AS, &space) || space.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    return space.rlim_cur - std::min<size_t>(space.rlim_cur, kilobytes("/proc/self/status", "VmSize"));
}

size_t available_memory_bytes(const std::string& host) {
    return std::min({kilobytes((host + "/proc/meminfo").c_str(), "MemAvailable"), room_in_groups(host),
                     room_in_address_space()});
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

}  // namespace host
