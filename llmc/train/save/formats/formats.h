// The formats behind interchange.h: format_hf.cpp and import_hf.cpp, format_gguf.cpp, format_llmc.cpp.
#pragma once
#include "llmc/train/save/formats/interchange.h"

std::vector<std::string> files_of_hf(const std::string& dir);       // config.json, model, tokenizer's
void remove_hf(const std::string& dir, bool tokenizer);      // what export_hf has written, config.json first

ForeignModel open_hf(const std::string& dir);
ForeignModel open_gguf(const std::string& file);
ForeignModel open_llmc(const std::string& file);

