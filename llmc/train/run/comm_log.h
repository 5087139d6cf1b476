// What went between ranks since the last look: bytes that this rank sent, and how long it waited.
#pragma once
#include <string>
#include <vector>

#include "llmc/comm/mesh.h"

struct CommRow {
    std::string name;           // "shard.reduce_scatter"
    uint64_t calls = 0, bytes = 0;
    double seconds = 0;
};

struct CommStep {
    std::vector<CommRow> rows;          // verbs that were called, of each axis that has more than one rank
    DeviceTimes device;                 // of all axes; zero where the host moves what ranks send
};

struct CommLog {
    Moved before[kAxes][kVerbs] = {};
    DeviceTimes device_before = {};

    // Since the last call, the first of which switches the device's times on. They lag behind, as the device
    // does; messages between stages are not among them: what these wait for is the pipeline.
    CommStep take(const Mesh& mesh);
};

// Of the time that collectives took on the device, the share that no op waited for; NaN where they took none.
double hidden_share(const DeviceTimes& device);
