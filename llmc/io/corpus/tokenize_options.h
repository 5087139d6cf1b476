// The command line of ./tokenize: COMMAND [--option=value ...] INPUT...
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/corpus/documents.h"

inline namespace corpus {

struct TokenizeOptions {
    std::string command, tokenizer, out, pattern;
    uint32_t vocab = 0;
    double val = 0;
    uint64_t shard_tokens = 0;
    int threads = 0;
    TextRules rules = {};
    std::vector<std::string> special = {};      // names of added tokens of a new vocabulary
    bool added = false;             // names of added tokens become their ids
    std::vector<std::string> inputs = {};
};

// Parses the options of a command. allowed: their names between blanks; --threads always is. Mistakes end in
// CHECK_INPUT.
TokenizeOptions parse_tokenize_options(const char* command, const char* allowed, int argc, char** argv);

std::string tokenize_help();

}  // namespace corpus
