// Due steps, readable numbers, facts about the machine, the guard against a lesser CPU.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/base/console.h"
#include "llmc/base/host/cpu_guard.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/progress.h"
#include "test/test.h"

using std::string;

// The steps of 0..10, the last one at 10, at which f holds.
template <class F> static string steps(F&& due) {
    string text;
    for (int64_t s = 0; s <= 10; s++) text += due(s, s == 10) ? std::to_string(s) + " " : "";
    return text;
}

TEST(when_things_are_due) {
    Config c;
    c.eval.every = c.sample.every = c.checkpoint.every = 4;
    const auto eval = [&](int64_t s, bool last) { return c.eval.due(s, last); };
    const auto sample = [&](int64_t s, bool last) { return c.sample.due(s, last); };
    const auto checkpoint = [&](int64_t s, bool last) { return c.checkpoint.due(s, last); };
    EXPECT(steps(eval) == "0 4 8 10 ", "%s", steps(eval).c_str());
    EXPECT(steps(sample) == "4 8 10 ", "%s", steps(sample).c_str());
    EXPECT(steps(checkpoint) == "4 8 10 ", "%s", steps(checkpoint).c_str());
    EXPECT(c.eval.due(0, true) && c.sample.due(0, true) && c.checkpoint.due(0, true), "train.steps = 0");
    c.eval.every = c.sample.every = c.checkpoint.every = 0;
    EXPECT(steps(eval) + steps(sample) + steps(checkpoint) == "", "0 turns a thing off");
}

// A zone far from UTC changes nothing.
TEST(the_date_is_that_of_utc) {
    for (const char* zone : {"UTC", "EAST-14", "WEST+12"}) {
        setenv("TZ", zone, 1);
        tzset();
        const int64_t day = time(nullptr) / 86400;
        tm date = {};
        const string text = today();
        EXPECT(strptime(text.c_str(), "%Y-%m-%d", &date) && text.size() == 10, "'%s'", text.c_str());
        EXPECT(std::abs(timegm(&date) / 86400 - day) <= 1, "%s: '%s'", zone, text.c_str());
        setenv("TZ", "UTC", 1);
        tzset();
        EXPECT(text == today() || time(nullptr) / 86400 > day, "%s: '%s'", zone, text.c_str());
    }
    unsetenv("TZ");
    tzset();
}

TEST(numbers_for_people) {
    const std::pair<string, const char*> cases[] = {
        {human_bytes(0), "0 B"},
        {human_bytes(999), "999 B"},
        {human_bytes(1236e6), "1.24 GB"},
        {human_bytes(999.7e3), "1.00 MB"},
        {human_count(124439808), "124M"},
        {human_count(1557.6e6), "1.56G"},
        {human_count(12), "12"},
        {human_seconds(0.34), "340 ms"},
        {human_seconds(3.44), "3.4 s"},
        {human_seconds(125), "2 min 05 s"},
        {human_seconds(12000), "3 h 20 min"},
        {human_seconds(356400), "4 d 03 h"},
        {human_seconds(59.97), "1 min 00 s"},
        {human_seconds(-1), "n/a"},
        {grouped(0), "0"},
        {grouped(999), "999"},
        {grouped(124439808), "124,439,808"},
        {grouped(-1234), "-1,234"},
        {grouped(-123), "-123"},
        {counted(0, "shard"), "0 shards"},
        {counted(1, "shard"), "1 shard"},
        {counted(1024, "shard"), "1,024 shards"},
        {table({{"op", "ms"}, {"matmul", "1.5"}, {"x"}}, "lr"), "op       ms\nmatmul  1.5\nx\n"}};
    for (const auto& [found, want] : cases) EXPECT(found == want, "'%s', not '%s'", found.c_str(), want);
}

