#include "llmc/train/comm_log.h"

#include <cmath>
#include <cstdio>

#include "llmc/base/console.h"
#include "llmc/base/json.h"
#include "llmc/train/log.h"

std::vector<CommRow> CommLog::take(const Mesh& mesh) {
    std::vector<CommRow> rows;
    for (int a = 0; a < kAxes; a++) {
        const Group* group = (mesh.*mesh_axes[a]).group;
        for (int v = 0; group && v < kVerbs; v++) {
            const Moved now = group->moved[v], last = before[a][v];
            before[a][v] = now;
            if (now.calls == last.calls) continue;
            rows.push_back({.name = std::string(axis_names[a]) + "." + verb_names[v],
                            .calls = now.calls - last.calls, .bytes = now.bytes - last.bytes,
                            .seconds = now.seconds - last.seconds});
        }
    }
    return rows;
}

void RunLog::comm(int64_t step, const std::vector<CommRow>& rows) {
    if (!writes_) return;
    JsonLine line("comm");
    line.add("step", step);
    uint64_t bytes = 0;
    double seconds = 0;
    for (const CommRow& row : rows) bytes += row.bytes, seconds += row.seconds;
    line.add("bytes", bytes).add("wait_ms", std::round(seconds * 1e6) / 1e3);
    for (const CommRow& row : rows) {
        line.add(row.name + "_calls", row.calls).add(row.name + "_bytes", row.bytes);
        line.add(row.name + "_wait_ms", std::round(row.seconds * 1e6) / 1e3);
    }
    write(line.str());
    if (cfg_.log.every == 0 || (step % cfg_.log.every && step != cfg_.train.steps)) return;
    printf("%15s  %s sent by rank 0, %s waited:", "comm", human_bytes(double(bytes)).c_str(),
           human_seconds(seconds).c_str());
    for (const CommRow& row : rows)
        printf(" %s %s", row.name.c_str(), human_bytes(double(row.bytes)).c_str());
    printf("\n");
    fflush(stdout);
}
