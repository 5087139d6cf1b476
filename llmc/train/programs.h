// What ./train_gpt does, in each precision: train() is in train_gpt.cu, the others in programs.cpp.
#pragma once
#include <string>

#include "llmc/base/config.h"

namespace fp32 { int train(Config cfg); int plan(Config cfg); int generate(Config cfg, const std::string& prompt); }
namespace bf16 { int train(Config cfg); int plan(Config cfg); int generate(Config cfg, const std::string& prompt); }
namespace fp64 { int train(Config cfg); int plan(Config cfg); int generate(Config cfg, const std::string& prompt); }
