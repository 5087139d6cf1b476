// Settings that stand in the address of a page, by the config's own keys: /?model.layers=36&parallel.tp=4
//
// A page address is untrusted. It may set run.precision and the sections model, train, optimizer, parallel,
// memory and cluster, but of their texts only cluster.gpu, as other texts may name files of this machine. No
// plan may exceed PlanLimits. The config of the command line may name files.
#pragma once
#include "llmc/train/plan/planned.h"
#include "llmc/train/serve/http.h"

inline namespace explorer {

// The largest plan of a request: it takes seconds on two cores, where a real model's takes milliseconds.
struct PlanLimits {
    static constexpr int kLayers = 256, kRanks = 16384, kStages = 64, kMicros = 16384;
};

bool stands_in_an_address(const std::string& key);

// The base with the settings of an address, checked as those of the command line. Exit code 78: a key that is
// unknown or refused, a value that is wrong or beyond PlanLimits.
Config config_of(const Config& base, const HttpRequest& request);

// The settings of an address, without its token: key and value.
Settings settings_in(const HttpRequest& request);

}  // namespace explorer
