// The log of communication: a row of metrics.jsonl, a line on the screen.
#include <cmath>

#include "llmc/base/console.h"
#include "llmc/base/json.h"
#include "llmc/train/log/log.h"

void RunLog::comm(int64_t step, const CommStep& moved) {
    if (!writes_) return;
    JsonLine line("comm");
    line.add("step", step);
    uint64_t bytes = 0;
    double seconds = 0;
    const double hidden = hidden_share(moved.device);
    for (const CommRow& row : moved.rows) {
        bytes += row.bytes;
        seconds += row.seconds;
    }
    const auto in_ms = [](double s) { return std::round(s * 1e6) / 1e3; };
    std::vector<Scalar> scalars = {{"comm/wait_ms", in_ms(seconds)}};
    line.add("bytes", bytes).add("wait_ms", in_ms(seconds));
    if (!std::isnan(hidden)) {
        const double waited = in_ms(moved.device.waited), share = std::round(hidden * 1e4) / 1e4;
        line.add("device_ms", in_ms(moved.device.busy)).add("device_wait_ms", waited).add("hidden", share);
        scalars.insert(scalars.end(), {{"comm/device_wait_ms", waited}, {"comm/hidden", share}});
    }
    for (const CommRow& row : moved.rows) {
        line.add(row.name + "_calls", row.calls).add(row.name + "_bytes", row.bytes);
        line.add(row.name + "_wait_ms", in_ms(row.seconds));
    }
    write(line.str());
    events_.add(step, scalars);
    if (cfg_.log.every == 0 || (step % cfg_.log.every && step != cfg_.train.steps)) return;
    std::string text = fmt::format("{} sent by rank 0, {} waited:", human_bytes(double(bytes)),
                                   human_seconds(std::isnan(hidden) ? seconds : moved.device.waited));
    for (const CommRow& row : moved.rows)
        text += fmt::format(" {} {}", row.name, human_bytes(double(row.bytes)));
    if (!std::isnan(hidden)) text += fmt::format("; {:.0f}% hidden", 100 * hidden);
    print_event("comm", text);
}
