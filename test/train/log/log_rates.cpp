// The figures of a step on the screen and in metrics.jsonl, against a clock outside and against each other.
#include <chrono>
#include <cmath>
#include <thread>

#include "llmc/base/json/json_value.h"
#include "test/log.h"

using Clock = std::chrono::steady_clock;

static double ms_since(Clock::time_point t) {
    return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

// 14,246 -> 14246, 55.1% -> 55.1
static double number_in(string cell) {
    std::erase_if(cell, [](char c) { return c == ',' || c == '%'; });
    return atof(cell.c_str());
}

struct Step { Json row; double at_least_ms, at_most_ms; string line; };

// A sleeping step of a given model and machine.
static Step step_of(const char* name, int sleep_ms, int64_t params, double peak_tflops) {
    Config c = small_run(name);
    c.train.batch_tokens = 100000;
    StartInfo info = kInfo;
    info.params = params, info.peak_tflops = peak_tflops;
    Step s;
    const string screen = printed([&] {
        LoggedRun log(c, info);
        const Clock::time_point before = Clock::now();
        log.begin();
        const Clock::time_point begun = Clock::now();
        std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms));
        s.at_least_ms = ms_since(begun);
        log.train({.step = 1, .loss = 5, .norm = 1, .lr = 1e-3});
        s.at_most_ms = ms_since(before);
    });
    for (const string& row : lines(read_file(c.run.dir + "/metrics.jsonl")))
        if (row.find("\"train\"") != row.npos) s.row = parse_json(row);
    for (const string& line : lines(screen))
        if (line.find("1/200") != line.npos) s.line = line;
    return s;
}

TEST(a_steps_rates) {
    for (const int sleep_ms : {30, 60}) {
        const int64_t params = 2000000000 + sleep_ms;
        const double peak = 123;
        const Step s = step_of(sleep_ms == 30 ? "rates_30" : "rates_60", sleep_ms, params, peak);
        const double ms = s.row.at("ms").number(), rate = s.row.at("tokens_per_s").number();
        EXPECT(ms >= s.at_least_ms - 0.01 && ms <= s.at_most_ms + 0.01, "%g ms; %g to %g by another clock",
               ms, s.at_least_ms, s.at_most_ms);
        EXPECT_NEAR(rate / (100000 / ms * 1e3), 1, 1e-3);
        // 6 N + 6 L C T a token, of small()'s 2 layers, 64 channels and context 64
        const double tflops = rate * (6.0 * double(params) + 6 * 2 * 64 * 64) * 1e-12;
        EXPECT_NEAR(s.row.at("mfu").number() / (tflops / peak), 1, 1e-3);

        std::vector<string> cells;
        std::istringstream in(s.line);
        for (string cell; in >> cell;) cells.push_back(cell);
        CHECK(cells.size() >= 9, "a line of {} columns: '{}'", cells.size(), s.line);
        EXPECT_NEAR(number_in(cells[4]), ms, 0.051);
        EXPECT_NEAR(number_in(cells[5]) / rate, 1, 1e-3);
        EXPECT_NEAR(number_in(cells[6]) / tflops, 1, 1e-3);
        EXPECT_NEAR(number_in(cells[7]) / (100 * tflops / peak), 1, 1e-2);
    }
}
