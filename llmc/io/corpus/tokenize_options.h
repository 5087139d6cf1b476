// The command line of ./tokenize: COMMAND [--option=value ...] INPUT...
#pragma once
#include <cstdint>
#include <string>
#include <vector>

struct TokenizeOptions {
    std::string command, tokenizer, out, pattern;
    uint32_t vocab = 0;
    double val = 0;
    uint64_t shard_tokens = 0;
    int threads = 0;
    bool as_text = false;           // for any suffix of the inputs
    bool added = false;             // names of added tokens become their ids
    std::vector<std::string> inputs = {};
};

// Parses the options of a command. allowed: their names between blanks; --threads always is. Mistakes end in
// CHECK_INPUT.
TokenizeOptions parse_tokenize_options(const char* command, const char* allowed, int argc, char** argv);

extern const char* const kTokenizeHelp;
