// Messages of ./train_gpt for impossible requests.
#include <cstring>
#include <filesystem>

#include "llmc/base/config/config.h"
#include "test/program.h"

using namespace test;
using std::string;

// Exit code 78, and a message with every word.
static void refused(const string& args, std::vector<string> words, string config = "") {
    static int count = 0;
    if (config.empty()) config = tiny_program_config("refused" + std::to_string(count++));
    const Ran ran = train_gpt(config, args);
    EXPECT(ran.code == 78, "%s: code %d, '%s'", args.c_str(), ran.code, ran.err.c_str());
    EXPECT(no_message(ran.err).empty(), "%s: %s in '%s'", args.c_str(), no_message(ran.err).c_str(),
           ran.err.c_str());
    for (const string& w : words)
        EXPECT(has(ran.err, w), "%s: no '%s' in '%s'", args.c_str(), w.c_str(), ran.err.c_str());
}

// A shrunk job has to fit the mesh alone; a job that is started has equal shares, unless it is elastic.
TEST(only_an_elastic_run_has_unequal_shares) {
    Config c;
    c.model = {.layers = 4, .heads = 4, .channels = 16, .context = 16, .vocab = 64, .init = "random"};
    c.train.batch_tokens = 256;
    c.train.micro_batch = 4;
    c.parallel.tp = 2;
    EXPECT(!batch_divides(c, 3, 4) && batch_divides(c, 2, 4), "4 micro-batches on 3 ranks");
    c.run.elastic = true;
    EXPECT(batch_divides(c, 3, 4) && micros_of_step(c, 3, 4) == 2 && rows_of_step(c, 3) == 6, "%ld, %ld",
           long(micros_of_step(c, 3, 4)), long(rows_of_step(c, 3)));
    EXPECT(!batch_divides(c, 3, 3), "micro-batches of 3 rows in 16");
    EXPECT(ranks_mistake(c, 6).empty() && has(ranks_mistake(c, 5), "parallel.tp"), "'%s'",
           ranks_mistake(c, 5).c_str());
    c.run.check_every = 1;
    c.parallel.tp = 1;
    EXPECT(ranks_mistake(c, 2).empty() && has(ranks_mistake(c, 1), "run.check_every"), "'%s'",
           ranks_mistake(c, 1).c_str());
}

// One line with the setting to change, in runs as in plans.
TEST(weights_without_masters_are_bf16) {
    refused("--optimizer.master=false --run.precision=fp32", {"optimizer.master = false",
            "run.precision = fp32", "run.precision to bf16"});
    refused("--optimizer.master=false --run.precision=fp64 --plan", {"run.precision = fp64"});
    Config c;
    c.optimizer.master = false, c.run.precision = "fp32", c.train.steps = 0;
    EXPECT(master_mistake(c).empty(), "nothing is trained: '%s'", master_mistake(c).c_str());
}

TEST(fp8_products_are_refused_where_they_cannot_be) {
    const string fp8 = "--run.products=fp8 --run.precision=bf16 ";
    refused("--run.products=fp8", {"run.products = fp8", "run.precision = fp32", "run.products to bf16"});
    refused(fp8 + "--run.precision=fp64 --plan", {"run.precision = fp64", "run.products to bf16"});
    refused(fp8 + "--model.channels=72", {"72 channels", "multiple of 16", "model.channels"});
    refused(fp8 + "--model.ffn_channels=120", {"120 feed-forward channels", "model.ffn_channels"});
    refused(fp8 + "--model.context=24 --train.batch_tokens=96", {"24 tokens in a row", "model.context"});
    refused(fp8 + "--model.ffn_channels=240 --parallel.tp=2 --parallel.ranks=2",
            {"120 feed-forward channels on each rank of parallel.tp = 2", "or parallel.tp"});
    refused("--run.products=fp16", {"run.products", "bf16, fp8"});
}

