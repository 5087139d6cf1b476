// The whole trainer over the emulated kernels against the CPU's: a few steps of a tiny GPT, with host code
// kept out of device memory.
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "test/fake_nvml.h"
#include "test/program.h"

using std::string;
using namespace test;

// Heads of 32, a vocabulary that fills no part, an odd number of positions; two micro-batches a step.
static string config(const string& name) {
    return tiny_program_config(name, {{"model", {{"context", 33}, {"vocab", 500}}},
                                      {"train", {{"steps", 3}, {"batch_tokens", 132}, {"micro_batch", 2}}},
                                      {"eval", {{"every", 3}, {"batches", 1}}},
                                      {"checkpoint", {{"every", 3}}}});
}

static Ran on_cpu(const string& name, const string& args = "") {
    return run(build_folder() + "/train_gpt " + config(name) + " " + args);
}
static Ran emulated(const string& name, const string& args = "", const string& settings = "") {
    return run("EMU_HOST=refuse EMU_RED_ZONES=256 " + settings + " " + build_folder() +
               "/emulated/train_gpt " + config(name) + " " + args);
}

// Under AddressSanitizer a step takes ten times as long: there, each level and several ranks have to do.
static bool slow() {
    if (kAddressSanitizer) skip("the steps of other tests here are looked at");
    return kAddressSanitizer;
}

static void expect_done(const Ran& ran, const string& what) {
    EXPECT(ran.code == 0, "%s: exit code %d, '%s'", what.c_str(), ran.code, ran.err.c_str());
}

// Losses and norms of all steps, and the losses of validation.
static std::vector<double> figures_of(const string& name) {
    std::vector<double> figures;
    for (const json& row : rows_of(name, "train"))
        for (const char* key : {"loss", "norm"}) figures.push_back(row[key]);
    for (const json& row : rows_of(name, "val")) figures.push_back(row["loss"]);
    return figures;
}

// The figures to the last bit, and every byte of the weights and moments after the last step.
static string bits_of(const string& name, int step = 3) {
    string text;
    for (const double x : figures_of(name)) text += std::to_string(std::bit_cast<uint64_t>(x)) + "\n";
    return text + text_of(folder(name) + "/step_" + std::to_string(step) + "/rank_00000.safetensors");
}

static const double kTolerance[] = {1e-5, 2e-3};

// What others are compared with: run once.
static string cpu_run(const string& precision) {
    if (!there(folder(precision))) expect_done(on_cpu(precision, "--run.precision=" + precision), precision);
    return precision;
}
static string emulated_run(const string& precision) {
    const string name = precision + "_none";
    if (!there(folder(name))) expect_done(emulated(name, "--run.precision=" + precision), name);
    return name;
}

TEST(steps_equal_the_cpus_at_each_recompute_level) {
    for (const string precision : {"fp32", "bf16"}) {
        const string bits = bits_of(emulated_run(precision)), set = "--run.precision=" + precision;
        const auto expected = figures_of(cpu_run(precision));
        const double apart = largest_difference(figures_of(emulated_run(precision)), expected);
        EXPECT(expected.size() == 8, "%zu figures", expected.size());
        EXPECT(apart <= kTolerance[precision == "bf16"], "%s: %.2g apart", precision.c_str(), apart);
        for (const string level : {"selective", "block"}) {
            const string name = precision + "_" + level;
            expect_done(emulated(name, set + " --memory.recompute=" + level), name);
            EXPECT(bits_of(name) == bits, "%s: other bits", name.c_str());
        }
    }
}

TEST(two_runs_are_bit_identical_in_any_order) {
    if (slow()) return;
    struct { const char *name, *settings, *options; } runs[] = {
        {"again", "", ""}, {"reverse", "EMU_ORDER=reverse EMU_ASYNC=issue", ""},
        {"offloaded", "EMU_STREAMS=lazy", " --memory.offload=optimizer"},   // a missing wait shows here
        {"hosted", "EMU_STREAMS=lazy", " --memory.offload=activations"},
        {"random", "EMU_ORDER=random:7 EMU_STREAMS=lazy", ""}};
    for (const auto& [name, settings, options] : runs) {
        expect_done(emulated(name, string("--run.precision=bf16") + options, settings), name);
        EXPECT(bits_of(name) == bits_of(emulated_run("bf16")), "%s", name);
    }
}

