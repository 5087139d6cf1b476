// The input files of ./tokenize: names, folders and globs, as files of a known kind.
//
//     .txt              text
//     .jsonl            a JSON object a line
//     .gz, .zst         either, packed
//     -                 standard input: text
//     any other suffix  as --as says; refused without
//     a folder          the files in it and below that are of a known kind; with --as, all but shards, tables
//                       and archives
//     a*b?.txt, **      every matching file, sorted
#pragma once
#include <cstdint>
#include <string>
#include <vector>

inline namespace corpus {

enum class InputKind { Text, JsonLines };

struct Input {
    std::string path;               // "-": standard input
    InputKind kind = InputKind::Text;
};

// What other suffixes, and standard input, are read as.
enum class As { Refused, Text, JsonLines };

struct Inputs {
    std::vector<Input> files;
    uint64_t left_out = 0;          // files of other kinds in folders

    uint64_t count(InputKind kind) const;
    std::string summary() const;    // "2 text files, 1 file of JSON lines"
};

// CHECK_INPUT: nothing is there, or of an unknown kind.
Inputs find_inputs(const std::vector<std::string>& names, As as);

}  // namespace corpus