TEST(mistakes_in_settings) {
    refused("--optimizer.lrr=1", {"optimizer.lrr", "optimizer.lr"});
    refused("--train.steps=many", {"train.steps", "many"});
    refused("--model.heads=0", {"model.heads"});
    refused("--model.heads=5", {"5", "64"});
    refused("--model.depth=12 --model.vocab=0", {"model.depth = 12", "needs model.vocab"});
    refused("--optimizer.kind=adam", {"optimizer.kind", "adamw", "muon"});
    refused("--model.heads=8 --model.kv_heads=3", {"model.kv_heads = 3", "model.heads = 8", "is 2"});
    refused("--model.position=rope --model.head_channels=9", {"9 channels", "even", "model.head_channels"});
    refused("--model.channels=8 --model.heads=1 --model.value_embeddings=alternate",
            {"model.channels = 8", "model.value_embeddings read 12 channels"});
    refused("--model.shortcut=x1", {"model.shortcut", "x1", "none, x0"});
    refused("--model.init_kind=zero", {"model.init_kind", "zero", "gpt2, unit"});
    refused("--model.rope_scaling=yarn", {"model.rope_scaling", "yarn", "none, {\"type\": \"llama3\"",
                                          "{\"type\": \"linear\", \"factor\": 1 or more}"});
    const string llama3 = "'--model.rope_scaling={\"type\": \"llama3\", \"factor\": 8, \"low\": 1, "
                          "\"high\": ";
    refused(llama3 + "4}'", {"model.rope_scaling", "\"context\": 1 or more"});
    refused(llama3 + "1, \"context\": 64}'", {"model.rope_scaling", "\"high\": above low"});
    refused(llama3 + "4, \"context\": 64}'", {"model.rope_scaling is for model.position = rope"});
    const auto scaled = [](const string& form) {
        return "'--model.rope_scaling={\"type\": \"" + form + "}' --model.position=rope";
    };
    refused(scaled("linear\", \"factor\": 0.5"), {"expected {\"type\": \"linear\", \"factor\": 1 or more}"});
    refused(scaled("linear\", \"factor\": 2, \"context\": 64"), {"expected {\"type\": \"linear\""});
    refused(scaled("yarn\", \"factor\": 2"), {"expected {\"type\": \"yarn\"", "\"context\": 1 or more}"});
    const string yarn = "yarn\", \"factor\": 2, \"context\": 64";
    refused(scaled(yarn + ", \"beta_slow\": 32"), {"\"beta_fast\": above beta_slow"});
    refused(scaled(yarn + ", \"attention\": -1"), {"\"attention\": 0 or more"});
    refused(scaled(yarn) + " --model.rope_theta=1", {"model.rope_theta = 1", "above 1"});
    refused("--model.rope_theta=500", {"model.rope_theta = 500 is for model.position = rope",
                                       "leave it out"});
    refused("--model.rope_still=0.5", {"model.rope_still = 0.5 is for model.position = rope"});
    refused("--model.softcap_kind=sqrt", {"model.softcap_kind = \"sqrt\" is for a model.softcap above 0"});
    refused("--model.qk_gain=false", {"model.qk_gain = false is for model.qk_norm = before or after"});
    refused("--model.window=-1", {"model.window", "an integer of 0 to 16777216, or a list of them"});
    refused("--model.window=[]", {"model.window", "a list of them"});
    refused("--train.batch_tokens=500", {"500", "train.batch_tokens"});
    refused("--run.dir=/proc/nope", {"/proc/nope"});
    std::ofstream(folder("broken.json")) << "{\"train\": {\"steps\": 10,}}";
    refused("", {"broken.json", "line"}, folder("broken.json"));
    refused("", {"absent.json"}, folder("absent.json"));
}

// A resolved config names every setting, most with their defaults.
TEST(a_setting_without_effect_may_have_its_default) {
    const Ran ran = train_gpt(tiny_program_config("defaults"), "--plan --model.rope_theta=10000 "
                              "--model.rope_still=0 --model.softcap_kind=tanh --model.qk_gain=true");
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    const Ran used = train_gpt(tiny_program_config("used"), "--plan --model.position=rope "
                               "--model.qk_norm=after --model.rope_theta=500 --model.rope_still=0.5 "
                               "--model.softcap=9 --model.softcap_kind=sqrt --model.qk_gain=false");
    EXPECT(used.code == 0, "code %d, '%s'", used.code, used.err.c_str());
}

// What the user wrote reaches the terminal escaped, and no longer than a message.
TEST(a_message_has_no_control_characters) {
    const string escape = "\x1b[2J\x1b]0;x\x07\xc2\x9b\xff\r\n";
    refused("'--ru" + escape + ".dir=x'", {"--ru\\x1b[2J\\x1b]0;x\\x07\\u009b\\xff\\x0d"});
    refused("'--run.precision=" + escape + "'", {"run.precision", "\\u009b"});
    refused("'--data.train=" + escape + "'", {"data.train", "\\x1b[2J"});
    refused("'" + string(300, '\n') + "'", {"two configs", "bytes more"}, string(5000, 'x'));
    for (const json& changes : {json{{"ru\x1b[2J", json::object()}}, json{{"run", {{"d\x1b[2J\xc2\x9b", 1}}}},
                                json{{"run", {{"precision", "\x1b[2J\xc2\x9b"}}}}})
        refused("", {"1b[2J"}, tiny_program_config("escape", changes));
    const Ran plan = train_gpt(tiny_program_config("escape", {{"about", "\xc2\x9b\x1b"}}), "--plan");
    EXPECT(plan.code == 0 && has(plan.out, "\\u009b\\u001b"), "code %d, '%s'", plan.code, plan.out.c_str());
}

