// What a run reads: its tokenizer and its sets of tokens, opened, validated, and agreed on one vocabulary.
#pragma once
#include <optional>

#include "llmc/base/files.h"
#include "llmc/comm/axis.h"
#include "llmc/io/text/tokenizer.h"
#include "llmc/train/step/dataset.h"

struct RunData {
    std::optional<Tokenizer> tokenizer;
    Dataset train, val;                  // without streams where the config asks for none
    int vocab = 0;                       // model.vocab, or the tokenizer's, or the shards'
    SharedText tokenizer_json;           // for checkpoints; making it takes memory, so it is made once
    std::vector<uint16_t> bytes;         // bytes of each id's text; empty without a tokenizer

    std::string describe() const;        // for people
};

// Rank 0 of `ranks` first: what is wrong with the data, one says.
RunData open_run_data(const Config& cfg, const Axis& ranks = {});

// model.vocab as far as it is known without shards: the config's, or the tokenizer's; 0: not known.
int vocab_of(const Config& cfg, const std::optional<Tokenizer>& tokenizer);
