// scripts/gpu_check.sh on parts of the test's own; the tools that its parts run, emulated or on a CPU.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "test/script_helpers.h"

using nlohmann::json;
using test::Ran;

static Ran gpu_check(const std::string& parts, const std::string& options) {
    return test::run("BIN=" + made("bin") + " scripts/gpu_check.sh --run --parts=" + parts + " --results=" +
                     parts + "/results.json " + options);
}
static json results_of(const std::string& parts) {
    return json::parse(read(parts + "/results.json"), nullptr, false);
}
static json names_of(const json& results) {
    json names = json::array();
    for (const json& part : results["parts"]) names.push_back(part["part"]);
    return names;
}

static std::string some_parts(const std::string& name) {
    const std::string parts = made(name);
    const auto part = [&](const std::string& file, const std::string& body) {
        write(parts + "/" + file + ".sh", "# what: the \"" + file + "\"\n" + body);
    };
    part("10_good", "# limit: 20\n# quick: 20\necho 'not \\ \"one\"'\n"
         "echo '= {\"a\": 1.5, \"b\": \"two words\"}'\necho '= {\"c\": null}'\n");
    part("20_slow", "# limit: 1\necho '= {\"first\": true}'\nsleep 60 & wait\n");
    part("30_dies", "# limit: 20\n# quick: 20\necho 'last \"words\"'\nkill -SEGV $$\n");
    part("40_skips", "echo no such thing\nexit 77\n");
    part("50_fails", "# limit: 20\nexit 3\n");
    part("60_wrong", "# limit: 20\necho '= {\"rate\": nan}'\n");
    part("70_sees", "# limit: 20\n# quick: 20\necho \"= {\\\"quick\\\": $QUICK}\"\nfor i in {1..50}; do\n"
         "grep -q '\"quick\": [01]}\\]' " + parts + "/results.json && break\nsleep 0.1\ndone\n"
         "cp " + parts + "/results.json " + parts + "/seen.json\n");
    write(parts + "/helper.sh", "exit 1\n");
    return parts;
}

TEST(every_part_has_its_result) {
    const std::string parts = some_parts("all");
    const Ran ran = gpu_check(parts, "");
    EXPECT(ran.code == 1 && ran.err.empty(), "code %d, '%s'", ran.code, ran.err.c_str());
    const json results = results_of(parts);
    struct { const char *name, *status; int exit; } wanted[] = {
        {"good", "passed", 0}, {"slow", "out of time", 124}, {"dies", "crashed", 139},
        {"skips", "skipped", 77}, {"fails", "failed", 3}, {"wrong", "failed", 0}, {"sees", "passed", 0}};
    EXPECT(!results.is_discarded() && results["parts"].size() == std::size(wanted), "%s", ran.out.c_str());
    if (results.is_discarded() || results["parts"].size() != std::size(wanted)) return;
    for (size_t i = 0; i < std::size(wanted); i++) {
        const json& part = results["parts"][i];
        EXPECT(part["part"] == wanted[i].name && part["status"] == wanted[i].status &&
               part["exit"] == wanted[i].exit, "%s", part.dump().c_str());
        EXPECT(part["seconds"] < 15.0, "%s", part.dump().c_str());
    }
    EXPECT(results["parts"][0]["results"] == json::parse(R"([{"a": 1.5, "b": "two words"}, {"c": null}])"));
    EXPECT(results["parts"][1]["results"] == json::parse(R"([{"first": true}])"), "what came before is lost");
    EXPECT(results["parts"][2]["last_lines"] == "last \"words\"", "%s", results["parts"][2].dump().c_str());
    EXPECT(has(ran.out, "= {\"a\": 1.5") && has(ran.out, "not \\ \"one\"") && has(ran.out, "results.json"));
}

TEST(results_are_there_while_a_part_runs) {
    const std::string parts = some_parts("flushed");
    write(parts + "/80_later.sh", "# limit: 20\n");
    const Ran ran = gpu_check(parts, "--only=good,sees,later");
    const json seen = json::parse(read(parts + "/seen.json"), nullptr, false);
    EXPECT(ran.code == 0 && seen.is_object() && seen["parts"].size() == 3, "%s", ran.out.c_str());
    if (!seen.is_object() || seen["parts"].size() != 3) return;
    EXPECT(seen["parts"][1]["status"] == "running" && seen["parts"][1]["results"][0]["quick"] == 0 &&
           seen["parts"][2]["part"] == "later" && seen["parts"][2]["status"] == "not begun");
    EXPECT(results_of(parts)["parts"][2]["status"] == "passed");
}

