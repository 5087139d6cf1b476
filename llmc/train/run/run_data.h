// The input of a run: tokenizer and sets of tokens, opened and validated, with one vocabulary.
#pragma once
#include <memory>
#include <optional>

#include "llmc/base/disk/files.h"
#include "llmc/comm/axis.h"
#include "llmc/io/text/tokenizer.h"
#include "llmc/train/data/contents.h"
#include "llmc/train/data/dataset.h"
#include "llmc/train/data/loader.h"
#include "llmc/train/save/save.h"
#include "llmc/train/score/task.h"

inline namespace runs {

struct RunData {
    std::optional<Tokenizer> tokenizer;
    std::vector<int32_t> prompt;         // ids of sample.prompt; empty without a tokenizer
    Dataset train, val;                  // without streams if the config names no set
    int vocab = 0;                       // model.vocab, or the tokenizer's, or the shards'
    std::vector<EvalTask> tasks;         // eval.tasks
    std::vector<ExtraFile> tokenizer_files;     // for checkpoints; built once, as building takes memory
    std::vector<uint16_t> bytes;         // of each id's text, 0 of control tokens; empty without a tokenizer
    Contents contents;                   // of all files that are read

    std::string describe(uint64_t evaluated) const;     // for people; rows of data.val in an evaluation
    // Percentages of tokens that document packing cuts off, as text; empty with data.rows=stream.
    std::string describe_rows() const;
};

// Rank 0 of `ranks` first: errors of the data are reported once.
RunData open_run_data(const Config& cfg, const Axis& ranks = {});
// This rank's micro-batches from a sample on; null: the run does not train. REQUIRES: data outlives it.
std::unique_ptr<Loader> open_loader(const Config& cfg, const RunData& data, const Mesh& mesh,
                                    int64_t sample);

// The first ids of a text of --generate: BOS where the tokenizer adds BOS, then the prompt. If empty:
// end-of-text, the beginning of a document.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt);
// The first ids of a document, as in token shards (tokenizer.h): BOS or end-of-text, then the text. Samples
// of training begin so.
std::vector<int32_t> document_ids(const Tokenizer& tokenizer, std::string_view text);

// model.vocab without reading shards: the config's, or the tokenizer's; 0: unknown.
int vocab_of(const Config& cfg, const std::optional<Tokenizer>& tokenizer);

}  // namespace runs
