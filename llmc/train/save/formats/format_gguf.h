// GGUF as llama.cpp reads it. kinds_gguf.cpp has the table of architectures; format_gguf.cpp reads and
// writes.
#pragma once
#include "llmc/train/save/formats/kind.h"

inline constexpr const char* kHead = "output.weight";
const std::vector<ForeignKind>& gguf_kinds();
