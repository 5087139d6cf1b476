// A run that goes on with another train.steps: the schedule is another, so the learning rate may jump.
#pragma once
#include <cstdint>
#include <string>

#include "llmc/base/config/config.h"

// folder, step: of the checkpoint; was: its settings. Returns lines for people; empty where the learning rate
// goes on as before, within 1% of optimizer.lr. Of a wsd run whose decay has begun, also the newest
// checkpoint from before the decay.
std::string jump_of_learning_rate(const std::string& folder, int64_t step, const Config& was,
                                  const Config& now);