// Each further step costs the host one wait, for the previous step's statistics, with a whole step enqueued.
TEST(the_host_waits_for_no_step) {
    if (slow()) return;
    const auto waits_of = [](int steps, std::vector<int>* left) {
        const string name = "waits" + std::to_string(steps), file = folder(name + ".txt");
        expect_done(emulated(name, "--run.precision=bf16 --eval.every=0 --checkpoint.every=0 --train.steps=" +
                             std::to_string(steps), "EMU_STREAMS=lazy EMU_WAITS=" + file), name);
        EXPECT(rows_of(name, "train").size() == size_t(steps));
        std::map<string, int> calls;
        std::istringstream lines(text_of(file));
        for (string line; std::getline(lines, line);) {
            const size_t end = line.rfind(' ');
            if (line.starts_with("cudaEventSynchronize")) left->push_back(std::stoi(line.substr(end)));
            else calls[line.substr(0, end)]++;
        }
        return calls;
    };
    std::vector<int> left, left_of_more;
    auto few = waits_of(3, &left), many = waits_of(7, &left_of_more);
    EXPECT(left.size() == 3 && left_of_more.size() == 7, "%zu in 3 steps, %zu in 7", left.size(),
           left_of_more.size());
    for (size_t i = 0; i + 1 < left_of_more.size(); i++)        // at the end only the last update
        EXPECT(left_of_more[i] > 5 * left_of_more.back(), "step %zu: %d operations are left, %d at the end",
               i, left_of_more[i], left_of_more.back());
    for (const auto& [call, count] : many)
        EXPECT(few[call] == count, "%s: %d in 3 steps, %d in 7", call.c_str(), few[call], count);
}

TEST(a_run_goes_on_bit_for_bit) {
    if (slow()) return;
    expect_done(emulated("resumed", "--run.precision=bf16 --train.steps=2 --checkpoint.every=2 "
                         "--optimizer.schedule=constant"), "2 steps");
    expect_done(emulated("resumed", "--run.precision=bf16 --optimizer.schedule=constant"), "the rest");
    expect_done(emulated("whole", "--run.precision=bf16 --optimizer.schedule=constant "
                         "--checkpoint.async=false"), "at once");
    const string file = "/step_3/rank_00000.safetensors", bytes = text_of(folder("whole") + file);
    EXPECT(!bytes.empty() && text_of(folder("resumed") + file) == bytes);
}

// A text from the trained weights, and an export that reads itself back.
TEST(it_generates_and_exports_what_the_cpu_does) {
    if (slow()) return;
    const string text = folder("text.txt"), tokenizer = folder("tokenizer.json");
    std::ofstream(text) << text_of("README.md");
    const Ran made = run("./tokenize train --vocab=500 --out=" + tokenizer + " " + text);
    EXPECT(made.code == 0, "%s", made.err.c_str());
    const string set = "--data.tokenizer=" + tokenizer + " --model.init=" + folder(emulated_run("fp32")) +
                       "/step_3 --run.precision=fp32 ";
    const Ran here = emulated("text", set + "--sample.tokens=6 --generate=the");
    const Ran there = on_cpu("text", set + "--sample.tokens=6 --generate=the");
    expect_done(here, "generate"), expect_done(there, "generate on the CPU");
    EXPECT(here.out == there.out && here.out.starts_with("the"), "'%s', '%s'", here.out.c_str(),
           there.out.c_str());
    expect_done(emulated("text", set + "--export=llmc:" + folder("out.bin")), "export");
}

TEST(ranks_that_are_threads_equal_one) {
    for (const char* mesh : {"--parallel.zero=1", "--parallel.zero=3 --memory.offload=optimizer",
                             "--parallel.tp=2", "--parallel.pp=2"}) {
        const string set = string("--run.precision=fp32 --train.micro_batch=1 --parallel.ranks=2 ") + mesh;
        const string name = "ranks" + std::to_string(std::hash<string>()(mesh) % 1000);
        expect_done(emulated(name, set), set);
        const double apart = largest_difference(figures_of(name), figures_of(cpu_run("fp32")));
        EXPECT(apart <= kTolerance[0], "%s: %.2g apart", set.c_str(), apart);
    }
}

// As on a GPU: kernels are timed, and the choices are kept for other runs.
static string as_a_gpu(const string& cache) {
    return "XDG_CACHE_HOME=" + folder(cache) + " EMU_NAME='NVIDIA Test'";
}