TEST(machine_tells) {
    const size_t held = resident_bytes(), before = peak_resident_bytes();
    EXPECT(held > 1 << 20 && before >= held && before < size_t(1) << 40, "%zu of %zu", held, before);
    constexpr size_t kBytes = 32 << 20;
    void* block = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, 1, kBytes);
    munmap(block, kBytes);    // free() need not give memory back
    const size_t peak = peak_resident_bytes();
    EXPECT(peak >= before + kBytes / 2, "%zu after %zu", peak, before);
    if (reset_peak_resident())
        EXPECT(peak_resident_bytes() <= peak - kBytes / 2, "%zu after %zu", peak_resident_bytes(), peak);
    EXPECT(available_memory_bytes() > 1 << 20 && cores() >= 1 && !cpu_name().empty(), "%d cores", cores());
}

// A machine in a folder: 64 GB available, and files of control groups.
struct Host {
    string folder = test::temporary_directory() + fmt::format("/host{}", count++);
    inline static int count = 0;

    Host& with(const string& path, const string& text) {
        const string file = folder + path;
        std::filesystem::create_directories(std::filesystem::path(file).parent_path());
        std::ofstream(file) << text << "\n";
        return *this;
    }
    Host(const string& groups, const string& mounts) {
        with("/proc/meminfo", "MemTotal: 70000000 kB\nMemAvailable: 64000000 kB");
        with("/proc/self/cgroup", groups), with("/proc/self/mountinfo", mounts);
    }
    Host& group1(const string& path, size_t limit, size_t used, size_t cache = 0) {
        const string dir = "/sys/fs/cgroup/memory" + path + "/memory.";
        return with(dir + "limit_in_bytes", std::to_string(limit))
            .with(dir + "usage_in_bytes", std::to_string(used))
            .with(dir + "stat", fmt::format("cache 1\ninactive_file 2\ntotal_inactive_file {}", cache));
    }
    Host& group2(const string& path, const string& limit, size_t used, size_t cache = 0) {
        const string dir = "/sys/fs/cgroup" + path + "/memory.";
        return with(dir + "max", limit).with(dir + "current", std::to_string(used))
            .with(dir + "stat", fmt::format("anon 1\ninactive_file {}", cache));
    }
    void leaves(size_t want, const char* what) const {
        const size_t found = available_memory_bytes(folder);
        EXPECT(found == want, "%s: %zu bytes, not %zu", what, found, want);
    }
};

TEST(memory_of_control_groups) {
    constexpr size_t kAll = 64000000ull * 1024, kNone = 9223372036854771712ull;
    const string of1 = "9:name=systemd:/x\n4:hugetlb,memory:/job/step\n1:cpu:/";
    const string at1 = "30 20 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                       "31 20 0:4 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,hugetlb,memory";
    Host(of1, at1).leaves(kAll, "files that are missing");
    Host(of1, at1).group1("", kNone, 5).group1("/job", kNone, 5).group1("/job/step", 3000, 1000)
        .leaves(2000, "a limit of version 1");
    Host(of1, at1).group1("", kNone, 5).group1("/job", 2500, 1000).group1("/job/step", 3000, 100)
        .leaves(1500, "a limit of the parent");
    Host(of1, at1).group1("", 900, 100).group1("/job", kNone, 1000).leaves(800, "a limit of the root");
    Host(of1, at1).group1("/job/step", 3000, 4000).leaves(0, "a group that is full");
    Host(of1, at1).group1("/job/step", 3000, 2900, 2500).leaves(2600, "a group full of cached files");
    const string inside = "31 20 0:4 /job/step /sys/fs/cgroup/memory ro - cgroup cgroup rw,hugetlb,memory";
    Host(of1, inside).group1("", 3000, 1000).leaves(2000, "a container, whose mount shows its own group");
    Host("4:memory:/../..", inside).group1("", 3000, 1000).leaves(2000, "a namespace of groups");

    const string of2 = "0::/a/b", at2 = "31 20 0:4 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw";
    Host(of2, at2).group2("/a/b", "max", 5).group2("/a", "max", 5).leaves(kAll, "no limit");
    Host(of2, at2).group2("/a/b", "max", 5).group2("/a", "3000", 1000).leaves(2000, "a limit of version 2");
    Host(of2, at2).group2("/a/b", "3000", 2000, 1500).leaves(2500, "cached files of version 2");
    const string hybrid = at1 + "\n41 20 0:9 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
    Host(of1 + "\n0::/job", hybrid).group1("/job/step", 3000, 1000).leaves(2000, "both versions");
}

