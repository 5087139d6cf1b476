// The program --plan: memory, time and the best mesh of a config. Allocates no model memory, except with
// cluster.gpu=auto, which measures real steps when no stored measurement matches.
#pragma once
#include <string>

#include "llmc/base/config/config.h"

struct PlanRequest {
    bool search = false;  // --plan=search
    bool json = false;    // --json
    std::string command;  // of this program, with the settings that the search leaves alone
};

namespace fp32 {
int plan(Config, const PlanRequest&);
}
namespace bf16 {
int plan(Config, const PlanRequest&);
}
namespace fp64 {
int plan(Config, const PlanRequest&);
}
