#include "llmc/base/progress.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/terminal.h"

inline namespace base {

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress::Progress(std::string what, const char* unit, uint64_t total)
    : what(std::move(what)),
      unit(unit),
      total(total),
      started(seconds_now()),
      drawn(started),
      terminal(on_terminal(1) && on_terminal(2)) {}

static std::string quantity(double x, const char* unit) {
    return strcmp(unit, "B") == 0 ? fmt::format("{:.1f} MB", x / 1e6) : fmt::format("{:.0f} {}", x, unit);
}

void Progress::update(uint64_t count) {
    const double now = seconds_now();
    if (now - drawn < (terminal ? 0.25 : 30)) return;
    drawn = now;
    const double rate = double(count) / std::max(now - started, 1e-9);
    std::string line = what + "  ";
    if (total) {
        const double share = std::min(1.0, double(count) / double(total));
        const int filled = int(share * 24);
        if (terminal) line += fmt::format("[{:<24}] ", std::string(filled, '#'));
        line += fmt::format("{:3.0f}%  ", share * 100);
    }
    line += quantity(double(count), unit) + "  " + quantity(rate, unit) + "/s";
    if (total && rate > 0) line += fmt::format("  {:.0f} s left",
                                               double(total - std::min(count, total)) / rate);
    if (terminal) print(stderr, "\r{}\x1b[K", line);
    else print(stderr, "{}\n", line);
    fflush(stderr);
    shown = true;
}

void Progress::done() {
    if (shown && terminal) fputs("\r\x1b[K", stderr);
    shown = false;
}

std::string today() {
    const time_t now = time(nullptr);
    tm utc = {};
    gmtime_r(&now, &utc);
    char text[16] = "";
    strftime(text, sizeof text, "%Y-%m-%d", &utc);
    return text;
}

}  // namespace base
