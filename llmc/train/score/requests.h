// The continuations of a task as tokens.
#pragma once
#include "llmc/base/config/config.h"
#include "llmc/io/text/tokenizer.h"
#include "llmc/train/score/task.h"

inline namespace scores {

// A request per continuation, in the order of the documents, cut as lm-evaluation-harness does. White space
// at the end of a context belongs to the continuation. Continuation tokens: encoding of context +
// continuation, minus the first n tokens (n: length of the encoded context), at least one. An empty context
// becomes the end-of-text token. At most `most` + 1 tokens: a longer context loses its beginning.
std::vector<Request> requests_of(const EvalTask& task, const Tokenizer& tokenizer, int most);

// eval.tasks with their requests; without a tokenizer an error.
std::vector<EvalTask> load_tasks(const Config& cfg, const std::optional<Tokenizer>& tokenizer);

// The text without white space at its end, as Python's str.rstrip().
std::string_view without_space_at_end(std::string_view text);

}  // namespace scores