TEST(parts_are_selected) {
    const std::string parts = some_parts("selected");
    EXPECT(gpu_check(parts, "--quick").code == 1);
    EXPECT(names_of(results_of(parts)) == json({"good", "dies", "sees"}));
    EXPECT(results_of(parts)["quick"] == true && results_of(parts)["parts"][2]["results"][0]["quick"] == 1);
    EXPECT(gpu_check(parts, "--only=skips").code == 0 && names_of(results_of(parts)) == json({"skips"}));
    write(parts + "/results.json", "mine");
    EXPECT(has(gpu_check(parts, "--only=skips").err, "no file of results"));
    const Ran unknown = gpu_check(parts, "--only=good,better");
    EXPECT(unknown.code == 78 && has(unknown.err, "no part better; there are: good slow"), "code %d, '%s'",
           unknown.code, unknown.err.c_str());
    EXPECT(gpu_check(parts, "--fast").code == 78);
    const Ran list = test::run("scripts/gpu_check.sh --list");
    for (const char* name : {"ceilings", "ptx", "ops", "fixture", "step", "kernels", "gemm", "attention",
                             "models", "traced", "repeats", "torch", "sanitizer"})
        EXPECT(has("\n" + list.out, "\n" + std::string(name) + " "), "no %s in %s", name, list.out.c_str());
}

TEST(all_parts_together_have_a_limit) {
    const std::string parts = made("limit");
    write_program(parts + "/10_long.sh", "# limit: 60\nsleep 6 & wait\n");
    write_program(parts + "/20_late.sh", "# limit: 60\nsleep 60 & wait\n");
    write_program(parts + "/30_last.sh", "# limit: 60\necho late\n");
    const Ran ran = gpu_check(parts, "--within=12");
    const json results = results_of(parts);
    EXPECT(ran.code == 1 && results["parts"].size() == 3, "%s", ran.out.c_str());
    if (results["parts"].size() != 3) return;
    EXPECT(results["parts"][0]["status"] == "passed" && results["parts"][1]["status"] == "out of time" &&
           results["parts"][2]["status"] == "skipped", "%s", results.dump().c_str());
    EXPECT(has(results["parts"][2].dump(), "no time left of 12 s"), "%s", results.dump().c_str());
}

TEST(limits_of_the_parts_fit_together) {
    int sum[2] = {};
    for (const auto& entry : std::filesystem::directory_iterator("scripts/gpu_check")) {
        std::stringstream lines(read(entry.path()));
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("# limit: ")) sum[0] += atoi(line.c_str() + 9);
            if (line.starts_with("# quick: ")) sum[1] += atoi(line.c_str() + 9);
        }
    }
    EXPECT(sum[0] > 300 && sum[0] <= 470, "%d s", sum[0]);
    EXPECT(sum[1] > 60 && sum[1] <= 115, "quick: %d s", sum[1]);
}

// A stand-in for the trainer: traced steps take 101 ms, of which events of the GPU cover 90.
static const std::string kTracer = R"sh(
for a; do
    case $a in --run.dir=*) to=${a#*=} ;; --train.steps=*) n=${a#*=} ;; --log.trace=*) all=${a#*=} ;; esac
done
event() { echo "{\"ts\":$1,\"dur\":$2,\"ph\":\"X\",\"pid\":$3,\"tid\":$4,\"cat\":\"op\",\"name\":\"x\"},"; }
lane() { echo "{\"pid\":0,\"tid\":$1,\"name\":\"thread_name\",\"args\":{\"name\":\"$2\"}},"; }
mkdir -p "$to" && echo '{"micro_batch": 4}' >"$to/config.json"
for ((s = 1; s <= n; s++)); do
    ms=100
    if [[ $all =~ [^0-9]$s[^0-9] ]]; then
        ms=101
        { lane 0 host; lane 1 GPU; lane 2 dp.all_reduce; event 0 60000 0 0; event 500 90000 0 1
          event 1000 5000 0 0; event 1000 99000 1 0; event 2000 98000 0 2
          event 60000 $LAST 0 0; } >"$to/trace_step_$s.json"
    fi
    echo "{\"event\":\"train\",\"step\":$s,\"loss\":2,\"ms\":$ms,\"tokens_per_s\":9,\"mfu\":null}"
done >"$to/metrics.jsonl"
)sh";

TEST(traced_steps_are_measured) {
    const std::string dir = made("traced");
    write_program(dir + "/train_gpt", kTracer);
    write(dir + "/text_train_000000.bin", "");
    const auto part = [&](int last) {
        return test::run("LAST=" + std::to_string(last) + " BIN=" + dir + " WORK=" + dir +
                         " bash scripts/gpu_check/73_traced.sh");
    };
    const Ran ran = part(39000), gap = part(35000);
    EXPECT(ran.code == 0 && has(ran.out, R"(= {"traced_steps": 9, "traced_ms": 101.00, "other_ms": 100.00, )"
                                         R"("more": 0.0100, "host_covers": 0.9802, "gpu_covers": 0.8911})"),
           "exit %d: %s%s", ran.code, ran.out.c_str(), ran.err.c_str());
    EXPECT(gap.code == 1 && has(gap.out, "the host covers less than 95%"), "exit %d: %s", gap.code,
           gap.out.c_str());
}

