// Signals and interrupted calls.
#include "llmc/base/guard/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "llmc/base/progress.h"
#include "llmc/ops/cpu/products/dnnl.h"
#include "test/test.h"

using std::string;

// What was asked, once something was.
static Signals awaited() {
    const double until = seconds_now() + 10;
    Signals s;
    while (!s.save && seconds_now() < until) {
        s |= take_signals();
        usleep(1000);
    }
    return s;
}

TEST(they_are_kept_until_they_are_taken) {
    if (getenv("SIGNALLED")) return;
    catch_signals();
    EXPECT(!take_signals().save && !take_signals().stop, "none yet");
    kill(getpid(), SIGUSR1);
    Signals s = awaited();
    EXPECT(s.save && !s.stop && !take_signals().save, "SIGUSR1 saves once");
    kill(getpid(), SIGTERM);
    s = awaited();
    EXPECT(s.save && s.stop && stop_asked(), "SIGTERM saves and stops");
}

// A program that has not begun to train, in a process of its own.
TEST(before_training) {
    if (const char* asked = getenv("SIGNALLED")) {
        if (string(asked) != "early") return;
        hold_signals();
        for (int s : {SIGUSR1, SIGTERM}) kill(getpid(), s);
        receive_signals();
        for (;;) pause();
    }
    const string self = "/proc/" + std::to_string(getpid()) + "/exe";
    const test::Ran ran = test::run("SIGNALLED=early timeout 60 '" + self + "' before_training");
    EXPECT(ran.code == kExitRestart && ran.err == "stopped before training began\n", "exit code %d, '%s'",
           ran.code, ran.err.c_str());
}

// A kernel of oneDNN for AVX2 whose stack pointer is in the heap, on any CPU.
TEST(products_are_not_disturbed) {
    if (!dnnl_computes(DType::F32)) return test::skip("no oneDNN");
    if (!getenv("SIGNALLED")) {
        const string self = "/proc/" + std::to_string(getpid()) + "/exe";
        const test::Ran ran = test::run("SIGNALLED=1 ONEDNN_MAX_CPU_ISA=AVX2 '" + self + "' products");
        EXPECT(ran.code == 0, "exit code %d\n%s%s", ran.code, ran.out.c_str(), ran.err.c_str());
        return;
    }
    catch_signals();
    const Product p = {.m = 128, .n = 64, .k = 256, .in = DType::F32, .out = DType::F32,
                       .a_transposed = false, .b_transposed = false, .bias = false, .accumulate = false};
    const std::vector<float> a(128 * 256, 0.5f), b(256 * 64, 2.0f);
    std::vector<std::byte> scratch(dnnl_scratch(p, 1));
    std::atomic<bool> done = false;
    std::jthread other([&] {
        while (!done) kill(getpid(), SIGUSR1), usleep(50);
    });
    const double until = seconds_now() + 1;
    for (size_t i = 0; seconds_now() < until; i++) {
        const string before(100 + i % 509 * 16, 'x');           // later allocations move within a page
        std::vector<float> c(128 * 64);
        dnnl_product(p, {.c = c.data(), .a = a.data(), .b = b.data(), .bias = nullptr}, scratch.data(), 1);
        for (const float x : c) EXPECT(x == 256, "%g", double(x));
        for (const char x : before) EXPECT(x == 'x', "the heap is written to");
    }
    done = true;
}
