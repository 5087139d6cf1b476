// Reads the command line, picks the precision, and calls the program: train() in train_gpt.cu, or a function
// of train/run/programs.cpp.
#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/config/options.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/obituary.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/guard/signals.h"
#include "llmc/base/guard/supervisor.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/host/openmp.h"
#include "llmc/base/host/version.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/agents/agent.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/launch/meeting.h"
#include "llmc/comm/transport/mpi.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/model/depth.h"
#include "llmc/ops/cpu/products/dnnl.h"
#include "llmc/train/explore/explore.h"
#include "llmc/train/log/rank_file.h"
#include "llmc/train/plan/plan.h"
#include "llmc/train/run/export_place.h"
#include "llmc/train/run/programs.h"
#include "llmc/train/save/adopt.h"
#include "llmc/train/save/formats/formats.h"
#include "llmc/train/save/resume.h"
#include "llmc/train/save/run_folder.h"
#include "llmc/train/watch/watch.h"
#include "llmc/train/watch/write_report.h"

struct Precision {
    const char* name;
    int (*train)(Config, const Mesh&);
    int (*plan)(Config, const PlanRequest&);
    Planner planner;
    int (*generate)(Config, const Mesh&, const Prompt&);
    int (*evaluate)(Config, const Mesh&);
    int (*export_model)(Config, const Mesh&, const std::string&, bool overwrite);
};
static constexpr Precision precisions[] = {
    {"fp32", fp32::train, fp32::plan, {fp32::planned, fp32::estimate, fp32::drawn_step}, fp32::generate,
     fp32::evaluate, fp32::export_model},
    {"bf16", bf16::train, bf16::plan, {bf16::planned, bf16::estimate, bf16::drawn_step}, bf16::generate,
     bf16::evaluate, bf16::export_model},
#ifdef HAVE_FP64       // on the CPU
    {"fp64", fp64::train, fp64::plan, {fp64::planned, fp64::estimate, fp64::drawn_step}, fp64::generate,
     fp64::evaluate, fp64::export_model},
#endif
};

// auto: the precision of the checkpoint to resume, else the machine's fast precision.
static const Precision& precision_of(Config& cfg, bool goes_on) {
    Foreseen saved = {};
    if (cfg.run.precision == RunPrecision::Auto && goes_on) saved = foresee_origin(cfg);
    const bool fast = std::string_view(built_device) == "cuda" || bf16_is_fast();
    if (saved.origin) cfg.run.precision = saved.origin->settings.run.precision;
    const bool needs_bf16 = cfg.run.products == ProductKind::Fp8 || !cfg.optimizer.master;
    if (cfg.run.precision == RunPrecision::Auto)
        cfg.run.precision = fast || needs_bf16 ? RunPrecision::Bf16 : RunPrecision::Fp32;
    std::string names = "auto";
    for (const Precision& p : precisions)
        if (names += std::string(", ") + p.name; cfg.run.precision.text() == p.name) return p;
    CHECK_INPUT(false, "run.precision = '{}': one of {} in a program built for {}",
                cfg.run.precision.text(), names, built_device);
    __builtin_unreachable();
}

// Of a plan; a plan for GPUs is in bf16, or in fp32 where that is asked for.
static const Precision& precision_to_plan(Config& cfg) {
    const ClusterConfig& c = cfg.cluster;
    const bool on_gpu = c.named() && !c.measured();
    CHECK_INPUT(!on_gpu || cfg.run.precision != RunPrecision::Fp64,
                "run.precision = fp64: a plan for GPUs is in bf16 or fp32, as programs built for GPUs have "
                "no fp64; choose one of these, or leave out cluster.{} for a plan of this machine",
                c.gpu.empty() ? "file" : "gpu");
    if (on_gpu && cfg.run.precision == RunPrecision::Auto) cfg.run.precision = RunPrecision::Bf16;
    return precision_of(cfg, true);
}

// "oneDNN 2.6.3, Open MPI 4.1.4": libraries of the build
static std::string libraries() {
    std::string text = matmul_library();
    for (const std::string& library : {mpi_library(), nccl_library()})
        if (!library.empty()) text += (text.empty() ? "" : ", ") + library;
    return text;
}

