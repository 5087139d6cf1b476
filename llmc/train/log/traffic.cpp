#include "llmc/train/log/traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

inline namespace logs {

double hidden_share(const DeviceTimes& device) {
    if (!(device.busy > 0)) return NAN;
    return std::max(0., 1 - device.waited / device.busy);
}

CommStep Traffic::take(const Mesh& mesh) {
    std::vector<CommRow> rows;
    DeviceTimes device;
    for (int a = 0; a < kGroups; a++) {
        Group* group = (mesh.*group_rows[a].axis).group;
        if (group && group->transport->look_at_times) {
            group->timed = true;
            group->transport->look_at_times(*group);
            device.busy += group->device.busy;
            device.waited += group->device.waited;
        }
        for (int v = 0; group && v < kVerbs; v++) {
            const Moved now = group->moved[v], last = before[a][v];
            before[a][v] = now;
            if (now.calls == last.calls) continue;
            rows.push_back({.name = std::string(group_rows[a].name) + "." + verb_names[v],
                            .calls = now.calls - last.calls, .bytes = now.bytes - last.bytes,
                            .seconds = now.seconds - last.seconds});
        }
    }
    const DeviceTimes last = std::exchange(device_before, device);
    return {std::move(rows), {device.busy - last.busy, device.waited - last.waited}};
}

}  // namespace logs
