// Traffic between ranks since the last call: bytes that this rank sent, and its waiting time.
#pragma once
#include <string>
#include <vector>

#include "llmc/comm/mesh.h"

inline namespace logs {

struct CommRow {
    std::string name;           // "shard.reduce_scatter"
    uint64_t calls = 0, bytes = 0;
    double seconds = 0;
};

struct CommStep {
    std::vector<CommRow> rows;          // called verbs of each axis with more than one rank
    DeviceTimes device;                 // of all axes; zero if messages move through the host
};

struct Traffic {
    Moved before[kGroups][kVerbs] = {};
    DeviceTimes device_before = {};

    // Traffic since the last call; the first call starts the device's timers. The device's times lag behind,
    // and leave out messages between pipeline stages, whose waits belong to the pipeline.
    CommStep take(const Mesh& mesh);
};

// The share of the collectives' time on the device that no op waited for; NaN without collectives.
double hidden_share(const DeviceTimes& device);

}  // namespace logs
