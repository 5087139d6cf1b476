// Models of other programs: Hugging Face's GPT-2, GGUF (llama.cpp), llm.c's model files.
//
// What differs between them is the names of tensors, which of them are transposed, what stands around them.
// A whole tensor at a time is in memory, in FP32, as the table of parameters has it, without padding rows.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/config.h"
#include "llmc/io/tokenizer.h"
#include "llmc/model/layout.h"

// What is exported.
struct OwnModel {
    ModelConfig shape;                                        // vocab resolved
    const Layout& layout;
    std::function<std::vector<float>(const Tensor&)> read;
    const Tokenizer* tokenizer;                               // null: none
    bool bf16;                                                // the weights are rounded to it anyway
};
void export_hf(const OwnModel& m, const std::string& dir);       // complete once its config.json is there
void export_gguf(const OwnModel& m, const std::string& file);
void export_llmc(const OwnModel& m, const std::string& file);    // version 5 (bf16) where m.bf16, else 3
void export_to(const OwnModel& m, const std::string& to);        // "hf:DIR", "gguf:FILE" or "llmc:FILE"
std::string path_of(const std::string& to);                      // what comes after the format
void remove_export(const std::string& to, bool tokenizer);      // all that it wrote; tokenizer: it had one

// What is imported; `from` is "hf:DIR", "gguf:FILE" (only as train_gpt writes them) or "llmc:FILE".
struct ForeignModel {
    std::string from;
    ModelConfig shape;
    std::string tokenizer;                                    // the file that comes with it; empty: none
    std::function<std::vector<float>(const Tensor&)> read;    // t.param as for `shape`
    std::function<std::vector<float>()> head;                 // a second copy of wte; null: the file has none
};
bool is_foreign(const std::string& init);                     // of model.init: it names one of these
ForeignModel open_foreign(const std::string& from);

// Takes over what the config leaves open, and refuses what does not fit: layers, heads, channels and
// vocabulary have to be the model's; the context may be shorter.
void fit_to_foreign(Config& cfg, const ForeignModel& m);