TEST(attention_is_timed_where_l2_holds_no_keys) {
    const std::string part = read("scripts/gpu_check/65_attention.sh");
    for (const char* batch : {" --B=64\n", " --B=256\n"}) EXPECT(has(part, batch), "no%s", batch);
}

// Relative paths are the caller's; a named folder gets the file, dev/results stays unchanged.
TEST(results_are_kept_where_they_are_told) {
    const std::string parts = made("told"), script = std::filesystem::absolute("scripts/gpu_check.sh");
    write(parts + "/10_one.sh", "# limit: 20\necho '= {\"a\": 1}'\n");
    const std::string head =
        "cd " + parts + " && BIN=" + parts + " " + script + " --run --parts=. --results=";
    const std::string committed = test::run("ls dev/results").out;
    EXPECT(test::run(head + "deep/er/").code == 0);
    int files = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(parts + "/deep/er", error))
        files += has(read(entry.path()), "\"a\": 1");
    EXPECT(files == 1 && test::run("ls dev/results").out == committed, "%d files", files);
    EXPECT(test::run(head + "own/file.json").code == 0 && has(read(parts + "/own/file.json"), "\"a\": 1"));
}

// A toolkit without cuBLAS; wheels of two versions.
TEST(cublas_of_wheels_is_found) {
    const std::string parts = made("cublas"), toolkit = parts + "/toolkit", site = parts + "/site/nvidia";
    const auto results = [&](const char* home) {
        const std::string settings =
            "PYTHONPATH=" + parts + "/site CUDA_HOME=" + parts + home + " BIN=" + parts;
        const Ran ran = test::run(settings + " scripts/gpu_check.sh --run --parts=" + parts + " --results=" +
                                  parts + "/results.json");
        EXPECT(ran.code == 0, "%s%s", ran.out.c_str(), ran.err.c_str());
        return read(parts + "/results.json");
    };
    write(parts + "/10_paths.sh", "# limit: 20\necho \"= {\\\"path\\\": \\\"${LD_LIBRARY_PATH:-}\\\", "
          "\\\"links\\\": $(find -L \"${LIBRARY_PATH%%:*}\" -name 'libcublas*.so' 2>/dev/null | wc -l)}\"\n");
    for (const char* file : {"/cublas/lib/libcublas.so.12", "/cublas/lib/libcublasLt.so.12",
                             "/cu13/lib/libcublas.so.13", "/cu13/lib/libcublasLt.so.13"}) {
        std::filesystem::create_directories(std::filesystem::path(site + file).parent_path());
        write(site + file, "");
    }
    std::filesystem::create_directories(parts + "/other/lib64");
    write(parts + "/other/lib64/libcublasLt.so", "");
    std::filesystem::create_directories(toolkit);
    const std::string wheels = results("/toolkit");
    EXPECT(has(wheels, site + "/cu13/lib") && has(wheels, "\"links\": 2"), "%s", wheels.c_str());
    EXPECT(!has(results("/other"), site), "the toolkit's own is not taken");
}

static std::vector<json> figures_of(const Ran& ran) {
    std::vector<json> figures;
    std::stringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("= ")) continue;
        figures.push_back(json::parse(line.substr(2), nullptr, false));
        EXPECT(!figures.back().is_discarded(), "%s", line.c_str());
    }
    return figures;
}

TEST(candidates_are_timed) {
    const std::string bench = test::build_folder() + "/dev/cuda_bench ";
    struct { const char* options; size_t figures; const char* first; } runs[] = {
        {"ceilings --size=64", 2, "GBps"},
        {"gemm --B=1 --T=16 --C=64 --NH=2 --size=16", 48, "best_us"},
        {"attention --B=1 --T=70 --C=64 --NH=2 --size=16", 6, "kernel"}};
    for (const auto& [options, count, first] : runs) {
        const Ran ran = test::run(bench + options);
        const auto figures = figures_of(ran);
        EXPECT(ran.code == 0 && figures.size() == count && figures[0].contains(first), "code %d: %s%s",
               ran.code, ran.out.c_str(), ran.err.c_str());
        for (const json& figure : figures)
            EXPECT(figure.value("right", true), "wrong: %s", figure.dump().c_str());
    }
    EXPECT(test::run(bench + "speed").code == 78);
    EXPECT(figures_of(test::run(test::build_folder() + "/dev/cuda_goldens")).size() == 22);
}