// Timed once, by rank 0, and what was chosen stays with the run.
TEST(kernels_are_chosen_once_and_kept) {
    if (slow()) return;
    const string gpu = as_a_gpu("cache"), set = "--run.precision=bf16 --train.steps=2";
    expect_done(emulated("chosen", set, gpu), "first");
    const string chosen = folder("chosen") + "/kernels.txt", text = text_of(chosen);
    for (const char* part :
         {"BF16, cuBLASLt ", ", NVIDIA Test\n", "\nforward 66 ", "\nattention_keys 2 33 2 32 "})
        EXPECT(text.find(part) != string::npos, "no '%s' in %s", part, text.c_str());
    const string foreign = "BF16, cuBLASLt 1, another GPU\nattention_keys 2 33 2 32 64x64\n\n";
    const auto started_with = [&](const string& name, const string& kernels, const string& more) {
        std::filesystem::create_directories(folder(name));
        std::ofstream(folder(name) + "/kernels.txt") << kernels;
        expect_done(emulated(name, set + more, gpu), name);
        return text_of(folder(name) + "/kernels.txt");
    };
    EXPECT(started_with("same", text + foreign, "") == text + foreign, "chosen anew");
    EXPECT(bits_of("same", 2).size() > 1000 && bits_of("same", 2) == bits_of("chosen", 2));
    const string both = started_with("other", foreign, "");
    EXPECT(both.ends_with(foreign) && both.size() > foreign.size(), "%s", both.c_str());
    EXPECT(started_with("two", text, " --train.micro_batch=1 --parallel.ranks=2").size() > text.size());
    expect_done(emulated("plain", set), "no GPU");
    EXPECT(!there(folder("plain") + "/kernels.txt"), "the emulation times its kernels");
}

TEST(other_runs_of_this_machine_do_as_the_first) {
    if (slow()) return;
    const string gpu = as_a_gpu("kept"), set = "--run.precision=bf16 --train.steps=1";
    const string way = "attention_keys 2 33 2 32 ";
    expect_done(emulated("first", set, gpu), "first");
    const string kept = std::filesystem::directory_iterator(folder("kept") + "/train_gpt")->path();
    EXPECT(!kept.ends_with("/kernels.txt"), "a file that names no candidates");
    string text = text_of(kept);
    EXPECT(!text.empty() && text_of(folder("first") + "/kernels.txt") == text, "%s", text.c_str());
    const size_t at = text.find(way) + way.size(), end = text.find('\n', at);
    text.replace(at, end - at, text.substr(at, end - at) == "64x64" ? "128x32" : "64x64");
    std::ofstream(kept) << text;
    expect_done(emulated("second", set, gpu), "second");
    EXPECT(text_of(folder("second") + "/kernels.txt") == text, "it timed for itself");
    std::filesystem::rename(kept, folder("kept") + "/train_gpt/kernels_00000000.txt");
    expect_done(emulated("fourth", set, gpu), "fourth");
    EXPECT(there(kept), "it believes choices among other candidates");
    expect_done(emulated("third", set, "XDG_CACHE_HOME=/proc/none EMU_NAME='NVIDIA Test'"), "not writable");
    EXPECT(there(folder("third") + "/kernels.txt"));
}

// Device memory at the end against the plan, for a model large enough to neglect the alignment of tensors.
// The plan leaves two pages of 2 MB for page tables.
TEST(memory_of_the_device_is_as_planned) {
    if (slow()) return;
    for (const char* args : {"--run.precision=fp32", "--run.precision=bf16 --parallel.ranks=2"}) {
        const string more = " --model.channels=256 --train.steps=1 --eval.every=0";
        expect_done(emulated("memory", args + more), args);
        const double plan = rows_of("memory", "start").at(0)["plan_bytes"],
                     peak = rows_of("memory", "done").at(0)["peak_bytes"];
        EXPECT(plan > 10e6 && plan < 200e6, "%s: a plan of %.0f bytes", args, plan);
        EXPECT(peak <= plan && peak >= 0.98 * plan - (4 << 20), "%s: a peak of %.0f bytes, %.0f planned",
               args, peak, plan);
        std::filesystem::remove_all(folder("memory"));
    }
}

