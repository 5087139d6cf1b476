// Changes between the settings of a checkpoint and of the run that resumes from it.
#pragma once
#include <cstdint>
#include <string>

#include "llmc/base/config/config.h"
#include "llmc/train/data/contents.h"

inline namespace saves {

struct SettingsDiff {
    std::string table;           // of checkpoint, now, effective: a row per changed key; empty: no change
    std::string refused;         // keys that change the math, without those of checkpoint.override
    std::string changes;         // refused keys as "optimizer.kind adamw -> muon, ...", without long values
};

// Settings that change the math are model, data, optimizer, run.seed, run.precision, train.batch_tokens, and
// train.steps if the learning rate depends on it. Other settings may change. Both configs are resolved:
// settings on auto are compared by their values. A setting that names files is compared by their contents,
// if both contents are known: equal files may have other names, and changed files change the math.
SettingsDiff settings_diff(const Config& saved, const Config& now, const Contents& before = {},
                           const Contents& after = {});

// Of a run that goes on with another train.steps: the schedule is another, so the learning rate may jump.
// folder, step: of the checkpoint; was: its settings. Returns lines for people; empty where the learning rate
// goes on as before, within 1% of optimizer.lr. Of a wsd run whose decay has begun, also the newest
// checkpoint from before the decay.
std::string jump_of_learning_rate(const std::string& folder, int64_t step, const Config& was,
                                  const Config& now);

}  // namespace saves