// A GPU of the table keeps the table's links and price; another states every number.
TEST(a_machine_file_is_for_a_plan) {
    const std::string sizes = " --size=64 --B=1 --T=70 --C=64 --NH=2";
    struct { const char *name, *gpu; size_t keys; } const gpus[] = {
        {"NVIDIA H100 80GB HBM3", "h100", 10}, {"NVIDIA H100 PCIe", "h100_pcie", 10},
        {"NVIDIA A100-SXM4-40GB", "a100_40", 10}, {"NVIDIA H200 NVL", "NVIDIA H200 NVL", 18},
        {"NVIDIA A100-SXM4-80GB", "a100", 10}, {"NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe", 18},
        {"NVIDIA A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB", 18},
        {"NVIDIA GeForce RTX 5090", "rtx5090", 10}, {"NVIDIA L40S", "l40s", 10},
        {"NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA GeForce RTX 5090 Laptop GPU", 18}};
    for (const auto& [name, gpu, keys] : gpus) {
        const std::string file = made("machines") + "/" + name + ".json";
        const Ran ran = test::run("EMU_NAME='" + std::string(name) + "' " + test::build_folder() +
                                  "/dev/cuda_machine '" + file + "'" + sizes);
        const json machine = json::parse(read(file), nullptr, false);
        EXPECT(ran.code == 0 && machine.is_object() && machine.value("gpu", "") == gpu &&
               machine.size() == keys, "%s: code %d, %s%s", name, ran.code, ran.out.c_str(), ran.err.c_str());
        for (const char* dtype : {"bf16", "fp32"})
            EXPECT(machine.at("reached_by").at(dtype).size() == 3, "%s: %s", name, ran.out.c_str());
        for (const auto& [key, value] : machine.items())
            EXPECT(value.is_string() || value.is_object() || value > 0, "%s: %s = %s", name, key.c_str(),
                   value.dump().c_str());
        const std::string options = " --plan --json '--cluster.file=" + file + "'";
        const Ran plan = test::run("./train_gpt scripts/gpt2_124M.json" + options);
        EXPECT(plan.code == 0 && json::parse(plan.out, nullptr, false).value("step_seconds", 0.) > 0,
               "%s: code %d, %s", name, plan.code, plan.err.c_str());
    }
    EXPECT(test::run(test::build_folder() + "/dev/cuda_machine").code == 78);
}

TEST(a_machine_file_lies_beside_the_results) {
    const std::string parts = made("machine_part");
    write(parts + "/10_one.sh", "# limit: 20\necho whole >\"$MACHINE\"\n");
    EXPECT(gpu_check(parts, "").code == 0 && read(parts + "/machine_results.json") == "whole\n");
}

// On the CPU, with the smallest possible model.
TEST(a_run_has_its_figures) {
    const std::string bin = made("programs"), work = made("work");
    for (const char* program : {"train_gpt", "tokenize"})
        std::filesystem::create_symlink(std::filesystem::absolute(program), bin + "/" + program);
    write(work + "/tiny.json", R"({"model": {"layers": 1, "heads": 1, "channels": 16, "context": 32}})");
    write(work + "/part.sh", "source scripts/gpu_check/train.sh\n"
          "trained tiny $WORK/tiny.json 4 --train.batch_tokens=64 --train.micro_batch=1\n");
    const Ran ran = test::run("BIN=" + bin + " WORK=" + work + " bash " + work + "/part.sh");
    const auto figures = figures_of(ran);
    EXPECT(ran.code == 0 && figures.size() == 1, "code %d: %s%s", ran.code, ran.out.c_str(), ran.err.c_str());
    if (figures.size() != 1) return;
    const json& f = figures[0];
    EXPECT(f["run"] == "tiny" && f["tokens_per_s"] > 0 && f["ms"] > 0 && f["loss"] > 5 && f["loss"] < 15 &&
           f["planned_MB"] > 1 && f["used_MB"] > 1 && f["micro_batch"] == 1, "%s", f.dump().c_str());
}

TEST(a_model_that_does_not_fit_is_no_failure) {
    const std::string bin = made("programs_2"), work = made("work_2");
    for (const char* program : {"train_gpt", "tokenize"})
        std::filesystem::create_symlink(std::filesystem::absolute(program), bin + "/" + program);
    write(work + "/part.sh", "source scripts/gpu_check/train.sh\n"
          "trained_if_it_fits large scripts/gpt3_175B.json 1 --model.heads=$HEADS "
          "--train.batch_tokens=2048\n");
    const std::string part = " BIN=" + bin + " WORK=" + work + " bash " + work + "/part.sh";
    const Ran ran = test::run("HEADS=96" + part), wrong = test::run("HEADS=7" + part);
    const auto figures = figures_of(ran);
    EXPECT(ran.code == 0 && figures.size() == 1 && figures[0]["fits"] == false, "code %d: %s%s", ran.code,
           ran.out.c_str(), ran.err.c_str());
    EXPECT(wrong.code == 78 && figures_of(wrong).empty(), "code %d: %s", wrong.code, wrong.out.c_str());
}