// Who comes from Python, nanoGPT or Hugging Face is told what this program wants in its place.
TEST(habits_of_other_programs) {
    const auto in_file = [](const char* name, const char* text, std::vector<string> words) {
        std::ofstream(folder(name)) << text;
        refused("", words, folder(name));
    };
    in_file("train_x.py", "batch_size = 12\n", {"train_x.py", "{\"train\": {\"steps\": 1000}, ...}"});
    in_file("comment.json", "{\"train\": {} // steps\n}", {"no comments", "about"});
    in_file("single.json", "{'train': {}}", {"double quotes"});
    in_file("comma.json", "{\"train\": {\"steps\": 10,}}", {"a comma stands between two"});
    refused("--generate Once upon a time", {"--generate=\"Once upon a time\""});
    refused("--train.batch_tokens=12", {"least is 128", "tokens, not sequences"});
    refused("--data.train=" + folder(""), {"data.train = ", "is a folder", "/*.bin"});
    refused("--frobnicate=1", {"--frobnicate: there is no such setting.\n"});
    run("mkdir -p " + folder("model") + " && touch " + folder("model/model.safetensors"));
    refused("--model.init=" + folder("model"), {"Did you mean hf:" + folder("model") + "?"});
    refused("--model.init=" + folder("model/model.safetensors"),
            {"Did you mean hf:" + folder("model") + "?"});
    refused("--model.init=hf:" + folder("model/model.safetensors"), {"is a file", "hf:" + folder("model")});
    refused("--model.init=model_124M.bin", {"Did you mean llmc:model_124M.bin?"});
    refused("--model.init=ckpt.pt", {"save_pretrained"});
    refused("--model.init=gpt2-xl", {"hf download"});
    refused("--model.init=hf:", {"path is missing"});
    refused("--model.init=gguf:x.gguf", {"x.gguf"});
    const string config = tiny_program_config("habits", {{"checkpoint", {{"every", 10}}}});
    EXPECT(train_gpt(config).code == 0, "a run");
    refused("--model.init=" + folder("habits"), {"Did you mean " + folder("habits/step_10?")});
    const Ran resumed = train_gpt(tiny_program_config("other"), "--checkpoint.resume=" + folder("habits"));
    EXPECT(resumed.code == 0 && has(resumed.out, "goes on from " + folder("habits/step_10")), "%d '%s'",
           resumed.code, resumed.err.c_str());
}

TEST(mistakes_in_data) {
    refused("--data.train=" + folder("nothing_*.bin"), {"data.train", "nothing_"});
    std::ofstream(folder("html.bin")) << "<!DOCTYPE html>" + string(5000, 'x');
    refused("--data.train=" + folder("html.bin"), {"html.bin", "20240520", "HTML"});
    std::ofstream(folder("lfs.bin")) << "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    refused("--data.train=" + folder("lfs.bin"), {"lfs.bin", "git lfs pull"});
    write_shard(folder("small.bin"), random_ids(40, 500));
    refused("--data.train=" + folder("small.bin"), {"small.bin", "40 tokens", "257"});
    const string small = "{\"path\": \"" + folder("small.bin") + "\", \"weight\": 1}";
    refused("'--data.train=[" + small + ", " + small + "]'", {"small.bin", "and the others", "80 tokens"});
    auto ids = random_ids(9000, 500);
    write_shard(folder("cut.bin"), ids);
    std::filesystem::resize_file(folder("cut.bin"), 1024 + 9001);
    refused("--data.train=" + folder("cut.bin"), {"cut.bin", "truncated", "9000"});
    ids[8000] = 60000;
    write_shard(folder("big_id.bin"), ids);
    refused("--data.train=" + folder("big_id.bin"), {"big_id.bin", "60000", "512", "model.vocab"});
    refused("--data.tokenizer=" + folder("no_tokenizer.json"), {"no_tokenizer.json"});
}

