// What ./train_gpt does, in each precision: train() is in train_gpt.cu, the others in programs.cpp.
#pragma once
#include <string>

#include "llmc/base/config.h"

namespace fp32 { int train(Config); int plan(Config); int generate(Config, const std::string& prompt); }
namespace bf16 { int train(Config); int plan(Config); int generate(Config, const std::string& prompt); }
namespace fp64 { int train(Config); int plan(Config); int generate(Config, const std::string& prompt); }
