// The continuations of a task as tokens.
#pragma once
#include "llmc/io/text/tokenizer.h"
#include "llmc/train/score/task.h"

struct Request {
    int document;
    std::vector<int32_t> tokens;        // context and continuation
    int scored;                         // the last so many are the continuation's
};

// A request per continuation, in the order of the documents, cut as lm-evaluation-harness does. White space
// at the end of a context belongs to the continuation. The context is encoded alone; the continuation has the
// tokens of both together, after as many as the context has. An empty context is BOS where the tokenizer adds
// one, else end-of-text. At most `most` + 1 tokens: a longer context loses its beginning.
std::vector<Request> requests_of(const EvalTask& task, const Tokenizer& tokenizer, int most);

// The text without white space at its end, as Python's str.rstrip().
std::string_view without_space_at_end(std::string_view text);
