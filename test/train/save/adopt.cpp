// Settings that a run takes over from a model: the shape, and the tokenizer if usable.
#include "test/program.h"

using namespace test;
using std::string, std::vector;

// No default, and 8192 tokens are no multiple of this context.
static const json kShape = {{"layers", 3}, {"heads", 3}, {"channels", 48}, {"context", 40}, {"vocab", 310}};

// A config with everything but model.*
static string bare(const string& name, json changes = json::object()) {
    json all = text_config();
    all["run"]["dir"] = folder(name);
    all["run"]["seed"] = 7, all["run"]["threads"] = 1, all["run"]["precision"] = "fp32";
    all["data"].erase("tokenizer");
    all.erase("model");
    all["train"] = {{"steps", 4}, {"batch_tokens", 320}, {"micro_batch", 2}};
    all["optimizer"] = {{"schedule", "constant"}, {"warmup", 0}};
    all["eval"] = {{"every", 2}, {"batches", 2}};
    all["sample"] = {{"every", 2}, {"tokens", 5}};
    all["checkpoint"] = {{"every", 2}, {"keep_last", 0}};
    all.merge_patch(changes);
    std::ofstream(folder(name + ".json")) << all.dump(1);
    return folder(name + ".json");
}

static Ran ok(const Ran& ran) {
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    return ran;
}

// A trained model in each form that model.init takes, made once.
static const vector<string>& models() {
    static const vector<string> forms = [] {
        const json tokenizer = {{"tokenizer", (text_config(), folder("tokenizer.json"))}};
        const string config = bare("odd", {{"model", kShape}, {"data", tokenizer}});
        const string hf = "hf:" + folder("odd_hf"), llmc = "llmc:" + folder("odd.bin");
        ok(train_gpt(config));
        for (const string& to : {hf, llmc}) ok(train_gpt(config, "--export=" + to));
        return vector<string>{hf, llmc, folder("odd") + "/step_4"};
    }();
    return forms;
}

// The sizes among the settings of a run's model.
static json shape_of(const string& name) {
    const json config = json::parse(text_of(folder(name) + "/config.json"), nullptr, false);
    json sizes;
    for (const auto& [key, size] : kShape.items()) sizes[key] = config.value("model", json()).value(key, 0);
    return sizes;
}

static string weights_of(const string& name, int step) {
    return text_of(folder(name) + "/step_" + std::to_string(step) + "/rank_00000.safetensors");
}

static string from(const string& init) { return " --model.init=" + init; }

// ---------------------------------------------------------------------------------------------------------

TEST(a_config_without_a_shape_trains_as_one_that_names_it) {
    for (size_t i = 0; i < models().size(); i++) {
        const string init = from(models()[i]), name = "open_" + std::to_string(i);
        ok(train_gpt(bare(name), init));
        ok(train_gpt(bare("named", {{"model", kShape}}), init + " --run.dir=" + folder("named_" + name)));
        EXPECT(shape_of(name) == kShape, "%s: %s", models()[i].c_str(), shape_of(name).dump().c_str());
        EXPECT(weights_of(name, 4).size() > 100000 && weights_of(name, 4) == weights_of("named_" + name, 4),
               "%s: other weights", models()[i].c_str());
        EXPECT(timeless(name) == timeless("named_" + name), "%s: other rows", models()[i].c_str());
    }
}

TEST(several_ranks_adopt_one_shape) {
    const string init = from(models()[0]);
    for (const string mesh : {"--parallel.tp=3 --parallel.ranks=3", "--parallel.pp=3 --parallel.ranks=3",
                              "--parallel.ranks=2 --parallel.zero=2"}) {
        ok(train_gpt(bare("ranks"), init + " --parallel.transport=threads " + mesh));
        EXPECT(shape_of("ranks") == kShape, "%s: %s", mesh.c_str(), shape_of("ranks").dump().c_str());
        run("rm -r " + folder("ranks"));
    }
    // tp is compared with the model's heads, not with the default's 12
    const Ran ran = train_gpt(bare("heads"), init + " --parallel.transport=threads --parallel.ranks=2 "
                                                    "--parallel.tp=2");
    EXPECT(ran.code == 78 && has(ran.err, "model.heads = 3"), "code %d, '%s'", ran.code, ran.err.c_str());
}

