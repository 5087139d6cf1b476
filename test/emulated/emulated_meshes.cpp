// The trainer over the emulated kernels on every mesh of two and four ranks and on some of eight, with a text
// at the end: the losses, gradient norms and texts of one rank. Then each kind of model against the CPU's
// operations, and sizes that kernels do not take.
//
// LATTICE=all runs every mesh of eight ranks too, and each at every stage of ZeRO over both transports; by
// default stages and transports alternate.
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "llmc/base/config/config.h"
#include "test/kinds.h"
#include "test/even_documents.h"
#include "test/task_file.h"

using std::string;
using namespace test;

struct Mesh {
    int dp, tp, pp, virtual_stages = 1;
    bool halves = false;            // of backward
    const char* schedule() const {
        if (halves) return "zb";
        return virtual_stages > 1 ? "interleaved" : "1f1b";
    }
};

// Sizes that no mesh divides: an odd context, and a token at a time in generation.
static Ran trained(const string& name, const string& args) {
    json changes = text_config();
    changes.merge_patch({{"model", {{"layers", 4}, {"heads", 4}, {"channels", 64}, {"context", 13}}},
                         {"train", {{"steps", 1}, {"batch_tokens", 4 * 13}, {"micro_batch", 1}}},
                         {"eval", {{"every", 1}, {"batches", 1}}},
                         {"sample", {{"every", 1}, {"tokens", 3}, {"temperature", 0}}},
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

static std::vector<Mesh> meshes(int most) {
    std::vector<Mesh> all = {{1, 1, 2, 2}, {2, 2, 2, 2}, {2, 2, 2}};
    for (int dp : {1, 2, 4})
        for (int tp : {1, 2, 4})
            for (int pp : {1, 2, 4})
                if (dp * tp * pp > 1 && dp * tp * pp <= most) all.push_back({dp, tp, pp});
    return all;
}

static void expect_same(const Mesh& m, int zero, const char* transport, const Outcome& one,
                        const string& more = "") {
    const string set = fmt::format("--parallel.ranks={} --parallel.tp={} --parallel.pp={} --parallel.zero={} "
                                   "--parallel.virtual_stages={} --parallel.schedule={} "
                                   "--parallel.transport={}",
                                   m.dp * m.tp * m.pp, m.tp, m.pp, zero, m.virtual_stages,
                                   m.schedule(), transport);
    const Ran ran = trained("mesh", set + more);
    EXPECT(ran.code == 0, "%s: exit code %d, '%s'", set.c_str(), ran.code, ran.err.c_str());
    expect_all_used(set);
    const Outcome o = outcome_of("mesh");
    const double apart = largest_difference(o.figures, one.figures);
    EXPECT(apart <= 1e-5 && o.texts == one.texts, "%s: %.2g apart, texts %s, expected %s", set.c_str(), apart,
           o.texts.c_str(), one.texts.c_str());
    std::filesystem::remove_all(folder("mesh"));
}

// Hashes of what lies on the device: no alarm with tp and ZeRO, over NCCL; and a flipped bit is found there.
TEST(replicas_on_gpus_are_compared) {
    const string all = " --run.sniff=true --run.check_every=1 --run.replay_every=1 --eval.every=0 "
                       "--sample.every=0";
    const Ran same = trained("same", "--parallel.ranks=4 --parallel.tp=2 --parallel.zero=1 "
                             "--parallel.transport=nccl" + all);
    EXPECT(same.code == 0, "code %d, '%s'", same.code, same.err.c_str());
    setenv("FAULT", "train:1:flip-moments:2", 1);
    const Ran flipped = trained("flipped", "--parallel.ranks=4" + all);
    unsetenv("FAULT");
    EXPECT(flipped.code == 75 && has(flipped.err, "first moments of rank 2 on "), "code %d, '%s'",
           flipped.code, flipped.err.c_str());
}

TEST(every_mesh_trains_and_generates_as_one_rank) {
    const Ran ran = trained("one", "");
    EXPECT(ran.code == 0, "one rank: exit code %d, '%s'", ran.code, ran.err.c_str());
    const Outcome one = outcome_of("one");
    EXPECT(one.figures.size() == 4 && rows_of("one", "sample").size() == 1, "%zu figures, texts %s",
           one.figures.size(), one.texts.c_str());
    const char* const which = getenv("LATTICE");
    const bool every = which && !strcmp(which, "all");
    int turn = 0;
    for (const Mesh& m : meshes(every ? 8 : 4)) {
        for (int zero = 0; zero < 4; zero++)
            for (const char* transport : {"nccl", "threads"}) {
                const bool taken = zero == turn % 4 && (turn / 4 % 2 == 0) == !strcmp(transport, "nccl");
                if (every || taken) expect_same(m, zero, transport, one);
            }
        turn++;
    }
}

TEST(halves_of_backward_train_as_one_rank) {
    const Ran ran = trained("whole", "");
    EXPECT(ran.code == 0, "one rank: exit code %d, '%s'", ran.code, ran.err.c_str());
    const Outcome one = outcome_of("whole");
    expect_same({.dp = 1, .tp = 2, .pp = 2, .halves = true}, 0, "nccl", one);
    expect_same({.dp = 2, .tp = 1, .pp = 2, .halves = true}, 2, "nccl", one);
}

// Rows over ranks: keys gathered, or heads traded; with tp, ZeRO and a pipeline.
TEST(ranks_that_share_rows_train_as_one_rank) {
    const string rows = " --model.context=24 --train.batch_tokens=96";
    const Ran ran = trained("rows", rows);
    EXPECT(ran.code == 0, "one rank: exit code %d, '%s'", ran.code, ran.err.c_str());
    const Outcome one = outcome_of("rows");
    const string cp = rows + " --parallel.cp=2";
    expect_same({2, 1, 1}, 3, "nccl", one, cp);
    expect_same({2, 1, 1}, 0, "nccl", one, cp + " --parallel.cp_kind=heads");
    expect_same({2, 2, 1}, 1, "threads", one, cp + " --memory.recompute=block");
    expect_same({2, 1, 2}, 2, "nccl", one, cp + " --parallel.cp_kind=heads");
}

// Matrices that are cut by rows, by columns and over shards. Without shards a batch of matrices waits for the
// gradients of several layers.
TEST(muon_trains_as_one_rank) {
    const string muon = " --optimizer.kind=muon --optimizer.momentum_warmup=2";
    const Ran ran = trained("muon", muon);
    EXPECT(ran.code == 0, "one rank: exit code %d, '%s'", ran.code, ran.err.c_str());
    const Outcome one = outcome_of("muon");
    expect_same({2, 2, 1}, 2, "nccl", one, muon);
    expect_same({2, 1, 1}, 0, "nccl", one, muon);
    expect_same({2, 1, 2}, 3, "threads", one, muon + " --memory.offload=optimizer");
}

// ---------------------------------------------------------------------------------------------------------
// kinds of models

// A kind of test/kinds.h with sizes that kernels take: a step of two micro-batches, and a validation after.
static string kind_config(const string& name, size_t kind, const json& data) {
    Config cfg;
    cfg.model.layers = 3, cfg.model.heads = 2, cfg.model.channels = 64;
    cfg.model.context = 21, cfg.model.vocab = 500;
    cfg.model = of_kind(kKinds[kind], cfg.model);
    cfg.model.init_kind = InitKind::Gpt2;           // each part has an effect from the first step on
    const auto up = [](int n, int unit) { return (n + unit - 1) / unit * unit; };
    cfg.model.head_channels = up(cfg.model.head_channels, 16);
    cfg.model.ffn_channels = up(cfg.model.ffn_channels, 8);
    return tiny_program_config(name, {{"model", json::parse(to_json(cfg))["model"]}, {"data", data},
                                      {"train", {{"steps", 1}, {"batch_tokens", 4 * 21}, {"micro_batch", 2}}},
                                      {"optimizer", {{"lr", 3e-3}, {"warmup", 0}, {"momentum_warmup", 2}}},
                                      {"eval", {{"every", 1}, {"batches", 1}}}});
}

// Losses and gradient norms of a kind, by the emulated kernels or the CPU's operations.
static std::vector<double> figures_of_kind(bool emulated, size_t kind, const string& args,
                                           const json& data = json::object()) {
    const string program = emulated ? "EMU_HOST=refuse EMU_RED_ZONES=256 " + build_folder() + "/emulated"
                                    : build_folder();
    const Ran ran = run(program + "/train_gpt " + kind_config("kind", kind, data) + " " + args);
    EXPECT(ran.code == 0, "kind %zu %s: exit code %d, '%s'", kind, args.c_str(), ran.code, ran.err.c_str());
    const std::vector<double> figures = outcome_of("kind").figures;
    std::filesystem::remove_all(folder("kind"));
    const size_t steps = args.find("steps=2") == string::npos ? 1 : 2;
    EXPECT(figures.size() == 2 * steps + 2, "kind %zu: %zu figures", kind, figures.size());
    return figures;
}

static void expect_the_cpus(size_t kind, const string& args, double tolerance,
                            const json& data = json::object()) {
    const auto expected = figures_of_kind(false, kind, args, data);
    const double apart = largest_difference(figures_of_kind(true, kind, args, data), expected);
    EXPECT(apart <= tolerance, "kind %zu %s: %.2g apart", kind, args.c_str(), apart);
}

TEST(each_kind_of_model_trains_as_on_the_cpu) {
    for (size_t kind = 0; kind < std::size(kKinds); kind++) {
        expect_the_cpus(kind, "--run.precision=fp32", 1e-5);
        expect_the_cpus(kind, "--run.precision=bf16 --memory.recompute=block", 2e-3);
    }
}

// The same rows without the document mask have other figures.
TEST(documents_of_a_row_train_as_on_the_cpu) {
    const string rows = " --model.vocab=257 --data.rows=documents --train.steps=2 --eval.every=2";
    const string mask = " --model.document_mask=true";
    const json data = even_documents();
    for (const size_t kind : {5, 10}) {
        const auto plain = figures_of_kind(false, kind, "--run.precision=fp32" + rows, data),
                   masked = figures_of_kind(false, kind, "--run.precision=fp32" + rows + mask, data);
        EXPECT(largest_difference(masked, plain) > 3e-5, "kind %zu: the mask does nothing", kind);
        expect_the_cpus(kind, "--run.precision=fp32" + rows + mask, 1e-5, data);
        expect_the_cpus(kind, "--run.precision=bf16" + rows + mask, 2e-3, data);
    }
}

// Shared beginnings, batches by length, and answers, by a GPU's kernels.
TEST(tasks_are_scored_as_on_the_cpu) {
    std::vector<TaskDocument> documents;
    for (size_t d = 0; d < 10; d++)
        documents.push_back({"the small model reads" + string(d % 4, '.'),
                             {" a page", " zebra", " text and line"}});
    const string task = task_file("short", R"("accuracy": "sum", "accuracy_norm": "bytes")", documents);
    json changes = text_config();
    changes.merge_patch({{"train", {{"steps", 2}}}, {"sample", {{"every", 0}}},
                         {"checkpoint", {{"every", 0}}},
                         {"eval", {{"every", 0}, {"tasks", {task}}, {"task_every", 2}}}});
    const string config = tiny_program_config("scored", changes);
    const auto answers = [&](const string& folder_of_program, const string& args) {
        const Ran ran = run(folder_of_program + "/train_gpt " + config + args);
        EXPECT(ran.code == 0, "'%s'", ran.err.c_str());
        std::vector<double> all;
        std::istringstream rows(text_of(folder("scored") + "/answers/short.jsonl"));
        for (string row; std::getline(rows, row);) {
            const json answer = json::parse(row);
            for (const json& logprob : answer["logprob"]) all.push_back(logprob);
        }
        std::filesystem::remove_all(folder("scored"));
        EXPECT(all.size() == 30, "%zu answers", all.size());
        return all;
    };
    const auto expected = answers(build_folder(), "");
    for (const string args : {"", " --parallel.ranks=2 --parallel.tp=2 --parallel.transport=threads"}) {
        const auto found = answers("EMU_HOST=refuse EMU_RED_ZONES=256 " + build_folder() + "/emulated", args);
        const double apart = largest_difference(found, expected);
        EXPECT(apart <= 1e-5, "'%s': %.2g apart", args.c_str(), apart);
    }
}

// Gates of value embeddings have 12 columns, and a row for each head of keys: no product takes such sides.
TEST(muon_updates_matrices_of_any_sides) {
    const string kind = " --optimizer.kind=muon --optimizer.cautious=true";
    const string muon = "--run.precision=fp32" + kind;
    expect_the_cpus(10, "--run.precision=bf16" + kind, 2e-3);
    const auto expected = figures_of_kind(false, 10, muon);
    for (const char* mesh : {"", " --parallel.ranks=4 --parallel.tp=2 --parallel.zero=2 "
                             "--train.micro_batch=1 --parallel.transport=threads"}) {
        const double apart = largest_difference(figures_of_kind(true, 10, muon + mesh), expected);
        EXPECT(apart <= 1e-4, "%s: %.2g apart", mesh, apart);
    }
}

// Before any memory is taken, and in plans for GPUs by any build.
TEST(sizes_that_no_kernel_takes_are_named) {
    const string kernels = ": kernels for GPUs take multiples of ";
    const std::pair<string, string> cases[] = {
        {"--model.channels=60 --model.heads=3",
         "model.channels = 60" + kernels + "8; the nearest are 56 and 64"},
        {"--model.heads=16", "model.head_channels = 4 (model.channels / model.heads)" + kernels +
         "8 up to 256; the nearest is 8"},
        {"--model.head_channels=264",
         "model.head_channels = 264" + kernels + "8 up to 256; the nearest is 256"},
        {"--model.head_channels=24 --model.position=rope --run.precision=bf16", "model.head_channels = 24" +
         kernels + "16 up to 256 in bf16 with rope or qk_norm; the nearest are 16 and 32"},
        {"--model.channels=32776 --model.head_channels=8 --run.precision=bf16",
         "model.channels = 32776: kernels of layernorm for GPUs take at most 32768 in this precision"},
        {"--model.ffn_channels=100",
         "model.ffn_channels = 100" + kernels + "8; the nearest are 96 and 104"},
        {"--model.ffn_channels=72 --parallel.ranks=2 --parallel.tp=2", "model.ffn_channels = 72" + kernels +
         "16 with parallel.tp = 2; the nearest are 64 and 80"}};
    const string config = " " + tiny_program_config("sizes") + " ";
    for (const auto& [args, words] : cases)
        for (const string& program : {"/emulated/train_gpt" + config,
                                      "/emulated/train_gpt" + config + "--plan ",
                                      "/train_gpt" + config + "--plan --cluster.gpu=h100 "}) {
            const Ran ran = run(build_folder() + program + args);
            // a thread of several ranks may have begun the folder for their progress
            const bool begun = there(folder("sizes")) && args.find("ranks") == string::npos;
            EXPECT(ran.code == 78 && ran.err.find(words) != string::npos && !begun,
                   "%s: exit code %d, '%s'", args.c_str(), ran.code, ran.err.c_str());
        }
}

TEST(fp8_needs_a_gpu_that_has_its_products) {
    const string config = tiny_program_config("no_fp8", {{"train", {{"steps", 1}}}}) +
                          " --run.precision=bf16 --run.products=fp8";
    const Ran ran = run("EMU_ARCH=86 " + build_folder() + "/emulated/train_gpt " + config);
    EXPECT(ran.code == 78 && ran.err.starts_with("error: run.products = fp8: emulated sm_86 has compute "
                                                 "capability 8.6, products of FP8 need 8.9; set "
                                                 "run.products to bf16\n"),
           "exit code %d, '%s'", ran.code, ran.err.c_str());
}
