// The settings are free keys, which an option library would hand back unparsed; what is left are five flags,
// so both are parsed here.
#include "llmc/base/config/options.h"

#include <utility>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/config/known_names.h"

static const char* const kUsage =
    "usage: ./train_gpt CONFIG.json [--section.key=value ...] [--plan | --generate=TEXT | --export=TO]\n"
    "       ./train_gpt --help | --version";

// An argument "--name=value" or "--name value"; `next` is moved past what it takes.
struct Argument {
    std::string name, value;
    bool has_value;
};

static Argument split(const std::vector<std::string>& args, size_t& next) {
    const std::string text = args[next++].substr(2);
    const size_t equal = text.find('=');
    if (equal == std::string::npos) return {text, "", false};
    return {text.substr(0, equal), text.substr(equal + 1), true};
}

static void take_value(Argument& a, const std::vector<std::string>& args, size_t& next) {
    if (a.has_value) return;
    CHECK_INPUT(next < args.size() && !args[next].starts_with("--"), "--%s needs a value: write --%s=VALUE",
                a.name.c_str(), a.name.c_str());
    a.value = args[next++];
    a.has_value = true;
}

// Whether the argument is the flag of that name, which takes no value.
static bool is_flag(const Argument& a, const char* name) {
    if (a.name != name) return false;
    CHECK_INPUT(!a.has_value, "--%s takes no value, found --%s=%s", name, name, a.value.c_str());
    return true;
}

static void check_export(const std::string& to) {
    CHECK_INPUT(to.starts_with("hf:") || to.starts_with("gguf:") || to.starts_with("llmc:"),
                "--export=%s: expected hf:DIR, gguf:FILE or llmc:FILE", to.c_str());
    CHECK_INPUT(to.back() != ':', "--export=%s: a path is missing after the colon", to.c_str());
}

// A name without a section may be a flag misspelt, or a setting without its section.
static void check_flag_name(const std::string& name) {
    if (name.find('.') != std::string::npos || known_name(name)) return;
    for (const char* flag : {"help", "version", "plan", "generate", "export"})
        CHECK_INPUT(edit_distance(name.substr(0, 32), flag) > 2 || name == "about",
                    "--%s: there is no such flag. Did you mean --%s?", name.substr(0, 200).c_str(), flag);
}

// "-b" and the like: llm.c's flags, or a setting with a dash too few.
static void check_dashes(const std::string& arg) {
    if (!arg.starts_with("-") || arg.starts_with("--")) return;
    const std::string name = arg.substr(0, arg.find('='));
    const KnownName* flag = known_name(name);
    const KnownName* known = flag ? flag : known_name(name.substr(1));
    CHECK_INPUT(false, "%s: options start with two dashes.%s\n%s", name.substr(0, 200).c_str(),
                known ? advice(*known).c_str() : "", kUsage);
}

Options parse_command_line(int argc, const char* const* argv) {
    const std::vector<std::string> args(argv + 1, argv + argc);
    CHECK_INPUT(!args.empty(), "no config given\n%s", kUsage);
    Options o;
    std::vector<std::pair<std::string, std::string>> settings;
    for (size_t i = 0; i < args.size();) {
        if (args[i] == "-h") { o.help = true; i++; continue; }
        check_dashes(args[i]);
        if (!args[i].starts_with("--")) {
            CHECK_INPUT(o.config_path.empty(), "two configs, %s and %s: one is expected. %s",
                        o.config_path.c_str(), args[i].substr(0, 200).c_str(), o.generate
                        ? "A text of several words stands in quotes: --generate=\"Once upon a time\""
                        : "A setting is written --section.key=value");
            o.config_path = args[i++];
            continue;
        }
        Argument a = split(args, i);
        if (is_flag(a, "help")) o.help = true;
        else if (is_flag(a, "version")) o.version = true;
        else if (is_flag(a, "plan")) o.plan = true;
        else if (a.name == "generate") { take_value(a, args, i); o.generate = a.value; }
        else if (a.name == "export") { take_value(a, args, i); o.export_to = a.value; }
        else {
            check_flag_name(a.name);
            check_setting(a.name);    // before a value is asked for
            take_value(a, args, i);
            settings.emplace_back(a.name, a.value);
        }
    }
    if (o.help || o.version) return o;
    CHECK_INPUT(o.plan + o.generate.has_value() + o.export_to.has_value() <= 1,
                "expected one of --plan, --generate and --export at a time");
    CHECK_INPUT(!o.config_path.empty(), "no config given (a file that holds {} takes all defaults)\n%s",
                kUsage);
    o.config = load_config(o.config_path);
    for (const auto& [path, value] : settings) set_value(o.config, path, value);
    validate(o.config);
    if (o.export_to) check_export(*o.export_to);
    return o;
}