TEST(other_commands_take_the_shape) {
    for (const string& form : models()) {
        const Ran plan = ok(train_gpt(bare("planned"), "--plan" + from(form)));
        EXPECT(has(plan.out, "\"channels\": 48") && has(plan.out, "\"context\": 40"), "%s",
               plan.out.c_str());
        EXPECT(!there(folder("planned")), "--plan leaves a folder");
        const string any = bare("any", {{"data", {{"tokenizer", folder("tokenizer.json")}}},
                                        {"train", {{"batch_tokens", 8192}}}, {"model", {{"layers", 5}}}});
        const Ran text = ok(train_gpt(any, "--generate=the" + from(form)));
        EXPECT(has(text.out, "the"), "'%s'", text.out.c_str());
        ok(train_gpt(any, "--export=llmc:" + folder("again.bin") + from(form)));
        EXPECT(text_of(folder("again.bin")) == text_of(folder("odd.bin")), "%s: another model", form.c_str());
    }
}

TEST(a_named_key_that_differs_is_an_error) {
    for (const string& form : models())
        for (const auto& [key, other] :
             vector<std::pair<string, int>>{{"layers", 4}, {"heads", 4}, {"channels", 96}, {"vocab", 311},
                                            {"context", 80}}) {
            const string value = std::to_string(other), theirs = kShape[key].dump();
            for (const string flag : {"", "--plan "}) {
                const string args = flag + "--model." + key + "=" + value + from(form);
                const Ran ran = train_gpt(bare("differs"), args);
                EXPECT(ran.code == 78 && has(ran.err, "model." + key + " = " + value) &&
                       has(ran.err, theirs) && count_of(ran.err, "\n") == 1, "%s: code %d, '%s'",
                       args.c_str(), ran.code, ran.err.c_str());
                EXPECT(!there(folder("differs") + "/metrics.jsonl"), "%s: rows", args.c_str());
            }
        }
    // fewer positions are a part of the model
    const Ran fewer = ok(train_gpt(bare("fewer"), "--model.context=32 " + from(models()[0])));
    EXPECT(shape_of("fewer")["context"] == 32, "%s", fewer.out.c_str());
}

// Rotary positions go on with a longer context, and rotate slower there. One line says so.
TEST(rotary_models_go_on_with_a_longer_context) {
    json rope = kShape;
    rope.merge_patch({{"position", "rope"}, {"norm", "rmsnorm"}, {"bias", false}, {"activation", "swiglu"}});
    const json tokenizer = {{"tokenizer", (text_config(), folder("tokenizer.json"))}};
    const string config = bare("rotary", {{"model", rope}, {"data", tokenizer}}), hf = folder("rotary_hf");
    ok(train_gpt(config));
    ok(train_gpt(config, "--export=hf:" + hf));
    const string yarn = R"({"type": "yarn", "factor": 2, "context": 40})";
    const string longer = " --model.context=80 '--model.rope_scaling=" + yarn + "'";
    for (const string& init : {"hf:" + hf, folder("rotary") + "/step_4"}) {
        for (const string command : {"--plan", ""}) {
            const Ran ran = ok(train_gpt(bare("longer"), command + from(init) + longer));
            const bool says = has(ran.err, "model.context = 80, not 40, model.rope_scaling = {\"type\": ");
            EXPECT(says && count_of(ran.err, "warning") == 1 && count_of(ran.err, "\n") == 1, "'%s'",
                   ran.err.c_str());
        }
        const json model = json::parse(text_of(folder("longer") + "/config.json"))["model"];
        EXPECT(model["context"] == 80 && model["rope_scaling"]["type"] == "yarn", "%s", model.dump().c_str());
        ok(train_gpt(bare("longer"), "--export=hf:" + folder("longer_hf")));
        const json theirs = json::parse(text_of(folder("longer_hf") + "/config.json"));
        EXPECT(theirs["max_position_embeddings"] == 80 && theirs["rope_scaling"]["factor"] == 2, "%s",
               theirs.dump().c_str());
        run("rm -r " + folder("longer") + " " + folder("longer_hf"));
    }
    // the same context without the scaling is the import as it is
    const Ran same = ok(train_gpt(bare("same"), from("hf:" + hf)));
    EXPECT(!has(same.err, "warning"), "'%s'", same.err.c_str());
}

