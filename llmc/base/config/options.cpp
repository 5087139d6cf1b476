// cxxopts reads the flags. Options unknown to cxxopts are settings.
#include "llmc/base/config/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/config/cxxopts.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/config/first_argument.h"
#include "llmc/base/config/known_names.h"
#include "llmc/base/disk/files.h"

inline namespace config {

static const char* const kUsage =
    "usage: ./train_gpt CONFIG.json [--section.key=value ...]\n"
    "                   [--plan[=full|search] [--json] | --generate=TEXT [--chat [--system=TEXT]] |\n"
    "                    --evaluate=TASK,... | --export=TO [--overwrite] | --report[=FILE]]\n"
    "       ./train_gpt RUN... --report[=FILE]\n"
    "       ./train_gpt --watch=DIR [--port=N] [--host=ADDRESS]\n"
    "       ./train_gpt [CONFIG.json] --explore [--port=N] [--host=ADDRESS]\n"
    "       ./train_gpt --help | --version";

// A name without a section may be a flag misspelt, or a setting without its section.
static void check_flag_name(const std::string& name) {
    if (name.find('.') != std::string::npos || known_name(name)) return;
    for (const char* flag : {"help", "version", "plan", "json", "generate", "chat", "system", "evaluate",
                             "export", "overwrite", "watch", "explore", "port", "host", "report"})
        CHECK_INPUT(edit_distance(name.substr(0, 32), flag) > 2 || name == "about",
                    "--{}: there is no such flag. Did you mean --{}?", name.substr(0, 200), flag);
}

// Flags that take a value, and what stands for it in a message.
static const char* value_of_flag(const std::string& flag) {
    static constexpr std::pair<const char*, const char*> kFlags[] = {
        {"--generate", "TEXT"}, {"--system", "TEXT"}, {"--evaluate", "TASK,..."}, {"--export", "FORMAT:PATH"},
        {"--watch", "DIR"}, {"--port", "N"}, {"--host", "ADDRESS"}};
    for (const auto& [name, value] : kFlags)
        if (flag == name) return value;
    return nullptr;
}

// cxxopts would take the next option for the value. --generate=--text is a text.
static void check_values(std::span<const char* const> args) {
    for (size_t i = 0; i < args.size(); i++) {
        const char* const value = value_of_flag(args[i]);
        const bool there = i + 1 < args.size() && !std::string_view(args[i + 1]).starts_with("--");
        CHECK_INPUT(!value || there, "{} needs a value: write {}={}{}", args[i], args[i], value,
                    i + 1 < args.size() ? "; found " + std::string(args[i + 1]).substr(0, 200) : "");
    }
}

// Refuses "-b" and the like: flags of llm.c, or settings with a dash too few. cxxopts would read each letter.
static void check_dashes(std::span<const char* const> args) {
    bool value = false;                     // of the option before
    for (const std::string arg : args) {
        const bool option = arg.starts_with("--");
        if (arg.starts_with("-") && !option && arg != "-h" && !value) {
            const std::string name = arg.substr(0, arg.find('='));
            const KnownName* flag = known_name(name);
            const KnownName* known = flag ? flag : known_name(name.substr(1));
            CHECK_INPUT(false, "{}: options start with two dashes.{}\n{}", name.substr(0, 200),
                        known ? advice(*known) : "", kUsage);
        }
        value = option && arg.find('=') == arg.npos;
    }
}

static cxxopts::ParseResult parse_flags(int argc, const char* const* argv) {
    cxxopts::Options spec("train_gpt");
    const auto text = [] { return cxxopts::value<std::string>(); };
    const auto none = [] { return cxxopts::value<std::string>()->implicit_value(""); };
    spec.add_options()("h,help", "", none())("version", "", none())("plan", "", none())("json", "", none())
        ("generate", "", text())("chat", "", none())("system", "", text())("evaluate", "", text())
        ("export", "", text())("overwrite", "", none())("watch", "", text())("port", "", text())
        ("host", "", text())("report", "", none())("explore", "", none());
    spec.allow_unrecognised_options();
    try { return spec.parse(argc, argv); } catch (const std::exception& e) {
        CHECK_INPUT(false, "{}\n{}", e.what(), kUsage);
    }
    __builtin_unreachable();
}

static bool has_flag(const cxxopts::ParseResult& flags, const char* name) {
    if (!flags.count(name)) return false;
    const auto& value = flags[name].as<std::string>();
    CHECK_INPUT(value.empty(), "--{} takes no value, found --{}={}", name, name, value);
    return true;
}

// A setting "--name=value" or "--name value"; `next` moves past both.
static std::pair<std::string, std::string> setting_at(const std::vector<std::string>& args, size_t& next) {
    const std::string text = args[next++].substr(2), name = text.substr(0, text.find('='));
    check_flag_name(name);
    check_setting(name);                    // before a value is asked for
    if (name.size() < text.size()) return {name, text.substr(name.size() + 1)};
    CHECK_INPUT(next < args.size() && !args[next].starts_with("--"), "--{} needs a value: write --{}=VALUE",
                name, name);
    return {name, args[next++]};
}

// "piqa,boolq"
static std::vector<std::string> names_in(const std::string& list) {
    std::vector<std::string> names;
    for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        if (end > begin) names.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    CHECK_INPUT(!names.empty(), "--evaluate names no task: write --evaluate=hellaswag,lambada or a file");
    return names;
}

std::string for_shell(const std::string& text) {
    const auto is_plain = [](unsigned char c) { return isalnum(c) || strchr("_-./,:=+", c); };
    if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

std::string with_settings(std::string program,
                          const std::vector<std::pair<std::string, std::string>>& settings) {
    for (const auto& [key, value] : settings) program += " --" + key + "=" + for_shell(value);
    return program;
}

// --watch, --explore, --port, --host, --report.
static void read_page_flags(const cxxopts::ParseResult& flags, Options& o) {
    if (flags.count("watch")) o.watch = flags["watch"].as<std::string>();
    if (flags.count("host")) o.host = flags["host"].as<std::string>();
    if (flags.count("report")) o.report = flags["report"].as<std::string>();
    CHECK_INPUT(!o.watch || !o.watch->empty(), "--watch needs a folder: --watch=runs");
    CHECK_INPUT(!o.host || !o.host->empty(), "--host needs an address: --host=0.0.0.0 is every address of "
                "this machine");
    o.explore = has_flag(flags, "explore");
    const bool page = o.watch || o.explore;
    CHECK_INPUT(page || !flags.count("host"), "--host is for a page: --watch=DIR or --explore");
    CHECK_INPUT(page || !flags.count("port"), "--port is for a page: --watch=DIR or --explore");
    if (!flags.count("port")) return;
    const std::string port = flags["port"].as<std::string>();
    const auto read = std::from_chars(port.data(), port.data() + port.size(), o.port);
    CHECK_INPUT(read.ec == std::errc() && read.ptr == port.data() + port.size() && o.port >= 0 &&
                o.port <= 65535, "--port={}: expected a port, 0 to 65535 (0: any free one)", port);
}

// --watch alone needs no config: true.
static bool is_watch_alone(const Options& o, const std::vector<std::string>& rest) {
    if (!o.watch) return false;
    const bool other = o.plan || o.json || o.generate || o.evaluate || o.export_to || o.report || o.chat ||
                       o.system || o.explore;
    CHECK_INPUT(!other && rest.empty(), "--watch takes a folder, --port and --host, nothing else{}",
                rest.empty() ? "" : ": found " + rest[0].substr(0, 200));
    return true;
}

// One program at a time, flags only with their program, and a config where the program needs one.
static void check_programs(const Options& o) {
    const std::string plan = o.plan.value_or("").substr(0, 200);
    CHECK_INPUT(plan.empty() || plan == "search" || plan == "full",
                "--plan={}: expected --plan, --plan=full or --plan=search", plan);
    CHECK_INPUT(!o.json || o.plan, "--json is for --plan");
    const int programs = o.plan.has_value() + o.generate.has_value() + o.evaluate.has_value() +
                         o.export_to.has_value() + o.report.has_value() + o.explore;
    CHECK_INPUT(programs <= 1, "expected one of --plan, --generate, --evaluate, --export, --report and "
                "--explore at a time");
    CHECK_INPUT(!o.overwrite || o.export_to, "--overwrite is for --export=FORMAT:PATH");
    CHECK_INPUT(!o.chat || o.generate, "--chat is for a message to the model: --generate=MESSAGE --chat");
    CHECK_INPUT(!o.system || o.chat, "--system is for a conversation: --generate=MESSAGE --chat "
                "--system=TEXT");
    CHECK_INPUT(o.explore || !o.runs.empty() || !o.config_path.empty(),
                "no config given (./train_gpt '{{}}' takes all defaults)\n{}", kUsage);
}

// Loads the config. A folder sets what it stands for; the command line may override.
static void load_first(Options& o) {
    const FirstArgument first = first_argument(o.config_path);
    o.config_path = first.config;
    if (!o.config_path.empty()) o.config = load_config(o.config_path);
    if (!first.run_dir.empty()) set_value(o.config, "run.dir", first.run_dir);
    const bool reads = o.generate || o.evaluate || o.export_to;
    if (!first.step.empty()) set_value(o.config, reads ? "model.init" : "checkpoint.resume", first.step);
}

Options parse_command_line(int argc, const char* const* argv, void (*complete)(Options&)) {
    CHECK_INPUT(argc > 1, "no config given\n{}", kUsage);
    check_dashes({argv + 1, size_t(argc - 1)});
    check_values({argv + 1, size_t(argc - 1)});
    const cxxopts::ParseResult flags = parse_flags(argc, argv);
    Options o;
    o.help = flags.count("help");
    if (o.help) o.config_path = flags["help"].as<std::string>();      // --help=SECTION
    o.version = has_flag(flags, "version");
    if (flags.count("plan")) o.plan = flags["plan"].as<std::string>();
    o.json = has_flag(flags, "json");
    if (flags.count("generate")) o.generate = flags["generate"].as<std::string>();
    if (flags.count("evaluate")) o.evaluate = flags["evaluate"].as<std::string>();
    o.chat = has_flag(flags, "chat");
    if (flags.count("system")) o.system = flags["system"].as<std::string>();
    o.overwrite = has_flag(flags, "overwrite");
    if (flags.count("export")) o.export_to = flags["export"].as<std::string>();
    const std::vector<std::string>& rest = flags.unmatched();
    read_page_flags(flags, o);
    if (!o.help && !o.version && is_watch_alone(o, rest)) return o;
    for (size_t i = 0; i < rest.size();) {
        if (rest[i].starts_with("--")) {
            o.settings.push_back(setting_at(rest, i));
            continue;
        }
        if (o.report && is_directory(rest[i])) {
            o.runs.push_back(rest[i++]);
            continue;
        }
        CHECK_INPUT(o.config_path.empty(), "two configs, {} and {}: one is expected. {}",
                    o.config_path, rest[i].substr(0, 200), o.generate
                    ? "A text of several words stands in quotes: --generate=\"Once upon a time\""
                    : "A setting is written --section.key=value");
        o.config_path = rest[i++];
    }
    const bool on_topic = o.help && !o.config_path.empty() && !is_first_argument(o.config_path);
    if (on_topic) check_topic(o.config_path);
    if (o.help || o.version) return o;
    check_programs(o);
    o.program = "./train_gpt " + (for_shell(o.config_path.empty() ? "{}" : o.config_path));
    load_first(o);
    for (const auto& [path, value] : o.settings) set_value(o.config, path, value);
    if (o.evaluate) o.config.eval.tasks = names_in(*o.evaluate);
    if (complete) complete(o);
    validate(o.config);
    return o;
}

}  // namespace config