// A program built for a better CPU ends before main with a message.
TEST(a_program_for_another_cpu_says_so) {
    const char* lacking = nullptr;
    for (const char* name : {"AVX512VP2INTERSECT", "AVXNECONVERT", "AVXVNNIINT8", "AVXIFMA",
                             "AVX512FP16", "AVX512F"})
        if (!cpu_has(name)) lacking = name;
    if (!lacking) return test::skip("this CPU has everything");
    if (test::run("command -v g++").code) return test::skip("no g++ here");
    const string program = test::temporary_directory() + "/other_cpu";
    for (const string& built : {string("SSE4_2"), fmt::format("SSE4_2 {}", lacking)}) {
        const test::Ran made = test::run(fmt::format(
            "echo 'int puts(const char*); int main() {{ return puts(\"main\") < 0; }}' >{}.c && g++ -I. "
            "-DCPU_FEATURES='\"{}\"' -DCPU_ARCH='\"another\"' -x c {}.c "
            "-x c++ llmc/base/host/cpu_guard.cpp -o {}",
            program, built, program, program));
        EXPECT(made.code == 0, "%s", made.err.c_str());
        const test::Ran ran = test::run(program);
        if (built == "SSE4_2") {
            EXPECT(ran.code == 0 && ran.out == "main\n", "code %d, '%s'", ran.code, ran.err.c_str());
            continue;
        }
        const string words = fmt::format("built for another CPU (ARCH=another): this one lacks {}\n",
                                         lacking);
        EXPECT(ran.code == 78 && ran.out.empty() && ran.err.find(words) != string::npos &&
               ran.err.find("make ARCH=") != string::npos, "code %d, '%s' '%s'", ran.code, ran.out.c_str(),
               ran.err.c_str());
    }
}

TEST(guard_names_what_is_lacking) {
    char text[64];
    EXPECT(!lacks(built_for.features, cpu_has, text, sizeof text), "this machine lacks %s", text);
    EXPECT(!lacks("", cpu_has, text, sizeof text) && text[0] == 0, "'%s'", text);
    const auto old = [](const char* name) { return strcmp(name, "AVX512BF16") && strcmp(name, "FMA"); };
    EXPECT(lacks("AVX AVX512BF16 AVX512F  FMA ", old, text, sizeof text) && !strcmp(text, "AVX512BF16 FMA"),
           "'%s'", text);
    EXPECT(lacks("FMA FMA FMA", old, text, 8) && !strcmp(text, "FMA FMA"), "'%s'", text);
    EXPECT(cpu_has("SSE4_2") == bool(__builtin_cpu_supports("sse4.2")), "SSE4_2");
    EXPECT(cpu_has("BMI2") == bool(__builtin_cpu_supports("bmi2")), "BMI2");
    EXPECT(cpu_has("FMA") == bool(__builtin_cpu_supports("fma")), "FMA");
    EXPECT(cpu_has("AVX2") == bool(__builtin_cpu_supports("avx2")), "AVX2");
    EXPECT(cpu_has("AVX512F") == bool(__builtin_cpu_supports("avx512f")), "AVX512F");
    EXPECT(cpu_has("AVX512BF16") == bool(__builtin_cpu_supports("avx512bf16")), "AVX512BF16");
    EXPECT(cpu_has("AVX512VP2INTERSECT") == bool(__builtin_cpu_supports("avx512vp2intersect")),
           "VP2INTERSECT");
    EXPECT(strlen(built_for.features) > 0 || !strcmp(built_for.arch, "x86-64"),
           "the Makefile's list is empty");
}
