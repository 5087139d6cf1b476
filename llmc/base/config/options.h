// The command line: ./train_gpt CONFIG.json [--section.key=value ...] [flags]
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/config/config.h"

inline namespace config {

struct Options {
    Config config;              // resolved and checked; defaults with --help and --version
    std::string config_path;    // or the config itself, {...}; empty: none; with --help the section
    bool help = false, version = false, json = false, explore = false;
    std::optional<std::string> plan;          // --plan: ""; --plan=search
    std::string program;                      // "./train_gpt CONFIG"
    std::vector<std::pair<std::string, std::string>> settings;      // --KEY=VALUE, in their order
    std::optional<std::string> generate;      // --generate=TEXT
    std::optional<std::string> evaluate;      // --evaluate=TASK,...: into eval.tasks
    bool chat = false;                        // the text is a message, which the model answers
    std::optional<std::string> system;        // --system=TEXT, of the conversation
    std::optional<std::string> export_to;     // --export=FORMAT:PATH, not yet checked
    bool overwrite = false;                   // files at that place, whoever wrote them
    std::optional<std::string> watch;         // --watch=DIR: no config is read
    std::optional<std::string> host;          // --host=ADDRESS, with a page
    int port = 8000;                          // --port=N, with a page; 0: any free port
    std::optional<std::string> report;        // --report[=FILE.html]; empty: RUN/report.html
    std::vector<std::string> runs;            // folders, with --report; empty: run.dir
};

// Prints nothing but errors: missing arguments and mistakes end in fatal() with exit code 78. complete() sets
// the values left open by file and command line; validate() follows.
Options parse_command_line(int argc, const char* const* argv, void (*complete)(Options&) = nullptr);

// Quoted where a shell would split or change the text.
std::string for_shell(const std::string& text);

// "PROGRAM --KEY=VALUE ...", for a shell.
std::string with_settings(std::string program,
                          const std::vector<std::pair<std::string, std::string>>& settings);

// Text of --help: usage, every key with default and meaning, exit codes. formats: lines on --export. topic: a
// section or a setting, to be shown alone; a config shows all.
std::string help_text(const std::string& formats = "", const std::string& topic = "");
// Refuses a topic that is no section and no setting.
void check_topic(const std::string& topic);

}  // namespace config
