// Models of other programs: Hugging Face's GPT-2, GGUF (llama.cpp), llm.c's model files.
//
// What differs between them is the names of tensors, which of them are transposed, what stands around them.
// In memory, in FP32, as the table of parameters has it, without padding rows, is a whole tensor at a time on
// export, a few rows on import.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/io/text/tokenizer.h"
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
std::vector<std::string> files_of_export(const std::string& to);  // all that it may write
void remove_export(const std::string& to, bool tokenizer);      // all that it wrote; tokenizer: it had one

// What is imported; `from` is "hf:DIR", "gguf:FILE" (only as train_gpt writes them) or "llmc:FILE".
struct ForeignModel {
    std::string from;
    ModelConfig shape;
    std::string tokenizer;                                    // the file that comes with it; empty: none
    // Rows of a tensor; t.param as for `shape`, or with fewer positions.
    std::function<void(const Tensor& t, size_t row, size_t rows, float* out)> read;
    // Rows of the file's own matrix of the head; null: it has none. head_is_embedding() has to hold.
    std::function<void(size_t row, size_t rows, float* out)> head;
};
bool is_foreign(const std::string& init);                     // of model.init: it names one of these
ForeignModel open_foreign(const std::string& from);
bool head_is_embedding(const ForeignModel& m, const Tensor& wte);       // value by value
void check_head(const ForeignModel& m, const Tensor& wte);              // refuses an untied model

// Calls f(row, rows) for slices of a tensor: half a MB each, or 64 rows.
template <class F> void for_each_slice(const Tensor& t, F&& f) {
    const size_t all = size_t(t.param.whole_rows);
    const size_t at_once = std::max<size_t>(64, (size_t(1) << 17) / size_t(t.param.whole_cols));
    for (size_t row = 0; row < all; row += at_once) f(row, std::min(at_once, all - row));
}

// Takes over what the config leaves open, and refuses what does not fit: layers, heads, channels and
// vocabulary have to be the model's; the context may be shorter.
void fit_to_foreign(Config& cfg, const ForeignModel& m);
