// A format of another program's models: one Format, defined in the format's own file with its names of
// tensors and config keys. formats.cpp has the table of all formats.
//
// In memory every tensor is FP32, in the rows and columns of the table of parameters, without padding rows.
// An export reads a whole tensor at a time, an import a few rows.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/config/config.h"
#include "llmc/io/text/tokenizer.h"
#include "llmc/model/layout.h"

inline namespace formats {

inline constexpr const char* kProgram = "train_gpt";          // an export says that this program wrote it

// A model to export.
struct OwnModel {
    ModelConfig shape;                                        // vocab resolved
    const Layout& layout;
    std::function<std::vector<float>(const Tensor&)> read;
    const Tokenizer* tokenizer;                               // null: none
    bool bf16;                                                // weights already rounded to bf16
    uint64_t largest_file = 5'000'000'000;                    // bytes of tensors; in Hugging Face's folders
};

// A model to import.
struct ForeignModel {
    std::string from;                                         // "hf:DIR" as model.init names it
    ModelConfig shape;
    std::string tokenizer;                                    // path for Tokenizer::load(); empty: none
    // Reads rows of t as FP32; t has the file's shape, but may have fewer positions.
    std::function<void(const Tensor& t, size_t row, size_t rows, float* out)> read;
    // Reads rows of a tied model's separate head matrix, which must equal the embedding. Null: no such
    // matrix, or an untied model.
    std::function<void(size_t row, size_t rows, float* out)> head;
};

// Shape: weights may be missing, and are not read; for plans.
enum class Opens : uint8_t { Model, Shape };

struct ForeignKind;                         // kind.h

struct Format {
    const char* prefix;                     // "hf" of "hf:DIR"
    const char* place;                      // "DIR" or "FILE": the kind of path behind the colon
    const char* meaning;                    // for --help
    bool writes_bf16;                       // run.precision=bf16 chooses bf16 weights for an export
    ForeignModel (*open)(const std::string& path, Opens opens);
    void (*write)(const OwnModel& m, const std::string& path);      // nothing is there
    // Rounds the values of a whole tensor as write() to this path does; false, or null: the path asks for no
    // rounding.
    bool (*round)(const std::string& path, const Tensor& t, std::vector<float>& values);
    std::vector<const ForeignKind*> (*kinds)();             // of models that the format holds
    // Files that write() may make, in the order of their removal.
    std::vector<std::string> (*files)(const std::string& path);
    // Whether the files at path are an export of this program. model: that would replace them.
    bool (*is_own)(const std::string& path, const ModelConfig& model);
    // For a message. head: the head matrix that files of tied models may have besides the embedding;
    // other_head: what to do where the two differ. Null: no file has both.
    const char *head, *other_head;
    // For an error message: the model.init that a path without a prefix stands for; empty: another format's.
    std::string (*meant)(const std::string& path);
};

// Row order within a head of a foreign matrix, by RoPE convention. Same, as here: channels i and i + D/2
// rotate together. Swapped: halves exchanged, the opposite rotation. Pairs: i and i + D/2 interleaved.
enum class Rows : uint8_t { Same, Swapped, Pairs };
// The foreign row of a row here. D: channels of a head.
size_t row_there(Rows order, size_t row, size_t D);

// Name of a tensor here and in the file. A fused matrix has one table entry, or one entry per foreign tensor.
struct TensorName { const char *own, *theirs; Rows order = Rows::Same; };

// A foreign tensor: `rows` rows of a tensor here, from `first` on.
struct ForeignTensor {
    std::string name;
    size_t first, rows;
    Rows order;
};

// The foreign tensors that hold t; empty: the format has no such tensor. blocks: the text before a block's
// number, "h." of "h.3.attn.c_attn.weight". Names of tensors outside blocks have no such prefix.
std::vector<ForeignTensor> foreign_tensors(std::span<const TensorName> names, const char* blocks,
                                           const Tensor& t);

// read_foreign_rows(): out = rows row .. row + rows of t. read(): reads rows of one foreign tensor as FP32,
// by their numbers there.
using ReadForeign = std::function<void(const ForeignTensor& p, size_t row, size_t rows, float* out)>;
void read_foreign_rows(const std::vector<ForeignTensor>& tensors, const Tensor& t, size_t D, size_t row,
                       size_t rows, float* out, const ReadForeign& read);

// The values of a foreign tensor, from all values of the tensor here, of `cols` columns.
std::vector<float> foreign_values(const ForeignTensor& p, size_t cols, size_t D,
                                  const std::vector<float>& all);

bool head_is_embedding(const ForeignModel& m, const Tensor& wte);       // compares all values

void remove_file(const std::string& path);                              // if it exists

// Ends with exit code 77 where a value is NaN or infinite. file, tensor: names for the message.
template <class T>
void check_finite(std::span<const T> values, const std::string& file, const std::string& tensor) {
    bool finite = true;
    for (const T& v : values) finite &= std::isfinite(float(v));
    if (!finite)
        fatal(kExitNotFinite, __FILE__, __LINE__, "{}: the tensor '{}' holds NaN or infinity: no model "
              "computes with it", file, tensor);
}

// Rows of a read: a quarter of a MB, or 64 rows.
inline size_t rows_of_read(size_t cols) { return std::max<size_t>(64, (size_t(1) << 16) / cols); }

// Calls f(row, rows) for slices of a tensor.
template <class F> void for_each_slice(const Tensor& t, F&& f) {
    for (Interval rest{0, size_t(t.param.whole_rows)}; !rest.empty();) {
        const auto [row, rows] = rest.take(rows_of_read(size_t(t.param.whole_cols)));
        f(row, rows);
    }
}

}  // namespace formats