// ---------------------------------------------------------------------------------------------------------
// going on

// The memory plan that --plan prints, without the line that says how much memory is free just now.
static string memory_of(const Ran& plan) {
    const size_t begin = plan.out.find('\n');
    return plan.out.substr(begin, plan.out.find("\n{") - begin);
}

// The import may be gone, or model.init may name another model: the checkpoint has the shape.
TEST(a_run_goes_on_with_the_shape_of_its_checkpoint) {
    for (const string& form : models()) {
        const string copy = folder("gone"), prefix = form.substr(0, form.find(':') + 1);
        run("cp -r " + form.substr(prefix.size()) + " " + copy);
        const string args = from(prefix + copy) + " --train.steps=2";
        ok(train_gpt(bare("goes_on"), args));
        run("rm -r " + copy);
        const Ran plan = ok(train_gpt(bare("goes_on"), "--plan" + args));
        EXPECT(has(plan.out, "\"channels\": 48") && has(plan.out, "\"vocab\": 310"), "%s", plan.out.c_str());
        EXPECT(memory_of(plan) == memory_of(ok(train_gpt(bare("fresh"), "--plan" + from(form)))), "'%s'",
               plan.out.c_str());
        const Ran on = ok(train_gpt(bare("goes_on"), from(prefix + copy)));
        EXPECT(has(on.out, "is not read") && shape_of("goes_on") == kShape, "'%s'", on.out.c_str());
        ok(train_gpt(bare("straight"), from(form)));
        EXPECT(weights_of("goes_on", 4) == weights_of("straight", 4), "%s: other weights", form.c_str());
        run("rm -r " + folder("goes_on") + " " + folder("straight"));
    }
}

TEST(a_checkpoint_goes_before_another_model) {
    ok(train_gpt(bare("first", {{"model", {{"layers", 2}, {"heads", 2}, {"channels", 32}, {"context", 20}}}}),
                 "--train.steps=2"));
    const Ran on = ok(train_gpt(bare("first"), from(models()[0])));
    EXPECT(has(on.out, "model.init = '" + models()[0] + "' is not read: the run goes on from " +
                       folder("first") + "/step_2"), "'%s'", on.out.c_str());
    EXPECT(shape_of("first")["channels"] == 32 && shape_of("first")["context"] == 20, "another shape");
    const Ran refused = train_gpt(bare("first"), "--model.heads=4");
    EXPECT(refused.code == 78 && has(refused.err, "model.heads") && has(refused.err, "checkpoint.override"),
           "code %d, '%s'", refused.code, refused.err.c_str());
}

// No shape is known then, which is no reason for another exit code than 79.
TEST(damaged_checkpoints_keep_their_exit_code) {
    const string step = models()[2];
    run("cp -r " + folder("odd") + " " + folder("cut") + " && truncate -s -1 " + folder("cut") +
        "/step_*/rank_00000.safetensors");
    const Ran all = train_gpt(bare("cut"), "--train.batch_tokens=10240" + from("hf:/nowhere"));
    EXPECT(all.code == 79, "code %d, '%s'", all.code, all.err.c_str());
    run("cp -r " + step + " " + folder("cut_init") + " && truncate -s -1 " + folder("cut_init") +
        "/rank_00000.safetensors");
    const Ran init = train_gpt(bare("from_cut"), from(folder("cut_init")));
    EXPECT(init.code == 79 && has(init.err, "damaged"), "code %d, '%s'", init.code, init.err.c_str());
}

// ---------------------------------------------------------------------------------------------------------
// the tokenizer