// The whole trainer: two ranks on an emulated GPU report the joules of one GPU; on a CPU, no joules.
TEST(a_run_logs_joules) {
    const string path = fake_nvml("run", true, true);
    const string with = "LD_LIBRARY_PATH=" + path.substr(0, path.rfind('/')) + " " + build_folder();
    for (const string ranks : {"1", "2"}) {
        const string name = "gpu" + ranks, set = tiny_program_config(name) + " --run.precision=fp32 "
            "--train.steps=3 --eval.every=0 --model.channels=32 --model.heads=1 --parallel.ranks=" + ranks;
        const Ran ran = run(with + "/emulated/train_gpt " + set);
        EXPECT(ran.code == 0, "%s", ran.err.c_str());
        double sum = 0;
        for (const json& row : rows_of(name, "train")) {
            if (!row.contains("joules")) { EXPECT(false, "%s", row.dump().c_str()); continue; }
            const double joules = row["joules"], tokens = double(row["tokens"]) / double(row["step"]);
            const double readings = joules / 250;       // how many there were
            EXPECT(readings > 0.9 && readings < 3.1, "%s", row.dump().c_str());
            EXPECT_NEAR(readings, std::round(readings), 1e-6);
            EXPECT_NEAR(double(row["joules_per_token"]) * tokens, joules, 1e-6 * joules);
            sum += joules;
        }
        for (const string& words : {string("J/token"),
                                    fmt::format("energy  {:.4g} kJ of the GPU", 1e-3 * sum),
                                   string(" J a token")})
            EXPECT(ran.out.find(words) != string::npos, "no '%s' in %s", words.c_str(), ran.out.c_str());
    }
    const Ran cpu = run(with + "/train_gpt " + tiny_program_config("cpu") + " --train.steps=1");
    EXPECT(cpu.code == 0 && cpu.out.find("J/token") == string::npos && rows_of("cpu", "train").size() == 1 &&
           !rows_of("cpu", "train")[0].contains("joules"), "%s%s", cpu.out.c_str(), cpu.err.c_str());
}

TEST(it_says_what_it_is_built_for) {
    expect_done(emulated("named", "--run.device=emulated --train.steps=0"), "run.device=emulated");
    EXPECT(rows_of("named", "start")[0]["device"].get<string>().starts_with("emulated sm_"));
    const Ran other = emulated("other", "--run.device=cpu");
    EXPECT(other.code == 78 && other.err.find("built for emulated") != string::npos &&
           other.err.find("make DEVICE=cpu") != string::npos, "code %d, '%s'", other.code, other.err.c_str());
    const Ran fp64 = emulated("fp64", "--run.precision=fp64");
    EXPECT(fp64.code == 78 && fp64.err.find("one of auto, fp32, bf16") != string::npos, "code %d, '%s'",
           fp64.code, fp64.err.c_str());
}

// dev/cuda_kernels.cpp: the launches of steps, without tuning and evaluations.
TEST(kernels_of_steps_are_timed) {
    if (slow()) return;
    const Ran ran = run("COPY_GBPS=10 MATMUL_TFLOPS=0.1 " + as_a_gpu("timed") + " " +
                        build_folder() + "/emulated/cuda_kernels " +
                        config("kernels") + " --run.precision=bf16 --train.steps=2 --checkpoint.every=0");
    expect_done(ran, "cuda_kernels");
    std::istringstream lines(ran.out);
    int products = 0, forward = 0, per_step = 0, compared = 0;
    for (string line; std::getline(lines, line);) {
        if (!line.starts_with("= ")) continue;
        const json row = json::parse(line.substr(2), nullptr, false);
        EXPECT(!row.is_discarded(), "%s", line.c_str());
        if (row.contains("gaps_us_per_step")) per_step += row["kernels_us_per_step"] > 0;
        else if (row["kernel"] == "cuBLASLt") products++;
        else if (row["kernel"].get<string>().find("attention_mma_forward_kernel") != string::npos)
            forward += int(row["calls"]);
        if (!row.contains("times_floor")) continue;
        const double us = row["us"], mb = row["floor_MB"], gflop = row["floor_GFLOP"];
        const double floor_us = std::max(mb * 100, gflop * 1e4);
        if (us < 1 || floor_us < 10) continue;
        EXPECT_NEAR(double(row["times_floor"]) * floor_us / us, 1, 0.1);
        compared++;
    }
    EXPECT(per_step == 1 && products > 2, "%d sums, %d kinds of products: %s", per_step, products,
           ran.out.c_str());
    EXPECT(compared > 0, "no time against its floor in %s", ran.out.c_str());
    EXPECT(forward == 2 * 2 * 2, "%d forwards of 2 layers, 2 micro-batches and 2 steps", forward);
}
