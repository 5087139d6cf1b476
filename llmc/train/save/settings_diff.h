// What changed between the settings of a checkpoint and those of the run that goes on from it.
#pragma once
#include <string>

#include "llmc/base/config/config.h"

struct SettingsDiff {
    std::string table;           // checkpoint, now, effective: a row per key that differs; empty: none does
    std::string refused;         // keys that change the math and that checkpoint.override does not name
};

// Settings that change the math are model, data, optimizer, run.seed, run.precision, train.batch_tokens, and
// train.steps where the learning rate depends on it. Others may change freely. Both are resolved: what was
// left open is compared by the value that it got.
SettingsDiff settings_diff(const Config& saved, const Config& now);
