// Room train/run: the parts that train_gpt.cu joins (memory, data, tuning, the log of steps), and the
// programs --generate, --evaluate and --export. Called by main() and train_gpt.cu; the planner walks Model.
// The room knows training as a whole. It knows no price, no plan and no page.
//
// The programs of ./train_gpt in each precision: train() is in train_gpt.cu, the others in programs.cpp.
//
// check_export: reads an export back and computes logits; other logits end in fatal().
#pragma once
#include <optional>
#include <string>

#include "llmc/base/config/config.h"
#include "llmc/base/numbers/each_precision.h"
#include "llmc/comm/axis.h"

inline namespace runs {

// The text of --generate.
struct Prompt {
    std::string text;
    bool chat = false;                      // a message, which the model answers
    std::optional<std::string> system;      // of the conversation, instead of the template's
};

}  // namespace runs

namespace fp32 { int train(Config, const Mesh&); }
namespace bf16 { int train(Config, const Mesh&); }
namespace fp64 { int train(Config, const Mesh&); }

IN_EACH_PRECISION(runs,
    int generate(Config, const Mesh&, const Prompt& prompt);
    int evaluate(Config, const Mesh&);
    int export_model(Config, const Mesh&, const std::string& to, bool overwrite);
    struct Model;
    void check_export(const Config&, const Mesh&, Model&, const std::string& to);
)
