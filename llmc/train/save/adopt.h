// Settings that a command takes over from the model it reads: the shape (model.*) and the tokenizer.
#pragma once
#include <string>

#include "llmc/base/config/config.h"

struct ReadModel {
    std::string from;                               // as model.init names it
    ModelConfig shape;
    std::string tokenizer;                          // path of the model's own; empty: none
};

// An import or a folder step_N; reads no weights.
ReadModel model_of(const std::string& init);

// For training and --plan, before the settings are checked. Sets every model.* that neither file nor command
// line names: to the value in the checkpoint that the run goes on from (model.vocab excepted, which
// adopt_open_settings() sets), else in model.init. A named value
// that differs from model.init's ends in exit code 78; check_settings() compares with the checkpoint's. The
// tokenizer of an import becomes data.tokenizer where the settings name none. Where that tokenizer cannot be
// used and warns is set: one warning.
void adopt_open_model(Config& cfg, bool warns);

// For --generate and --export: the whole shape, whatever the settings say.
void adopt_whole_model(Config& cfg, const ReadModel& model);

// Sets data.tokenizer to the model's where the settings name none. Returns why that tokenizer cannot be used,
// in one line; empty: it can, or is not needed.
std::string adopt_tokenizer(Config& cfg, const ReadModel& model);
