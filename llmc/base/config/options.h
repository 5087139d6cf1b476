// The command line: ./train_gpt CONFIG.json [--section.key=value ...] [flags]
#pragma once
#include <optional>
#include <string>

#include "llmc/base/config/config.h"

struct Options {
    Config config;              // resolved and checked; defaults with --help and --version
    std::string config_path;    // empty: none was given
    bool help = false, version = false, plan = false;
    std::optional<std::string> generate;      // --generate=TEXT
    std::optional<std::string> export_to;     // --export=FORMAT:PATH, not yet checked
};

// Without arguments, and on anything wrong: fatal() with exit code 78. Prints nothing else. complete() sets
// what file and command line leave open; validate() follows.
Options parse_command_line(int argc, const char* const* argv, void (*complete)(Options&) = nullptr);

// What --help prints: usage, every key with default and meaning, exit codes. formats: lines on --export.
std::string help_text(const std::string& formats = "");
