// Names of settings in other programs lead to the key here, or to a remedy.
#include "llmc/base/config/known_names.h"

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "llmc/base/config/fields.h"
#include "llmc/base/config/options.h"
#include "test/test.h"

using std::string;

static std::vector<string> words_of(const string& text) {
    std::stringstream in(text);
    std::vector<string> words;
    for (string word; in >> word;) words.push_back(word);
    return words;
}

static std::set<string> own_paths() {
    Config cfg;
    std::set<string> paths;
    for (const Field& f : fields(cfg)) paths.insert(f.path());
    return paths;
}

// Each row says something, names keys that exist, and no name stands twice or hides a key of this program.
TEST(the_table_holds_together) {
    const std::set<string> paths = own_paths();
    std::set<string> own, seen;
    for (const string& path : paths) own.insert(path.substr(path.rfind('.') + 1));
    for (const KnownName& row : known_names()) {
        EXPECT(row.key || row.note, "%s", row.names);
        EXPECT(!row.key || paths.contains(row.key), "%s: no setting %s", row.names, row.key);
        for (const string& name : words_of(row.names)) {
            EXPECT(seen.insert(name).second && !own.contains(name), "%s", name.c_str());
            EXPECT(known_name(name) == &row, "%s is taken for another row's", name.c_str());
        }
        const string note = row.note ? row.note : "";
        static const std::regex setting("[a-z]+[.][a-z_0-9]+");
        for (std::sregex_iterator m(note.begin(), note.end(), setting), end; m != end; ++m)
            EXPECT(paths.contains(m->str()) || m->str() == "metrics.jsonl" || m->str() == "plot.py" ||
                   m->str() == "llm.c", "%s: '%s' in its note", row.names, m->str().c_str());
    }
}

// The same advice on the command line, with and without a section, and in a file: at the top, in a section,
// as a section.
static void expect_advice(const string& name, std::vector<string> words) {
    const string file = test::temporary_directory() + "/empty.json";
    std::ofstream(file) << "{}";
    std::vector<Fatal> said;
    for (const string& option : {"--" + name + "=1", "--model." + name + "=1", "--trainer." + name}) {
        const char* argv[] = {"./train_gpt", file.c_str(), option.c_str()};
        said.push_back(test::fatal_of([&] { parse_command_line(3, argv); }));
    }
    std::vector<string> files = {"{\"" + name + "\": 1}", "{\"data\": {\"" + name + "\": \"x\"}}"};
    if (known_name(name)) files.push_back("{\"" + name + "\": {\"x\": 1}}");
    for (const string& json : files)
        said.push_back(test::fatal_of([&] { parse_config(json, "some.json"); }));
    for (const Fatal& f : said) {
        const string text = f.what();
        EXPECT(f.code == kExitConfig && text.find(name) != string::npos, "%s: code %d, '%s'", name.c_str(),
               f.code, text.c_str());
        for (const string& w : words)
            EXPECT(text.find(w) != string::npos, "%s: no '%s' in '%s'", name.c_str(), w.c_str(),
                   text.c_str());
    }
}

TEST(names_that_people_know) {
    const std::vector<std::vector<string>> meant = {
        {"learning_rate", "optimizer.lr?"}, {"Learning-Rate", "optimizer.lr?"}, {"n_embd", "model.channels?"},
        {"d_model", "model.channels?"}, {"hidden_size", "model.channels?"}, {"n_layer", "model.layers?"},
        {"num_hidden_layers", "model.layers?"}, {"n_head", "model.heads?"},
        {"num_attention_heads", "model.heads?"}, {"block_size", "model.context?"},
        {"seq_len", "model.context?"}, {"max_seq_len", "model.context?"}, {"n_ctx", "model.context?"},
        {"batch_size", "train.batch_tokens?", "train.micro_batch", "tokens"},
        {"global_batch_size", "train.batch_tokens?"}, {"micro_batch_size", "train.micro_batch?"},
        {"max_iters", "train.steps?"}, {"max_steps", "train.steps?"},
        {"epochs", "train.steps", "train.batch_tokens"}, {"warmup_steps", "optimizer.warmup?"},
        {"warmup_iters", "optimizer.warmup?"}, {"min_lr", "optimizer.final_lr?", "fraction"},
        {"eval_interval", "eval.every?"}, {"log_interval", "log.every?"}, {"dtype", "run.precision?"},
        {"out_dir", "run.dir?"}, {"optim", "optimizer.kind?"}, {"compile", "leave it out"},
        {"dropout", "no dropout", "leave it out"},
        {"gradient_accumulation_steps", "train.micro_batch"}, {"wandb_log", "metrics.jsonl"},
        {"wandb_project", "metrics.jsonl"}, {"max_grad_norm", "optimizer.grad_clip?"},
        // keys of this program without their section, or in another
        {"weight_decay", "optimizer.weight_decay?"}, {"lr", "optimizer.lr?"}};
    for (const std::vector<string>& row : meant)
        expect_advice(row[0], std::vector<string>(row.begin() + 1, row.end()));
}

// Flags of llm.c, and settings with a dash too few.
TEST(flags_of_one_dash) {
    const string file = test::temporary_directory() + "/empty.json";
    std::ofstream(file) << "{}";
    for (const auto& [flag, key] : std::vector<std::pair<string, string>>{
             {"-b", "train.micro_batch?"}, {"-t", "model.context?"}, {"-d", "train.batch_tokens?"},
             {"-i", "data.train?"}, {"-o", "run.dir?"}, {"-learning_rate=1", "optimizer.lr?"}}) {
        const char* argv[] = {"./train_gpt", file.c_str(), flag.c_str(), "4"};
        const Fatal f = test::fatal_of([&] { parse_command_line(4, argv); });
        EXPECT(f.code == kExitConfig && string(f.what()).find(key) != string::npos, "%s: '%s'", flag.c_str(),
               f.what());
    }
}
