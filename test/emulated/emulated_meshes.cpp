// The trainer over the emulated kernels on every mesh of two to eight ranks, with a text at the end: the
// losses, gradient norms and texts of one rank.
//
// LATTICE=all runs each mesh at every stage of ZeRO over both transports; by default stages and transports
// alternate.
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "test/program.h"

using std::string;
using namespace test;

struct Mesh { int dp, tp, pp, virtual_stages = 1; };

// Sizes that no mesh divides: an odd context, and a token at a time in generation.
static Ran trained(const string& name, const string& args) {
    json changes = text_config();
    changes.merge_patch({{"model", {{"layers", 4}, {"heads", 4}, {"channels", 64}, {"context", 13}}},
                         {"train", {{"steps", 2}, {"batch_tokens", 4 * 13}, {"micro_batch", 1}}},
                         {"eval", {{"every", 2}, {"batches", 1}}},
                         {"sample", {{"every", 2}, {"tokens", 3}, {"temperature", 0}}},
                         {"checkpoint", {{"every", 0}}}});
    return run("EMU_HOST=refuse EMU_COMMS=" + folder("communicators") + " " + build_folder() +
               "/emulated/train_gpt " + tiny_program_config(name, changes) + " --run.precision=fp32 " + args);
}

// Each takes memory of the GPU and a share of what NCCL's kernels may have at once.
static void expect_all_used(const string& set) {
    std::istringstream lines(text_of(folder("communicators")));
    int all = 0;
    for (string line; std::getline(lines, line); all++)
        EXPECT(!line.ends_with(" 0"), "%s: communicator '%s' has no call", set.c_str(), line.c_str());
    EXPECT((all > 0) == (set.find("=nccl") != string::npos), "%s: %d communicators", set.c_str(), all);
    std::filesystem::remove(folder("communicators"));
}

struct Outcome { std::vector<double> figures; string texts; };

static Outcome outcome_of(const string& name) {
    Outcome o;
    for (const json& row : rows_of(name, "train"))
        for (const char* key : {"loss", "norm"}) o.figures.push_back(row[key]);
    for (const json& row : rows_of(name, "val")) o.figures.push_back(row["loss"]);
    for (const json& row : rows_of(name, "sample")) o.texts += row["text"].dump() + " ";
    return o;
}

static std::vector<Mesh> meshes() {
    std::vector<Mesh> all = {{1, 1, 2, 2}, {2, 2, 2, 2}};
    for (int dp : {1, 2, 4})
        for (int tp : {1, 2, 4})
            for (int pp : {1, 2, 4})
                if (dp * tp * pp > 1 && dp * tp * pp <= 8) all.push_back({dp, tp, pp});
    return all;
}

static void expect_same(const Mesh& m, int zero, const char* transport, const Outcome& one,
                        const string& more = "") {
    const string set = fmt::format("--parallel.ranks={} --parallel.tp={} --parallel.pp={} --parallel.zero={} "
                                   "--parallel.virtual_stages={} --parallel.schedule={} "
                                   "--parallel.transport={}",
                                   m.dp * m.tp * m.pp, m.tp, m.pp, zero, m.virtual_stages,
                                   m.virtual_stages > 1 ? "interleaved" : "1f1b", transport);
    const Ran ran = trained("mesh", set + more);
    EXPECT(ran.code == 0, "%s: exit code %d, '%s'", set.c_str(), ran.code, ran.err.c_str());
    expect_all_used(set);
    const Outcome o = outcome_of("mesh");
    const double apart = largest_difference(o.figures, one.figures);
    EXPECT(apart <= 1e-5 && o.texts == one.texts, "%s: %.2g apart, texts %s, expected %s", set.c_str(), apart,
           o.texts.c_str(), one.texts.c_str());
    std::filesystem::remove_all(folder("mesh"));
}

TEST(every_mesh_trains_and_generates_as_one_rank) {
    const Ran ran = trained("one", "");
    EXPECT(ran.code == 0, "one rank: exit code %d, '%s'", ran.code, ran.err.c_str());
    const Outcome one = outcome_of("one");
    EXPECT(one.figures.size() == 6 && rows_of("one", "sample").size() == 1, "%zu figures, texts %s",
           one.figures.size(), one.texts.c_str());
    const char* const which = getenv("LATTICE");
    const bool every = which && !strcmp(which, "all");
    int turn = 0;
    for (const Mesh& m : meshes()) {
        for (int zero = 0; zero < 4; zero++)
            for (const char* transport : {"nccl", "threads"}) {
                const bool taken = zero == turn % 4 && (turn / 4 % 2 == 0) == !strcmp(transport, "nccl");
                if (every || taken) expect_same(m, zero, transport, one);
            }
        turn++;
    }
}

// Matrices that are cut by rows, by columns and over shards.
TEST(muon_trains_as_one_rank) {
    const string muon = " --optimizer.kind=muon --optimizer.momentum_warmup=2";
    const Ran ran = trained("muon", muon);
    EXPECT(ran.code == 0, "one rank: exit code %d, '%s'", ran.code, ran.err.c_str());
    const Outcome one = outcome_of("muon");
    expect_same({2, 2, 1}, 2, "nccl", one, muon);
    expect_same({2, 1, 2}, 3, "threads", one, muon + " --memory.offload=optimizer");
}
