// Reads the command line, picks the precision, and goes to the program: train() in train_gpt.cu, or one of
// train/programs.cpp.
#include <cstdio>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/base/launcher.h"
#include "llmc/base/last_words.h"
#include "llmc/base/machine.h"
#include "llmc/base/openmp.h"
#include "llmc/base/options.h"
#include "llmc/base/supervisor.h"
#include "llmc/base/version.h"
#include "llmc/comm/launch.h"
#include "llmc/comm/mpi.h"
#include "llmc/comm/nccl.h"
#include "llmc/ops/cpu/dnnl.h"
#include "llmc/train/programs.h"
#include "llmc/train/resume.h"
#include "llmc/train/signals.h"

struct Precision {
    const char* name;
    int (*train)(Config, const Mesh&);
    int (*plan)(Config);
    int (*generate)(Config, const Mesh&, const std::string&);
    int (*export_model)(Config, const Mesh&, const std::string&);
};
static constexpr Precision precisions[] = {
    {"fp32", fp32::train, fp32::plan, fp32::generate, fp32::export_model},
    {"bf16", bf16::train, bf16::plan, bf16::generate, bf16::export_model},
#ifdef HAVE_FP64       // on the CPU
    {"fp64", fp64::train, fp64::plan, fp64::generate, fp64::export_model},
#endif
};

// auto: the checkpoint's, where one is gone on with, else what the machine is fast at.
static const Precision& precision_of(Config& cfg, bool goes_on) {
    const std::string saved = cfg.run.precision == "auto" && goes_on ? saved_precision(cfg) : "";
    const bool fast = std::string_view(built_device) == "cuda" || bf16_is_fast();
    if (!saved.empty()) cfg.run.precision = saved;
    if (cfg.run.precision == "auto") cfg.run.precision = fast ? "bf16" : "fp32";
    std::string names = "auto";
    for (const Precision& p : precisions)
        if (names += std::string(", ") + p.name; cfg.run.precision == p.name) return p;
    CHECK_INPUT(false, "run.precision = '%s': one of %s in a program built for %s", cfg.run.precision.c_str(),
                names.c_str(), built_device);
    __builtin_unreachable();
}

// "oneDNN 2.6.3, Open MPI 4.1.4"; what the build has
static std::string libraries() {
    std::string text = matmul_library();
    for (const std::string& library : {mpi_library(), nccl_library()})
        if (!library.empty()) text += (text.empty() ? "" : ", ") + library;
    return text;
}

static int run(Options& options) {
    if (options.help) fputs(help_text().c_str(), stdout);
    else if (options.version) fputs(version_text(libraries()).c_str(), stdout);
    if (options.help || options.version) return kExitDone;

    allow_many_files();
    Config& cfg = options.config;
    watch_for_hangs(cfg.run.hang_timeout);
    // exported weights are the FP32 masters; but llm.c has a version of its own for bf16
    if (options.export_to && !options.export_to->starts_with("llmc:") && cfg.run.precision != "fp64")
        cfg.run.precision = "fp32";
    if (options.export_to && launcher().world == 1) cfg.parallel = {};      // a checkpoint loads on any mesh
    const Precision& p = precision_of(cfg, !options.generate && !options.export_to);
    if (options.plan) return p.plan(cfg);
    return run_ranks(cfg, [&](Config c, const Mesh& mesh) {
        if (options.export_to) return p.export_model(c, mesh, *options.export_to);
        return options.generate ? p.generate(c, mesh, *options.generate) : p.train(c, mesh);
    });
}

static int run(int argc, char** argv) {
    Options options = parse_command_line(argc, argv);
    const bool only_prints = options.help || options.version || options.plan || options.generate;
    if (only_prints) end_with_reader();
    const int code = run(options);
    if (only_prints) finish_stdout();       // a training run goes on without its screen
    return code;
}

int main(int argc, char** argv) {
    limit_spinning(argv);
    return_freed_blocks();
    supervise();                    // returns in a child of this process
    receive_signals();
    const int code = run(argc, argv);
    ends_on_purpose();
    return code;
}
