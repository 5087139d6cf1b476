// Trainings over NCCL, on emulated GPUs with a rank each, against one rank: losses, norms and weights.
#include <cmath>
#include <filesystem>

#include "test/program.h"

using std::string;
using namespace test;

static Ran trained(const string& name, const string& args, const string& settings = "") {
    const string config = tiny_program_config(
        name, {{"model", {{"layers", 3}, {"context", 17}, {"vocab", 500}}},
               {"train", {{"steps", 3}, {"batch_tokens", 68}, {"micro_batch", 1}}},
               {"eval", {{"every", 3}, {"batches", 1}}},
               {"checkpoint", {{"every", 3}}}});
    return run("EMU_HOST=refuse " + settings + " " + build_folder() + "/emulated/train_gpt " + config +
               " --run.precision=fp32 " + args);
}

static std::vector<double> figures_of(const string& name) {
    std::vector<double> figures;
    for (const json& row : rows_of(name, "train"))
        for (const char* key : {"loss", "norm"}) figures.push_back(row[key]);
    for (const json& row : rows_of(name, "val")) figures.push_back(row["loss"]);
    EXPECT(figures.size() == 8, "%s: %zu figures", name.c_str(), figures.size());
    return figures;
}

static string bits_of(const string& name) {
    string text;
    for (const double x : figures_of(name)) text += std::to_string(std::bit_cast<uint64_t>(x)) + "\n";
    for (int r = 0; r < 2; r++)
        text += text_of(folder(name) + "/step_3/rank_0000" + std::to_string(r) + ".safetensors");
    return text;
}

static void expect_done(const Ran& ran, const string& what) {
    EXPECT(ran.code == 0, "%s: exit code %d, '%s'", what.c_str(), ran.code, ran.err.c_str());
}

static const string kNccl = "--parallel.transport=nccl --parallel.ranks=2 ";

TEST(two_ranks_equal_one) {
    expect_done(trained("one", ""), "one rank");
    const struct { const char *name, *mesh; } runs[] = {
        {"zero1", "--parallel.zero=1"}, {"zero3", "--parallel.zero=3 --parallel.reduce_dtype=fp32"},
        {"tp", "--parallel.tp=2"},      {"pp", "--parallel.pp=2"}};
    for (const auto& [name, mesh] : runs) {
        expect_done(trained(name, kNccl + mesh), mesh);
        const double apart = largest_difference(figures_of(name), figures_of("one"));
        EXPECT(apart <= 1e-5, "%s: %.2g apart", mesh, apart);
    }
}

// Sums in the order of the ranks are the same, whoever carries the slices.
TEST(ordered_sums_equal_those_between_threads) {
    if (kAddressSanitizer) return skip("the other tests here go over the same code");
    for (const string mesh : {"--parallel.zero=2", "--parallel.tp=2"}) {
        const string set = mesh + " --parallel.reduce=ordered ";
        expect_done(trained("threads", set + "--parallel.transport=threads --parallel.ranks=2"), set);
        expect_done(trained("nccl", set + kNccl), set);
        EXPECT(bits_of("nccl").size() > 1000 && bits_of("nccl") == bits_of("threads"), "%s", mesh.c_str());
        for (const char* name : {"nccl", "threads"}) std::filesystem::remove_all(folder(name));
    }
}

// What a rank has started and not awaited may run at any time in between.
TEST(overlap_changes_no_bit) {
    if (kAddressSanitizer) return skip("the other tests here go over the same code");
    const string mesh = kNccl + "--parallel.zero=3 ";
    expect_done(trained("awaited", mesh + "--parallel.overlap=false"), "no overlap");
    const string bits = bits_of("awaited");
    const struct { const char *name, *settings; } runs[] = {{"eager", ""},
                                                           {"late", "EMU_STREAMS=lazy"},
                                                           {"early", "EMU_STREAMS=lazy EMU_NCCL=issue"}};
    for (const auto& [name, settings] : runs) {
        expect_done(trained(name, mesh, settings), name);
        EXPECT(bits.size() > 1000 && bits_of(name) == bits, "%s: other bits", name);
    }
}

// Enough tensors that the ranks' sums of squares, and the gradients summed over tp, differ in number.
TEST(ranks_lay_out_memory_alike) {
    if (kAddressSanitizer) return skip("the other tests here go over the same code");
    const string set = "--parallel.transport=nccl --model.layers=12 --train.steps=1 --parallel.tp=2 ";
    for (const char* mesh : {"--parallel.ranks=2", "--parallel.ranks=4 --parallel.zero=2"})
        expect_done(trained("alike", set + mesh), mesh);
}

// As on GPUs, where rank 0 takes memory and times kernels while the other ranks wait for its choice.
TEST(kernels_are_tuned_while_no_collective_waits) {
    if (kAddressSanitizer) return skip("the other tests here go over the same code");
    expect_done(trained("tuned", kNccl + "--parallel.tp=2 --train.steps=1",
                        "XDG_CACHE_HOME=" + folder("cache") + " EMU_NAME='NVIDIA Test'"), "tuned");
    EXPECT(there(folder("tuned") + "/kernels.txt"));
}

TEST(the_table_says_which_gpu_and_too_few_are_an_error) {
    const Ran ran = trained("table", kNccl + "--train.steps=0 --parallel.pp=2");
    EXPECT(ran.code == 0 && ran.out.find("cuda 1") == string::npos &&
           ran.out.find("emulated 1, ") != string::npos, "%s", ran.out.c_str());
    const Ran few = trained("few", kNccl, "EMU_DEVICES=1");
    EXPECT(few.code == 78 && few.err.find("ranks 0 and 1 are both on the GPU") != string::npos, "%d: %s",
           few.code, few.err.c_str());
}