// Before any check: applies model.depth, then takes over settings of the model that this command reads.
// --generate, --evaluate and --export do not train, so any batch is valid.
static void adopt_model(Options& options) {
    Config& cfg = options.config;
    apply_depth(cfg);
    if (options.report) return;
    if (options.export_to) check_export_format(*options.export_to);
    if (!options.export_to && !options.generate && !options.evaluate)
        return adopt_open_model(cfg, launcher().rank == 0, options.plan ? Opens::Shape : Opens::Model);
    const std::string init = cfg.model.init;
    if (init != "" && !starts_random(init)) adopt_whole_model(cfg, model_of(init));
    const int64_t ranks = std::max({1, cfg.parallel.ranks, launcher().world});
    cfg.train = no_training(cfg.model.context * ranks);
}

static int run(Options& options) {
    if (options.help) print("{}", help_text(help_on_formats(), options.config_path));
    else if (options.version) print("{}", version_text(libraries()));
    if (options.help || options.version) return kExitDone;
    if (options.watch) return watch_runs(*options.watch, {options.port, options.host});
    if (options.report && options.runs.empty()) options.runs = {options.config.run.dir};
    if (options.report) return write_report(options.runs, *options.report);

    if (options.explore) {
        const auto planner_of = [](Config& cfg) { return precision_to_plan(cfg).planner; };
        const std::string command = with_settings(options.program, options.settings);
        return explore({options.config, command, planner_of}, {options.port, options.host});
    }

    allow_many_files();
    Config& cfg = options.config;
    if (options.export_to) check_export_place(*options.export_to, cfg, options.config_path);
    set_hang_timeout(cfg.run.hang_timeout);
    // exports write the FP32 masters; some formats also write bf16, if run.precision names bf16
    if (const auto& to = options.export_to; to && cfg.run.precision != RunPrecision::Fp64 &&
        !(format_of(*to)->writes_bf16 && cfg.run.precision == RunPrecision::Bf16))
        cfg.run.precision = RunPrecision::Fp32;
    if (options.export_to) cfg.run.products = ProductKind::Bf16;            // nothing is multiplied
    if (options.export_to && launcher().world == 1) cfg.parallel = {};      // a checkpoint loads on any mesh
    if (options.plan) {
        check_processes(cfg, "--plan");
        // scripts read the settings; a person at a terminal asks for them
        const bool full = *options.plan == "full" || !on_terminal(1);
        const PlanRequest request = {.search = *options.plan == "search", .full = full, .json = options.json,
                                     .program = options.program, .settings = options.settings};
        const int code = precision_to_plan(cfg).plan(cfg, request);
        leave_processes();
        return code;
    }
    const auto body = [&](Config c, const Mesh& mesh) {
        const auto& to = options.export_to;
        const bool trains = !to && !options.generate && !options.evaluate;
        std::optional<RunLock> lock;
        if (trains) lock.emplace(c.run.dir, mesh.world);
        const RankFile ranks(c, mesh, trains);
        if (to) return precision_of(c, false).export_model(c, mesh, *to, options.overwrite);
        if (options.generate) {
            const Prompt prompt{*options.generate, options.chat, options.system};
            return precision_of(c, false).generate(c, mesh, prompt);
        }
        if (options.evaluate) return precision_of(c, false).evaluate(c, mesh);
        const Precision& p = precision_of(c, true);
        check_mesh(c, mesh.world.size);         // with the precision of a checkpoint
        return p.train(c, mesh);
    };
    std::string task;                           // the same on every rank
    if (options.export_to) task = "--export=" + *options.export_to;
    if (options.generate) task = "--generate=" + *options.generate + (options.chat ? " --chat" : "");
    if (options.system) task += " --system=" + *options.system;
    if (options.evaluate) task = "--evaluate=" + *options.evaluate;
    return run_ranks(cfg, body, task);
}

static int run(int argc, char** argv) {
    Options options = parse_command_line(argc, argv, adopt_model);
    const bool only_prints = options.help || options.version || options.plan || options.generate ||
                             options.evaluate || options.report;
    if (only_prints) {
        end_with_reader();
        show_all_output();
    }
    if (only_prints || options.export_to) signals_as_usual();
    const int code = run(options);
    if (only_prints) finish_stdout();       // a training run continues without a screen
    return code;
}

int main(int argc, char** argv) {
    open_standard_streams();
    meet_limits();
    hold_signals();
    return_freed_blocks();
    end_without_memory("error: out of memory; see `ulimit -v` and the limits of the container\n");
    if (const int code = be_agent(argc, argv, adopt_model); code >= 0) return code;
    supervise();                    // returns in a child of this process, which starts anew
    limit_spinning(argv, keep_progress_page);
    receive_signals();
    context.rank = launcher().rank;
    const int code = run(argc, argv);
    ends_on_purpose();
    return code;
}
