// A small test harness.
//
//     TEST(shard_round_trip) { EXPECT(count == 3, "count is %d", count); }
//
// In `namespace PRECISION` the test's name gets the precision as a prefix. A binary runs its tests; with
// arguments, only tests whose name contains an argument. A binary prints failures (with -v a line per test)
// and closes with "N passed, N failed".
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/check.h"

extern "C" [[gnu::weak]] void __asan_init();

namespace test {

struct Case { std::string name; void (*body)(); };
bool add(const char* file, const char* precision, const char* name, void (*body)());
[[gnu::format(printf, 3, 4)]] void fail(const char* file, int line, const char* fmt, ...);
[[gnu::format(printf, 4, 5)]] void fail_expected(const char* file, int line, const char* condition,
                                                 const char* fmt, ...);
[[gnu::format(printf, 1, 2)]] void skip(const char* fmt, ...);     // the running test, with the reason

// Runs f and returns the Fatal thrown by f; code 0 where f returns.
Fatal fatal_of(const std::function<void()>& f);

// Runs a shell command.
struct Ran { int code; std::string out, err; };
Ran run(const std::string& command);

// The fault of a rank's message to a user: a crash, more than 8 lines or 4,000 bytes, control characters
// (U+0080 to U+009F as well), a line of the source. Empty: no fault.
std::string no_message(const std::string& err);

// The text that this process writes to a descriptor, 1 or 2, while f runs.
std::string captured(int fd, const std::function<void()>& f);

// AddressSanitizer takes address space and memory of its own: tests that measure either are skipped.
// Of the program; tests themselves may be compiled without (TESTS_OF in the Makefile).
inline const bool kAddressSanitizer = __asan_init != nullptr;

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
inline const bool kSanitizer = kAddressSanitizer || kThreadSanitizer;

// The folder of this binary's build.
std::string build_folder();

// A directory of this process's own, removed at exit, and paths in it.
std::string temporary_directory();
inline std::string folder(const std::string& name) { return temporary_directory() + "/" + name; }

// The path by which this binary was started: of a room's binary, a name that runs one file's tests.
std::string own_path();

// The larger of two differences. NaN is the largest: std::max and a plain comparison would lose a NaN.
inline double larger_difference(double worst, double d) {
    return d <= worst ? worst : d > worst ? d : INFINITY;
}

// Largest |a - b| / max(|b|, floor); infinite where the numbers of elements differ or are 0.
template <class T>
double largest_difference(const std::vector<T>& a, const std::vector<T>& b, double floor = 0) {
    double worst = a.size() == b.size() && !a.empty() ? 0 : INFINITY;
    for (size_t i = 0; i < a.size() && i < b.size(); i++)
        worst = larger_difference(worst, std::abs(double(a[i]) - double(b[i])) /
                                             std::max(std::abs(double(b[i])), floor));
    return worst;
}

}  // namespace test

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

#define TEST_STRING(x) #x
#define TEST_NAME(x) TEST_STRING(x)
#ifdef PRECISION
#define TEST_PRECISION TEST_NAME(PRECISION)
#else
#define TEST_PRECISION ""
#endif

#define TEST(name) TEST_IF(true, name)

// A test for some precisions or machines: not counted elsewhere.
#define TEST_IF(here, name)                                                                                \
    static void test_##name();                                                                             \
    [[maybe_unused]] static bool added_##name =                                                            \
        (here) && test::add(__FILE__, TEST_PRECISION, #name, test_##name);                                 \
    static void test_##name()

#define EXPECT(cond, ...) \
    do { if (!(cond)) test::fail_expected(__FILE__, __LINE__, #cond, ": " __VA_ARGS__); } while (0)

// !(x <= tol) rather than x > tol: NaN has to fail
#define EXPECT_NEAR(a, b, tol)                                                                             \
    do {                                                                                                   \
        const double a_ = double(a), b_ = double(b), tol_ = double(tol), d_ = a_ > b_ ? a_ - b_ : b_ - a_; \
        if (!(d_ <= tol_))                                                                                 \
            test::fail(__FILE__, __LINE__, "%s = %.17g, %s = %.17g: %.3g apart (%.3g allowed)", #a, a_,    \
                       #b, b_, d_, tol_);                                                                  \
    } while (0)
