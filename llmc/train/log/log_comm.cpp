// The log of communication: a row of metrics.jsonl, a line on the screen.
#include <cmath>

#include "llmc/base/console.h"
#include "llmc/base/json.h"
#include "llmc/train/log/log.h"

inline namespace logs {

void RunLog::comm(int64_t step, const CommStep& moved) {
    if (!writes_) return;
    uint64_t bytes = 0;
    double seconds = 0;
    const double hidden = hidden_share(moved.device);
    for (const CommRow& row : moved.rows) {
        bytes += row.bytes;
        seconds += row.seconds;
    }
    const auto in_ms = [](double s) { return std::round(s * 1e6) / 1e3; };
    const auto of_device = [&](double s) { return std::isnan(hidden) ? kUnknown : in_ms(s); };
    JsonLine line = figures("comm", step, {{"bytes", double(bytes)}, {"wait_ms", in_ms(seconds)},
                                           {"device_ms", of_device(moved.device.busy)},
                                           {"device_wait_ms", of_device(moved.device.waited)},
                                           {"hidden", std::round(hidden * 1e4) / 1e4}});
    for (const CommRow& row : moved.rows) {
        line.add(row.name + "_calls", row.calls).add(row.name + "_bytes", row.bytes);
        line.add(row.name + "_wait_ms", in_ms(row.seconds));
    }
    write(line.str());
    if (cfg_.log.every == 0 || (step % cfg_.log.every && step != cfg_.train.steps)) return;
    std::string text = fmt::format("{} sent by rank 0, {} waited:", human_bytes(double(bytes)),
                                   human_seconds(std::isnan(hidden) ? seconds : moved.device.waited));
    for (const CommRow& row : moved.rows)
        text += fmt::format(" {} {}", row.name, human_bytes(double(row.bytes)));
    if (!std::isnan(hidden)) text += fmt::format("; {:.0f}% hidden", 100 * hidden);
    print_event("comm", text);
}

}  // namespace logs
