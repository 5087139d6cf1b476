#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/config/axes.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/config/options.h"
#include "llmc/base/host/version.h"

inline namespace config {

static constexpr size_t kWidth = 110;

static const char* const kHead =
    "Pretrains a GPT from token shards.\n"
    "\n"
    "    ./train_gpt CONFIG.json [--section.key=value ...] [flags]    '{}' for CONFIG.json: defaults\n"
    "\n"
    "    ./train_gpt scripts/quickstart.json                        train\n"
    "    ./train_gpt scripts/quickstart.json --optimizer.lr=1e-3    with another learning rate\n"
    "    ./train_gpt scripts/quickstart.json --plan                 what it would need\n"
    "    ./train_gpt scripts/quickstart.json --generate=\"Once\"      text from what was trained\n"
    "\n"
    "CONFIG.json may also be a preset's name (gpt2_124M), the folder of a run, or a checkpoint's, step_N.\n"
    "A value on the command line goes before the file's, the last of several before the others. Lists are "
    "JSON.\n"
    "Integers may be written 1e8, 100M or 2B.\n"
    "\n"
    "Flags\n"
    "  --help [SECTION]                 this text, or the settings of a section: --help optimizer\n"
    "  --version                        commit, backends, libraries\n"
    "  --plan                           print whether the config fits, and its memory plan, allocate\n"
    "                                   nothing; of several ranks the fullest: of threads with\n"
    "                                   parallel.ranks=N, of processes with parallel.transport=mpi\n"
    "                                   besides, or below mpirun; with cluster.gpu the time and price as\n"
    "                                   well. A script reads the resolved settings behind it; a terminal\n"
    "                                   shows them by --plan=full\n"
    "  --plan=search                    the fastest meshes of parallel.ranks GPUs of cluster.gpu; without\n"
    "                                   parallel.ranks the best mesh of 1, 2, 4 ... 16,384; cluster.days\n"
    "                                   or cluster.dollars chooses one of them\n"
    "  --json                           with --plan: one JSON object\n"
    "  --generate=TEXT                  continue the text with model.init, or the newest checkpoint of\n"
    "                                   run.dir, up to the end-of-text token. The model sees the text's\n"
    "                                   tokens alone, behind BOS where the tokenizer adds one. TEXT - reads\n"
    "                                   standard input, without the last newline\n"
    "  --chat                           with --generate: the text is a message to a model that was tuned to\n"
    "                                   answer. It is put into the model's chat template; the answer is\n"
    "                                   printed\n"
    "  --system=TEXT                    with --chat: the system message, instead of the template's own\n"
    "  --evaluate=TASK,...              score model.init, or the newest checkpoint, on tasks: a table, rows\n"
    "                                   in run.dir/evals.jsonl, answers in run.dir/answers. The task loss:\n"
    "                                   loss, perplexity and bits per byte of all of data.val\n"
    "  --export=FORMAT:PATH             write the weights of model.init, or of the newest checkpoint, for\n"
    "                                   another program; an older export of this program is replaced\n";

static const char* const kMoreFlags =
    "  --overwrite                      with --export: replace files that another program wrote, too\n"
    "  --watch=DIR                      serve a page of all runs below DIR, on 127.0.0.1: curves, texts,\n"
    "                                   scores, live. Needs no config; training never waits for it\n"
    "  --explore                        serve a page to plan with, on 127.0.0.1: sliders for model, GPUs\n"
    "                                   and mesh; all numbers are those of --plan. Needs no config\n"
    "  --port=N                         of a page: the port, 8000 where not given (0: any free one)\n"
    "  --host=ADDRESS                   of a page: serve other machines too; the address that is printed\n"
    "                                   has a token, without which nothing is answered\n"
    "  --report[=FILE.html]             write the run in run.dir, or the runs in the folders named, as one\n"
    "                                   page to send to someone (RUN/report.html)\n";

static const char* const kTail =
    "\n"
    "Signals\n"
    "  SIGUSR1                          save a checkpoint and go on\n"
    "  SIGUSR2, SIGTERM, SIGINT         save a checkpoint and exit with 75; SIGTERM or SIGINT once more: at "
    "once.\n"
    "                                   To mpirun only SIGUSR1 and SIGUSR2: it ends the others itself\n"
    "\n"
    "Exit codes\n"
    "  0   done\n"
    "  75  stopped by a signal, or a rank died: start again\n"
    "  76  a rank made no progress for run.hang_timeout (a minute at least while it starts)\n"
    "  77  loss or gradient not finite, more than train.max_skips times; weights not finite\n"
    "  78  config or input is wrong: the message says what and where\n"
    "  79  no checkpoint that verifies\n";

// Appends text at column `indent`, broken at spaces into lines of at most kWidth columns.
static void append_wrapped(std::string& out, const std::string& text, size_t indent) {
    size_t column = indent;
    for (size_t i = 0; i < text.size();) {
        const size_t end = std::min(text.find(' ', i), text.size());
        if (column > indent && column + 1 + (end - i) > kWidth) {
            out += "\n" + std::string(indent, ' ');
            column = indent;
        }
        if (column > indent) {
            out += " ";
            column++;
        }
        out += text.substr(i, end - i);
        column += end - i;
        i = end + 1;
    }
    out += "\n";
}

// "(0 to 1)", "(auto, cpu, cuda)"; empty if every value makes sense, or if the limit is far away
static std::string domain(const Field& f) {
    const std::string text = expected(f);
    if (std::holds_alternative<Word*>(f.value)) return " (" + text.substr(text.find("one of ") + 7) + ")";
    return f.limits.high <= 1000 ? " (" + text.substr(text.find(" of ") + 4) + ")" : "";
}

// Names the values refused by base/config/validate.cpp: all but a single choice.
static std::string missing(const Field& f) {
    return f.path() == "run.device" ? std::string(" (of this program: ") + built_device + ")" : "";
}

static void append_field(std::string& out, const Field& f) {
    constexpr size_t kName = 2, kValue = 27, kMeaning = 43;
    const auto pad = [&](size_t line, size_t column) {    // at least two spaces, then up to the column
        const size_t at = out.size() - line;
        out += std::string(at + 2 > column ? 2 : column - at, ' ');
    };
    const size_t line = out.size();
    out += std::string(kName, ' ') + f.path();
    pad(line, kValue);
    out += value_json(f.value);
    if (out.size() - line + 2 > kMeaning) out += "\n" + std::string(kMeaning, ' ');
    else pad(line, kMeaning);
    append_wrapped(out, f.meaning + domain(f) + missing(f), kMeaning);
}

// A section, or a setting; empty: there is none of the name.
static std::string help_on(const std::string& topic, const std::vector<Field>& all) {
    std::string out;
    for (const Section& s : sections())
        if (s.name == topic) out = s.name + ": " + s.meaning + "\n";
    for (const Field& f : all)
        if (f.path() == topic || (!topic.empty() && f.section == topic)) append_field(out, f);
    return out;
}

void check_topic(const std::string& topic) {
    Config defaults;
    if (!help_on(topic, fields(defaults)).empty()) return;
    std::string names;
    for (const Section& s : sections()) names += (names.empty() ? "" : ", ") + s.name;
    CHECK_INPUT(false, "--help {}: there is no such section or setting; expected one of {}, or a setting "
                "such as optimizer.lr", topic.substr(0, 200), names);
}

std::string help_text(const std::string& formats, const std::string& topic) {
    Config defaults;
    const std::vector<Field> all = fields(defaults);
    std::string out = help_on(topic, all);
    if (!out.empty()) return out;
    out = kHead + formats + kMoreFlags + "\nSettings, with their defaults\n";
    for (const Field& f : all)
        if (f.section.empty()) append_field(out, f);
    for (const Section& s : sections()) {
        out += "\n  " + s.name + ": " + s.meaning + "\n";
        for (const Field& f : all)
            if (f.section == s.name) append_field(out, f);
    }
    return out + kTail;
}

}  // namespace config
