// Settings that a command takes over from the model it reads: the shape (model.*) and the tokenizer.
#pragma once
#include <string>

#include "llmc/base/config/config.h"
#include "llmc/train/save/formats/format.h"

inline namespace saves {

struct ReadModel {
    std::string from;                               // the value of model.init
    ModelConfig shape;
    std::string tokenizer;                          // path of the model's own; empty: none
};

// init: an import, or a folder step_N. Reads no weights.
ReadModel model_of(const std::string& init, Opens opens = Opens::Model);

// For training and --plan, before the settings are checked. Sets every model.* that config file and command
// line leave out: to the checkpoint's value where a run resumes (except model.vocab, which
// adopt_open_settings() sets), else to model.init's. A model.* that differs from model.init's is exit code
// 78; check_settings() compares with the checkpoint. The tokenizer of an import becomes data.tokenizer if the
// settings name no tokenizer. An unusable tokenizer is one warning if `warns`, and leaves out eval.tasks,
// which need a tokenizer. Where positions are rotary, model.context may be longer than that of model.init,
// and model.rope_scaling and rope_theta may be others: a warning.
void adopt_open_model(Config& cfg, bool warns, Opens opens = Opens::Model);

// Settings `train` of --generate, --evaluate and --export: no steps, and a batch that any mesh divides.
TrainConfig no_training(int64_t batch_tokens);

// For --generate and --export: the whole shape, whatever the settings say.
void adopt_whole_model(Config& cfg, const ReadModel& model);

// Sets data.tokenizer to the model's if the settings name no tokenizer. Returns the reason why that tokenizer
// is unusable, in one line; empty: usable, or not needed.
std::string adopt_tokenizer(Config& cfg, const ReadModel& model);

}  // namespace saves
