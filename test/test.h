// A small test harness.
//
//     TEST(shard_round_trip) { EXPECT(count == 3, "count is %d", count); }
//
// In `namespace PRECISION` the test's name gets the precision as a prefix. A binary runs all its tests, or
// those whose name contains one of its arguments, prints failures and one line per test with -v, and closes
// with "N passed, N failed".
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

// Runs f and returns the Fatal it ends in; code 0 where it returns.
Fatal fatal_of(const std::function<void()>& f);

// Runs a shell command.
struct Ran { int code; std::string out, err; };
Ran run(const std::string& command);

// What is wrong with a message to a user of one rank: a crash, more than 8 lines or 4,000 bytes, control
// characters (U+0080 to U+009F as well), a line of the source. Empty: nothing.
std::string no_message(const std::string& err);

// What this process writes to a descriptor, 1 or 2, while f runs.
std::string captured(int fd, const std::function<void()>& f);

// AddressSanitizer takes address space and memory of its own: what measures either is skipped.
// Of the program; tests themselves may be compiled without (TESTS_OF in the Makefile).
inline const bool kAddressSanitizer = __asan_init != nullptr;

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// Where make has put what it built with this binary.
std::string build_folder();

// A directory of this process's own, removed at exit.
std::string temporary_directory();

// The larger of two differences. NaN is beyond all others: std::max loses it, as does a plain comparison.
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

#define TEST_STRING(x) #x
#define TEST_NAME(x) TEST_STRING(x)
#ifdef PRECISION
#define TEST_PRECISION TEST_NAME(PRECISION)
#else
#define TEST_PRECISION ""
#endif

#define TEST(name) TEST_IF(true, name)

// A test of some precisions or machines alone: in others it is none, and is not counted.
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
