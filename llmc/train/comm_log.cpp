#include "llmc/train/comm_log.h"

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