// Ranks that were started in another way than the settings or this build can use.
TEST(mistakes_in_launching) {
    const auto started = [](const string& environment, const string& args, std::vector<string> words) {
        const Ran ran = run(environment + " ./train_gpt " + tiny_program_config("launched") + " " + args);
        EXPECT(ran.code == 78, "%s %s: code %d, '%s'", environment.c_str(), args.c_str(), ran.code,
               ran.err.c_str());
        for (const string& w : words)
            EXPECT(has(ran.err, w), "%s %s: no '%s' in '%s'", environment.c_str(), args.c_str(), w.c_str(),
                   ran.err.c_str());
    };
    started("", "--parallel.transport=mpi --parallel.ranks=4", {"parallel.transport = mpi", "mpirun -np 4"});
    const string torchrun = "RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500";
    started(torchrun, "--parallel.transport=threads", {"2 processes were started", "--parallel.ranks=2"});
    started(torchrun, "--parallel.ranks=3", {"parallel.ranks = 3", "2 processes were started"});
    started("", "--parallel.transport=tcp --parallel.ranks=4", {"parallel.transport = tcp", "torchrun"});
    if (!has(run("./train_gpt --version").out, "MPI")) {
        started(torchrun, "--parallel.transport=mpi", {"this build has no MPI"});
        return;
    }
    // MPI would find itself alone
    started(torchrun, "--parallel.transport=mpi", {"torchrun started 2 processes", "mpirun", "leave it at"});
    started("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0",
            "--parallel.transport=mpi", {"srun started 2 processes", "srun --mpi=pmix"});
}

// The line of --help for a setting or a flag. Sections of missing features say so once.
static string help_of(const string& name) {
    static const string help = run("./train_gpt --help").out;
    const size_t at = help.find("\n  " + name);
    if (at == string::npos) return "";
    size_t end = at;
    do end = help.find('\n', end + 1);
    while (end != string::npos && help.compare(end + 1, 3, "   ") == 0);
    string line;
    for (const char c : help.substr(at, end - at))
        if (c != '\n' && (c != ' ' || !line.ends_with(' '))) line += c;
    return line;
}

TEST(features_of_later_versions_say_so) {
    for (const char* name : {"--plan", "run.seed", "run.hang_timeout", "parallel.cp", "memory.offload",
                             "checkpoint.every", "checkpoint.override", "--export", "76 ", "77 ", "79 "})
        EXPECT(!has(help_of(name), "not in this version") && help_of(name) != "", "%s", name);
    EXPECT(has(help_of("run.device"), "of this program: cpu"), "%s", help_of("run.device").c_str());
    refused("--run.device=cuda", {"run.device = cuda", "built for cpu", "make DEVICE=cuda"});
    refused("--parallel.transport=nccl", {"parallel.transport = nccl", "this build has no NCCL"});
}

TEST(a_folder_that_holds_a_run) {
    const string config = tiny_program_config("used");
    EXPECT(train_gpt(config, "--train.steps=1").code == 0, "the first run");
    const string before = text_of(folder("used") + "/metrics.jsonl");
    refused("", {folder("used"), "already holds a run", "--run.dir="}, config);
    EXPECT(text_of(folder("used") + "/metrics.jsonl") == before, "its metrics are touched");
    // said before data is looked at
    refused("--data.train=/nowhere.bin", {folder("used"), "already holds a run"}, config);
    // a folder with a checkpoint could be resumed; this folder has none
    std::filesystem::create_directories(folder("checkpoint_only") + "/step_5");
    const string never = "--checkpoint.resume=never", broken = tiny_program_config("checkpoint_only");
    refused(never, {"checkpoint_only", "already holds a run"}, broken);
    const Ran ran = train_gpt(broken);
    EXPECT(ran.code == 79 && has(ran.err, "step_5/manifest.json: it is missing") &&
           has(ran.err, "none is left that verifies"), "code %d, '%s'", ran.code, ran.err.c_str());
    const Ran again = train_gpt(broken);        // the folder set aside still counts
    EXPECT(again.code == 79 && !there(folder("checkpoint_only") + "/metrics.jsonl"), "code %d, '%s'",
           again.code, again.err.c_str());
}

// A failing start, early or late, leaves no new folder and keeps an old folder.
TEST(a_failed_start_leaves_no_folder) {
    const string config = tiny_program_config("failed", {{"run", {{"dir", folder("failed/deep")}}}});
    for (const string args : {"--data.train=/nowhere.bin", "--model.init=/nowhere/step_5"}) {
        refused(args, {"/nowhere"}, config);
        EXPECT(!std::filesystem::exists(folder("failed/deep")), "%s makes run.dir", args.c_str());
    }
    std::filesystem::create_directories(folder("failed/deep"));
    refused("--data.train=/nowhere.bin", {"/nowhere"}, config);
    EXPECT(std::filesystem::is_directory(folder("failed/deep")), "a folder of the user's is gone");
}

TEST(what_model_init_may_be) {
    refused("--model.init=rnadom", {"model.init = 'rnadom'", "no checkpoint", "random", "step_N"});
    refused("--model.init=rnadom --generate=Once", {"model.init = 'rnadom'", "no checkpoint"});
    const string config = tiny_program_config("untokenized", {{"checkpoint", {{"every", 10}}}});
    EXPECT(train_gpt(config).code == 0, "a run without a tokenizer");
    refused("--generate=Once", {"step_10 has no tokenizer.json", "--data.tokenizer="}, config);
}
