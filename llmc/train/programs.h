// What ./train_gpt does, in each precision: train() is in train_gpt.cu, the others in programs.cpp.
#pragma once
#include <string>

#include "llmc/base/config.h"
#include "llmc/comm/axis.h"

#define PROGRAMS                                                                                           \
    int train(Config, const Mesh&);                                                                        \
    int plan(Config);                                                                                      \
    int generate(Config, const Mesh&, const std::string& prompt);                                          \
    int export_model(Config, const Mesh&, const std::string& to);
namespace fp32 { PROGRAMS }
namespace bf16 { PROGRAMS }
namespace fp64 { PROGRAMS }
#undef PROGRAMS
