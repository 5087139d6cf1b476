// The first argument of ./train_gpt: a config file, a config {...}, a preset's name, the folder of a run, or
// a checkpoint folder step_N.
#pragma once
#include <string>

inline namespace config {

struct FirstArgument {
    std::string config;         // path of the config, or the config itself
    std::string run_dir;        // of a folder: the run
    std::string step;           // of a checkpoint folder: the folder
};

bool is_first_argument(const std::string& given);      // by its form, or by what is there

// An argument that names none of these ends in fatal(), with the presets of similar names.
FirstArgument first_argument(const std::string& given);

}  // namespace config
