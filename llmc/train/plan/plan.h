// Room train/plan: memory, time and cost of a run before there is a machine; the search for a mesh.
// Called by main() for --plan, and by train/explore.
// The room walks the run's own Model. It knows no tensor and no buffer by name.
//
// The program --plan: memory, time and the best mesh of a config. Allocates no model memory, except with
// cluster.gpu=auto, which measures real steps when no stored measurement matches.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/base/numbers/each_precision.h"

inline namespace plans {

struct PlanRequest {
    bool search = false;    // --plan=search
    bool full = false;      // the resolved settings as well
    bool json = false;      // --json
    std::string program;    // "./train_gpt CONFIG"
    std::vector<std::pair<std::string, std::string>> settings;  // of the command line: key and value
};

}  // namespace plans

IN_EACH_PRECISION(plans, int plan(Config, const PlanRequest&);)
