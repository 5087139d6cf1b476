// model.document_mask as a user sees it: rows of two documents train as rows of one do, on every mesh.
#include "test/even_documents.h"

using std::string;
using std::vector;
using namespace test;

// Rows of two documents, or with a context of 16 of one.
static json masked_config() {
    return {{"run", {{"precision", "fp64"}}},
            {"model", {{"vocab", 0}, {"layers", 2}, {"heads", 2}, {"channels", 32}, {"context", 32}}},
            {"data", even_documents()},
            {"train", {{"steps", 3}, {"batch_tokens", 128}, {"micro_batch", 1}}},
            {"eval", {{"every", 1}, {"batches", 0}}}};
}

// Losses of training and validation, in order.
static vector<double> losses_of(const string& config, const string& name, const string& args) {
    const Ran ran = train_gpt(config, args + " --run.dir=" + folder(name));
    EXPECT(ran.code == 0, "%s: code %d, '%s'", name.c_str(), ran.code, ran.err.c_str());
    vector<double> all;
    for (const char* event : {"train", "val"})
        for (const json& row : rows_of(name, event)) all.push_back(row["loss"]);
    return all;
}

static constexpr const char* kMeshes[] = {"2 --parallel.pp=2", "2 --parallel.tp=2",
                                          "4 --parallel.pp=2 --parallel.zero=1",
                                          "2 --parallel.zero=3 --memory.recompute=block"};

static double apart(const vector<double>& a, const vector<double>& b) {
    double worst = a.size() == b.size() && a.size() == 7 ? 0 : INFINITY;
    for (size_t i = 0; i < std::min(a.size(), b.size()); i++) worst = std::max(worst, std::fabs(a[i] - b[i]));
    return worst;
}

TEST(rows_of_two_documents_train_as_rows_of_one) {
    const string config = tiny_program_config("masked", masked_config());
    int number = 0;
    for (const string kind : {"", " --model.position=rope --model.qk_norm=after"}) {
        const string masks = kind + " --model.document_mask=true", n = std::to_string(number++);
        const vector<double> one = losses_of(config, "one" + n, kind + " --model.context=16");
        const vector<double> two = losses_of(config, "two" + n, masks);
        const vector<double> bare = losses_of(config, "bare" + n, kind);
        EXPECT(apart(one, two) < 1e-11, "%.2g apart", apart(one, two));
        EXPECT(apart(one, bare) > 1e-4, "the mask has no effect");
        int meshes = 0;
        for (const string mesh : kMeshes) {
            const string to = "mesh" + n + std::to_string(meshes++);
            const double d = apart(two, losses_of(
                config, to, masks + " --parallel.transport=threads --parallel.ranks=" + mesh));
            EXPECT(d < 1e-10, "%s: %.2g apart", mesh.c_str(), d);
        }
    }
}

TEST(corpora_have_one_end_of_text) {
    json settings = masked_config();
    std::ofstream(folder("ab.txt")) << "ababab";
    run("./tokenize train --vocab=258 --out=" + folder("ab.json") + " " + folder("ab.txt"));
    run("./tokenize encode --tokenizer=" + folder("ab.json") + " --out=" + folder("odd") + " " +
        folder("even.jsonl"));
    index_shards(folder("even_train_*.bin")), index_shards(folder("odd_train_*.bin"), 257);
    settings["data"].erase("tokenizer"), settings["model"]["vocab"] = 258, settings["eval"]["every"] = 0;
    settings["data"]["train"] = {{{"path", folder("even_train_*.bin")}, {"weight", 1}},
                                 {{"path", folder("odd_train_*.bin")}, {"weight", 1}}};
    const Ran ran = train_gpt(tiny_program_config("two", settings),
                              "--model.document_mask=true --data.rows=documents");
    EXPECT(ran.code == 78 && ran.err.find("documents begin with id 256 in '") != string::npos &&
           ran.err.find(" and 257 in '") != string::npos, "code %d, '%s'", ran.code, ran.err.c_str());
}

TEST(the_mask_needs_to_know_end_of_text) {
    json settings = masked_config();
    settings["data"].erase("tokenizer"), settings["model"]["vocab"] = 257, settings["eval"]["every"] = 0;
    const string config = tiny_program_config("unknown", settings), masks = "--model.document_mask=true";
    const Ran ran = train_gpt(config, masks);
    const string told = "model.document_mask: which id is end-of-text is not known; set data.tokenizer to "
                        "the tokenizer of data.train = '";
    EXPECT(ran.code == 78 && ran.err.find(told) != string::npos,
           "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(no_message(ran.err).empty(), "%s", no_message(ran.err).c_str());
    index_shards(folder("even_train_*.bin"));           // an index says the id
    const Ran packed = train_gpt(config, masks + " --data.rows=documents --train.steps=1");
    EXPECT(packed.code == 0, "code %d, '%s'", packed.code, packed.err.c_str());
}
