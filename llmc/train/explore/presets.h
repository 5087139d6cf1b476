// Models to begin with: the configs of scripts/.
#pragma once
#include <string>
#include <vector>

#include "llmc/train/plan/search.h"

inline namespace explorer {

struct Preset {
    std::string name, about;  // "gpt2_124M"
    Settings settings;        // those that an address may have, of the model and its training
    double size = 0;          // grows with the model
};

// Beside the program's table of machines; by family, smaller models first.
std::vector<Preset> all_presets();

}  // namespace explorer
