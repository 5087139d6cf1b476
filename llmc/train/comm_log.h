// What went between ranks since the last look: bytes that this rank sent, and how long it waited.
#pragma once
#include <string>
#include <vector>

#include "llmc/comm/mesh.h"

struct CommRow {
    std::string name;           // "dp.reduce_scatter"
    uint64_t calls = 0, bytes = 0;
    double seconds = 0;
};

struct CommLog {
    Moved before[kAxes][kVerbs] = {};

    // Verbs that were called since the last call, of each axis that has more than one rank.
    std::vector<CommRow> take(const Mesh& mesh);
};