// The imported model with a tokenizer.json that `change` has made unusable.
static string with_tokenizer(const string& name, void (*change)(json&)) {
    const string dir = folder(name);
    run("rm -rf " + dir + " && cp -r " + models()[0].substr(3) + " " + dir);
    json tokenizer = json::parse(text_of(dir + "/tokenizer.json"));
    change(tokenizer);
    std::ofstream(dir + "/tokenizer.json") << tokenizer.dump();
    return "hf:" + dir;
}

TEST(a_tokenizer_that_cannot_be_used_is_one_warning) {
    void (*const changes[])(json&) = {
        [](json& t) { t["model"]["vocab"].erase("\u0100"); },
        [](json& t) { t["model"]["type"] = "Unigram", t["model"]["vocab"] = {{"a", -1.0}}; },
        [](json& t) { t["pre_tokenizer"] = {{"type", "Whitespace"}}; },
        [](json& t) { t = json::array(); },
        [](json& t) {                   // more ids than the model has
            for (int id = 300; id < 311; id++)
                t["added_tokens"].push_back({{"id", id}, {"content", "<|" + std::to_string(id) + "|>"}});
        }};
    ok(train_gpt(bare("usable"), from(models()[0])));
    EXPECT(rows_of("usable", "sample").size() == 2, "no text with a good tokenizer");
    EXPECT(rows_of("usable", "val").at(0).contains("bits_per_byte"), "no bits with a good tokenizer");
    vector<string> starts = {""};
    if (run("command -v mpirun").code == 0 && has(run("./train_gpt --version").out, "MPI"))
        starts.push_back("mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np 2 ");
    for (auto change : changes) {
        const string init = from(with_tokenizer("spoiled", change));
        for (const string& start : starts) {
            const auto train = [&](const string& args) {
                return ok(run(start + "./train_gpt " + bare("silent") + init + args));
            };
            const Ran ran = train("");
            EXPECT(count_of(ran.out + ran.err, "warning") == 1 && has(ran.err, "tokenizer.json") &&
                   count_of(ran.err, "\n") == 1, "'%s'", ran.err.c_str());
            EXPECT(shape_of("silent") == kShape && rows_of("silent", "sample").empty(), "a text");
            for (const json& row : rows_of("silent", "val")) EXPECT(!row.contains("bits_per_byte"), "bits");
            EXPECT(rows_of("silent", "val").size() == 3, "no evaluation");
            const Ran again = train(" --train.steps=6");
            EXPECT(!has(again.err, "warning"), "the checkpoint has no tokenizer either: '%s'",
                   again.err.c_str());
            run("rm -r " + folder("silent"));
        }
        for (const char* steps : {"", " --train.steps=6"}) {         // the second run goes on from the first
            const Ran ran = ok(train_gpt(bare("unscored"), init + " '--eval.tasks=[\"any\"]'" + steps));
            EXPECT(count_of(ran.out + ran.err, "warning") == 1 && has(ran.err, "and scores no eval.tasks") &&
                   count_of(ran.err, "\n") == 1, "'%s'", ran.err.c_str());
        }
        run("rm -r " + folder("unscored"));
        const Ran plan = ok(train_gpt(bare("silent"), "--plan" + init));
        EXPECT(count_of(plan.err, "warning") == 1, "'%s'", plan.err.c_str());
        const Ran text = train_gpt(bare("silent"), "--generate=the" + init);
        EXPECT(text.code == 78 && has(text.err, "tokenizer.json") && has(text.err, "--data.tokenizer"),
               "code %d, '%s'", text.code, text.err.c_str());
        const Ran exported = ok(train_gpt(bare("silent"), "--export=llmc:" + folder("again.bin") + init));
        EXPECT(count_of(exported.err, "warning") == 1 && text_of(folder("again.bin")) ==
               text_of(folder("odd.bin")), "'%s'", exported.err.c_str());
    }
    // a tokenizer that the settings name has to be right
    const string named = "--data.tokenizer=" + folder("spoiled") + "/tokenizer.json";
    const Ran ran = train_gpt(bare("silent"), named + from(models()[0]));
    EXPECT(ran.code == 78, "code %d, '%s'", ran.code, ran.err.c_str());
}
