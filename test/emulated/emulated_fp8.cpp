// The whole trainer with run.products = fp8 over the emulated kernels against the CPU's: codes have the same
// bits, products differ in the order of their sums.
#include "test/program.h"

using std::string;
using namespace test;

// Sizes that are multiples of 16, on each of two ranks of tp too; two micro-batches a step.
static void train(const string& program, const string& name, const string& args) {
    const string config = tiny_program_config(
        name, {{"run", {{"precision", "bf16"}, {"products", "fp8"}}}, {"model", {{"vocab", 500}}},
               {"train", {{"steps", 2}, {"batch_tokens", 128}, {"micro_batch", 2}}},
               {"eval", {{"every", 2}, {"batches", 1}}}});
    const Ran ran = run("EMU_HOST=refuse EMU_RED_ZONES=256 " + build_folder() + program + " " + config + " " +
                        args);
    EXPECT(ran.code == 0, "%s: exit code %d, '%s'", name.c_str(), ran.code, ran.err.c_str());
}

// Losses and norms of all steps.
static std::vector<double> steps_of(const string& program, const string& name, const string& args) {
    train(program, name, args);
    std::vector<double> figures;
    for (const json& row : rows_of(name, "train"))
        for (const char* key : {"loss", "norm"}) figures.push_back(row[key]);
    return figures;
}
// And the loss of validation.
static std::vector<double> figures_of(const string& program, const string& name, const string& args = "") {
    std::vector<double> figures = steps_of(program, name, args);
    for (const json& row : rows_of(name, "val")) figures.push_back(row["loss"]);
    EXPECT(figures.size() == 6, "%s: %zu figures", name.c_str(), figures.size());
    return figures;
}
static const string kCpu = "/train_gpt", kEmulated = "/emulated/train_gpt";
static constexpr double kTolerance = 2e-3;

TEST(steps_in_fp8_equal_the_cpus) {
    const auto cpu = figures_of(kCpu, "cpu"), whole = figures_of(kEmulated, "none");
    EXPECT(largest_difference(whole, cpu) <= kTolerance, "%.2g apart", largest_difference(whole, cpu));
    for (const string level : {"selective", "block"})
        EXPECT(figures_of(kEmulated, level, "--memory.recompute=" + level) == whole, "%s: other bits",
               level.c_str());
    EXPECT(figures_of(kCpu, "bf16", "--run.products=bf16") != cpu, "FP8 has no effect");
}

// Scales of tensors that tp cuts, and codes of blocks that ZeRO 3 gathers.
TEST(meshes_in_fp8_equal_the_cpus) {
    for (const string mesh : {"--parallel.tp=2", "--parallel.zero=3 --train.micro_batch=1"}) {
        const string set = "--parallel.ranks=2 " + mesh;
        const double apart = largest_difference(figures_of(kEmulated, "here", set),
                                                figures_of(kCpu, "there", set));
        EXPECT(apart <= kTolerance, "%s: %.2g apart", set.c_str(), apart);
        for (const char* name : {"here", "there"}) std::filesystem::remove_all(folder(name));
    }
}

// Blocks come as codes, of the same scales: losses and norms have the bits of whole weights. A gather moves a
// byte an element, as over threads of a CPU.
TEST(gathered_codes_have_the_bits_of_whole_weights) {
    const string set = "--parallel.ranks=2 --log.comm=true --eval.every=0 --parallel.zero=";
    const auto bytes = [](const string& name) {
        std::vector<uint64_t> moved;
        for (const json& row : rows_of(name, "comm")) moved.push_back(row.at("shard.all_gather_bytes"));
        EXPECT(moved.size() == 2, "%s: %zu rows", name.c_str(), moved.size());
        return moved;
    };
    const auto whole = steps_of(kEmulated, "zero0", set + "0");
    const auto codes = steps_of(kEmulated, "zero3", set + "3");
    EXPECT(whole == codes, "losses %.9g and %.9g", whole[2], codes[2]);
    steps_of(kCpu, "zero3_cpu", set + "3");
    EXPECT(bytes("zero3") == bytes("zero3_cpu"));
    steps_of(kEmulated, "zero3_bf16", set + "3 --run.products=bf16");
    EXPECT(bytes("zero3")[1] < bytes("zero3_bf16")[1]);
}
