// Compiled for any x86-64 (see the Makefile). Uses only plain C of the standard library: the linker may merge
// a C++ template with another file's copy, compiled with wider instructions.
#include "llmc/base/host/cpu_guard.h"

#include <cpuid.h>
#include <string.h>
#include <unistd.h>

#ifndef CPU_FEATURES
#define CPU_FEATURES ""
#define CPU_ARCH "unknown"
#endif

inline namespace host {

const BuiltFor built_for = {CPU_ARCH, CPU_FEATURES};

enum Register { EAX, EBX, ECX, EDX };
enum State { NONE = 0, YMM = 0x6, ZMM = 0xe6 };    // bits of XCR0: registers that the system saves

struct Feature { const char* name; unsigned leaf, subleaf; Register reg; int bit; State state; };

// Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E
static const Feature kFeatures[] = {
    {"SSE4_2", 1, 0, ECX, 20, NONE},         {"POPCNT", 1, 0, ECX, 23, NONE},
    {"MOVBE", 1, 0, ECX, 22, NONE},          {"LZCNT", 0x80000001, 0, ECX, 5, NONE},
    {"BMI", 7, 0, EBX, 3, NONE},             {"BMI2", 7, 0, EBX, 8, NONE},
    {"GFNI", 7, 0, ECX, 8, NONE},            {"F16C", 1, 0, ECX, 29, YMM},
    {"FMA", 1, 0, ECX, 12, YMM},             {"AVX", 1, 0, ECX, 28, YMM},
    {"AVX2", 7, 0, EBX, 5, YMM},             {"AVXVNNI", 7, 1, EAX, 4, YMM},
    {"AVXIFMA", 7, 1, EAX, 23, YMM},         {"AVXVNNIINT8", 7, 1, EDX, 4, YMM},
    {"AVXNECONVERT", 7, 1, EDX, 5, YMM},     {"AVX512F", 7, 0, EBX, 16, ZMM},
    {"AVX512DQ", 7, 0, EBX, 17, ZMM},        {"AVX512IFMA", 7, 0, EBX, 21, ZMM},
    {"AVX512CD", 7, 0, EBX, 28, ZMM},        {"AVX512BW", 7, 0, EBX, 30, ZMM},
    {"AVX512VL", 7, 0, EBX, 31, ZMM},        {"AVX512VBMI", 7, 0, ECX, 1, ZMM},
    {"AVX512VBMI2", 7, 0, ECX, 6, ZMM},      {"AVX512VNNI", 7, 0, ECX, 11, ZMM},
    {"AVX512BITALG", 7, 0, ECX, 12, ZMM},    {"AVX512VPOPCNTDQ", 7, 0, ECX, 14, ZMM},
    {"AVX512VP2INTERSECT", 7, 0, EDX, 8, ZMM}, {"AVX512FP16", 7, 0, EDX, 23, ZMM},
    {"AVX512BF16", 7, 1, EAX, 5, ZMM},
};

static unsigned saved_state() {
    unsigned r[4] = {};
    if (!__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || !(r[ECX] >> 27 & 1)) return 0;    // OSXSAVE
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool cpu_has(const char* name) {
    for (const Feature& f : kFeatures) {
        if (strcmp(f.name, name) != 0) continue;
        unsigned r[4] = {};
        if (!__get_cpuid_count(f.leaf, f.subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) return false;
        return (r[f.reg] >> f.bit & 1) && (saved_state() & f.state) == unsigned(f.state);
    }
    return true;
}

bool lacks(const char* features, bool (*has)(const char* name), char* lacking, unsigned long room) {
    unsigned long used = 0;
    while (*features) {
        unsigned long n = strcspn(features, " ");
        char name[32] = {};
        memcpy(name, features, n < sizeof name ? n : sizeof name - 1);
        if (n && !has(name) && used + strlen(name) + 2 <= room) {
            if (used) lacking[used++] = ' ';
            memcpy(lacking + used, name, strlen(name));
            used += strlen(name);
        }
        features += n + (features[n] == ' ');
    }
    if (room) lacking[used] = 0;
    return used > 0;
}

static void say(const char* text) {
    ssize_t ignored = write(2, text, strlen(text));
    (void)ignored;
}

// 101: before the constructors of every other file
__attribute__((constructor(101))) static void guard() {
    char lacking[512];
    if (!lacks(built_for.features, cpu_has, lacking, sizeof lacking)) return;
    say("error: this program was built for another CPU (ARCH=");
    say(built_for.arch);
    say("): this one lacks ");
    say(lacking);
    say("\n       Build it here:  make clean && make          or for most CPUs:  make clean && make "
        "ARCH=x86-64-v3\n");
    _exit(78);
}

}  // namespace host
