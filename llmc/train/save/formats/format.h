// A format of another program's models: one Format, defined in the format's own file with its names of
// tensors and config keys. formats.cpp has the table of all formats.
//
// In memory every tensor is FP32, in the rows and columns of the table of parameters, without padding rows.
// An export reads a whole tensor at a time, an import a few rows.
#pragma once
#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/io/text/tokenizer.h"
#include "llmc/model/layout.h"

// A model to export.
struct OwnModel {
    ModelConfig shape;                                        // vocab resolved
    const Layout& layout;
    std::function<std::vector<float>(const Tensor&)> read;
    const Tokenizer* tokenizer;                               // null: none
    bool bf16;                                                // weights already rounded to bf16
};

// A model to import.
struct ForeignModel {
    std::string from;                                         // "hf:DIR" as model.init names it
    ModelConfig shape;
    std::string tokenizer;                                    // path of the model's own; empty: none
    // Rows of a tensor; t.param as for `shape`, or with fewer positions.
    std::function<void(const Tensor& t, size_t row, size_t rows, float* out)> read;
    // Rows of the file's own matrix of the head; null: the file has none. head_is_embedding() has to hold.
    std::function<void(size_t row, size_t rows, float* out)> head;
};

struct Format {
    const char* prefix;                     // "hf" of "hf:DIR"
    const char* place;                      // "DIR" or "FILE": the kind of path behind the colon
    const char* meaning;                    // for --help
    bool imported;                          // model.init may name the format
    bool writes_bf16;                       // run.precision=bf16 chooses bf16 weights for an export
    ForeignModel (*open)(const std::string& path);
    void (*write)(const OwnModel& m, const std::string& path);
    // Files that write() makes, in the order of their removal; tokenizer: whether the model has one.
    std::vector<std::string> (*files)(const std::string& path, bool tokenizer);
    // For an error message: the model.init that a path without a prefix stands for; empty: another format's.
    std::string (*meant)(const std::string& path);
};

// The table's name of a tensor, and a format's.
struct TensorName { const char *own, *theirs; };

// "wte.weight", or within a block "h.3.attn.c_attn.weight": blocks = "h." goes before the block's number.
std::string foreign_name(std::span<const TensorName> names, const char* blocks, const Tensor& t);

// The sizes by a format's own keys; path is for messages. number: a key's value, at most INT32_MAX.
ModelConfig shape_by_keys(const ShapeKeys& keys, const std::string& path,
                          const std::function<int(const char* key)>& number);

bool head_is_embedding(const ForeignModel& m, const Tensor& wte);       // value by value
void check_head(const ForeignModel& m, const Tensor& wte);              // refuses an untied model

// Calls f(row, rows) for slices of a tensor: half a MB each, or 64 rows.
template <class F> void for_each_slice(const Tensor& t, F&& f) {
    const size_t all = size_t(t.param.whole_rows);
    const size_t at_once = std::max<size_t>(64, (size_t(1) << 17) / size_t(t.param.whole_cols));
    for (size_t row = 0; row < all; row += at_once) f(row, std::min(at_once, all - row));
}
