// ./train_gpt resumes a run as a user would: after kills, from a named folder, with open or changed settings,
// with damage from a disk.
#include <cmath>
#include <filesystem>

#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

// Training waits for the disk: no checkpoint is skipped.
static json saving_every(int steps, json changes = json::object()) {
    changes.merge_patch({{"checkpoint", {{"every", steps}, {"keep_last", 0}, {"async", false}}}});
    return changes;
}

// Equal in two runs, however often started.
static string rows_in_common(const string& name) {
    string text;
    for (json row : rows_of(name)) {
        const string event = row["event"];
        if (event != "train" && event != "val" && event != "sample") continue;
        for (const char* key : {"ms", "tokens_per_s", "mfu"}) row.erase(key);
        text += row.dump() + "\n";
    }
    return text;
}

static string weights_of(const string& name, int step) {
    return text_of(folder(name) + fmt::format("/step_{}/rank_00000.safetensors", step));
}
static json manifest_of(const string& name, int step) {
    return json::parse(text_of(folder(name) + fmt::format("/step_{}/manifest.json", step)));
}

// A copy of a run that came no further than this step.
static void copy_up_to(int step, const string& from, const string& to) {
    fs::remove_all(folder(to));
    fs::copy(folder(from), folder(to), fs::copy_options::recursive);
    for (const auto& e : fs::directory_iterator(folder(to))) {
        const string name = e.path().filename();
        if (name.starts_with("step_") && atoi(name.c_str() + 5) > step) fs::remove_all(e.path());
    }
}

static void expect_same_run(const string& name, const string& reference, int last) {
    EXPECT(rows_in_common(name) == rows_in_common(reference), "%s: rows differ:\n%s", name.c_str(),
           rows_in_common(name).c_str());
    EXPECT(weights_of(name, last) == weights_of(reference, last) && weights_of(name, last).size() > 1000,
           "%s: tensors differ", name.c_str());
    EXPECT(manifest_of(name, last)["state"] == manifest_of(reference, last)["state"], "%s: states differ",
           name.c_str());
}

// Ten steps without text, a checkpoint each second step; made once.
static string straight() {
    static const Ran ran = train_gpt(tiny_program_config("straight", saving_every(2)));
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    return "straight";
}

// A start with the settings of straight() and others, from its checkpoint of this step.
static Ran go_on(const string& name, int step, const string& args) {
    copy_up_to(step, straight(), name);
    return train_gpt(tiny_program_config(name, saving_every(2)), args);
}

// ---------------------------------------------------------------------------------------------------------
// after kills

// Killed while training, evaluating and sampling, and while saving beside training. A single kill waits for a
// checkpoint: the other kills may come before the first checkpoint.
TEST(a_run_that_is_killed_is_the_run_that_never_was) {
    EXPECT(train_gpt(tiny_program_config("prose", saving_every(4, text_config()))).code == 0, "straight");
    const string config = tiny_program_config("killed", saving_every(4, text_config()));
    const struct { const char *fault, *async; } kills[] = {
        {"train:6:kill", "true"}, {"evaluate:10:kill", "false"}, {"train:13:kill", "true"},
        {"sample:20:kill", "true"}};
    for (const auto& [fault, async] : kills) {
        const Ran ran = run(string("FAULT=") + fault + " ./train_gpt " + config + " --checkpoint.async=" +
                            async);
        EXPECT(ran.code == 75 && has(ran.err, "SIGKILL"), "%s: code %d, '%s'", fault, ran.code,
               ran.err.c_str());
    }
    const Ran ran = train_gpt(config);
    EXPECT(ran.code == 0 && has(ran.out, "goes on from " + folder("killed") + "/step_"), "code %d, '%s'",
           ran.code, ran.err.c_str());
    expect_same_run("killed", "prose", 20);
    EXPECT(rows_of("killed", "resume").size() >= 1 && rows_of("killed", "start").size() == 1, "starts");
}

// The state may have been in the host's memory, and is again.
TEST(offloaded_state_goes_on) {
    for (const string kind : {"optimizer", "activations"}) {
        const Ran ran = go_on(kind, 4, "--memory.offload=" + kind + " --memory.recompute=block");
        EXPECT(ran.code == 0 && has(ran.out, "memory.offload"), "code %d, '%s'", ran.code, ran.err.c_str());
        EXPECT(has(ran.out, "offload of " + kind + " saves nothing here"), "%s", ran.out.c_str());
        expect_same_run(kind, straight(), 10);
    }
}

// SIGUSR1 to a rank of two saves both; with damaged checkpoints, exit code 79.
TEST(two_ranks) {
    const bool mpi = run("command -v mpirun").code == 0 && has(run("./train_gpt --version").out, "MPI");
    const string config = tiny_program_config("pair", {{"train", {{"steps", 60}}}, {"eval", {{"every", 0}}}});
    const string start = mpi ? "mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np 2 " : "";
    const string threads = mpi ? "" : " --parallel.ranks=2 --parallel.transport=threads";
    const string metrics = folder("pair") + "/metrics.jsonl";
    const Ran ran = run("FAULT=train:1:20 " + start + "./train_gpt " + config + threads + " & pid=$!\n"
                        "i=0; until grep -q train " + metrics + " 2>/dev/null; do sleep 0.02; "
                        "i=$((i+1)); [ $i -lt 1500 ] || break; done; kill -USR1 $pid; wait $pid");
    EXPECT(ran.code == 0 && has(ran.out, "saved"), "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(steps_of("pair", "train").size() == 60 && !rows_of("pair", "done").empty(), "it goes on");
    size_t saved = 0;
    for (const auto& e : fs::directory_iterator(folder("pair"))) {
        if (!e.path().filename().string().starts_with("step_")) continue;
        saved++;
        const string share = e.path().string() + "/rank_00001.safetensors";
        EXPECT(there(share), "no share of rank 1");
        fs::resize_file(share, 100);
    }
    EXPECT(saved == 1, "%zu checkpoints", saved);
    const string more = " --train.steps=61 --checkpoint.override='[\"train.steps\"]'";
    const Ran damaged = run(start + "./train_gpt " + config + threads + more);
    EXPECT(damaged.code == 79 && has(damaged.err, "rank_00001.safetensors: 100 bytes") &&
           has(damaged.err, "none is left that verifies"), "code %d, '%s'", damaged.code,
           damaged.err.c_str());
}

// Leftovers of a killed run are removed at the next start, even after the last step; an evaluation removes
// no file.
TEST(old_checkpoints_go_at_the_start) {
    const string two = "--checkpoint.keep_last=2 --checkpoint.keep_every=4";
    const auto kept = [] {
        std::vector<int> steps;
        for (int k = 0; k <= 10; k++)
            if (fs::exists(folder("pruned") + fmt::format("/step_{}", k))) steps.push_back(k);
        return steps;
    };
    EXPECT(go_on("pruned", 10, two + " --train.steps=0").code == 0, "an evaluation");
    const size_t before = kept().size();
    const Ran ran = go_on("pruned", 10, two);
    EXPECT(before >= 5 && ran.code == 0 && kept() == std::vector<int>({4, 8, 10}),
           "code %d, %zu of %zu are kept", ran.code, kept().size(), before);
}

// ---------------------------------------------------------------------------------------------------------
// settings

TEST(changed_settings_are_shown_and_refused) {
    const Ran refused = go_on("changed", 6, "--optimizer.lr=5e-4 --eval.batches=1");
    EXPECT(refused.code == 78 && has(refused.err, "optimizer.lr") && has(refused.err, "checkpoint.override"),
           "code %d, '%s'", refused.code, refused.err.c_str());
    for (const char* word : {"checkpoint", "now", "effective", "optimizer.lr", "5e-04", "refused",
                             "eval.batches"})
        EXPECT(has(refused.out, word), "no '%s' in '%s'", word, refused.out.c_str());
    EXPECT(rows_in_common("changed") == rows_in_common(straight()), "a refusal cuts metrics.jsonl");
    const Ran ran = go_on("changed", 6, "--optimizer.lr=5e-4 --checkpoint.override='[\"optimizer.lr\"]'");
    EXPECT(ran.code == 0 && has(ran.out, "optimizer.lr") && !has(ran.out, "refused"), "code %d, '%s'",
           ran.code, ran.err.c_str());
    const auto now = rows_of("changed", "train"), before = rows_of(straight(), "train");
    EXPECT(now.size() == 10 && now.at(5) == before.at(5), "rows up to the checkpoint are the same");
    EXPECT(now.at(6)["loss"] == before.at(6)["loss"] && now.at(6)["lr"] < before.at(6)["lr"], "then half");
}

// Another batch: samples continue at the checkpoint, each exactly once. At a learning rate of 0, a batch
// twice as large has the mean loss of two batches.
TEST(samples_go_on_where_they_were) {
    const string still = "--optimizer.lr=0 --train.steps=8 --checkpoint.override='[\"optimizer.lr\","
                         "\"train.steps\",\"train.batch_tokens\"]'";
    const Ran one = go_on("one_batch", 4, still);
    const Ran ran = go_on("batch", 4, still + " --train.batch_tokens=512");
    EXPECT(one.code == 0 && ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    const json at4 = manifest_of("batch", 4)["state"], at8 = manifest_of("batch", 8)["state"];
    EXPECT(at4["loader"]["sample"] == 4 * 8 && at8["loader"]["sample"] == 4 * 8 + 4 * 16, "%s",
           at8.dump().c_str());
    EXPECT(at8["rng"]["seed"] == 7 && has(at8["rng"]["kind"], "philox"), "%s", at8.dump().c_str());
    const auto a = rows_of("one_batch", "train"), b = rows_of("batch", "train");
    for (size_t i = 0; i < 2; i++)
        EXPECT_NEAR(b.at(4 + i)["loss"].get<double>(), (a.at(4 + 2 * i)["loss"].get<double>() +
                    a.at(5 + 2 * i)["loss"].get<double>()) / 2, 1e-5);
}

// What the settings leave open is the checkpoint's: as many sequences at once as fit would be 8.
TEST(open_settings_are_the_checkpoints) {
    const json two = saving_every(2, {{"train", {{"micro_batch", 2}}}});
    EXPECT(train_gpt(tiny_program_config("two", two)).code == 0, "straight");
    copy_up_to(4, "two", "open");
    const Ran ran = train_gpt(tiny_program_config("open", two), "--train.micro_batch=0 --model.vocab=0");
    EXPECT(ran.code == 0 && has(ran.out, "(2 x 32 at once)") && !has(ran.out, "settings that differ"),
           "code %d, '%s' '%s'", ran.code, ran.out.c_str(), ran.err.c_str());
    expect_same_run("open", "two", 10);
    // an impossible case is reported
    copy_up_to(4, "two", "ranks");
    const Ran other = train_gpt(tiny_program_config("ranks", two), "--train.micro_batch=0 "
                                "--parallel.ranks=8 --parallel.transport=threads");
    EXPECT(other.code == 0 && has(other.out, "train.micro_batch"), "code %d, '%s' '%s'", other.code,
           other.out.c_str(), other.err.c_str());
}

TEST(the_precision_is_the_checkpoints) {
    for (const string precision : {"fp32", "bf16"}) {
        const string config = tiny_program_config("auto", saving_every(10));
        fs::remove_all(folder("auto"));
        EXPECT(train_gpt(config, "--run.precision=" + precision).code == 0, "%s", precision.c_str());
        const Ran ran = train_gpt(config, "--run.precision=auto --train.steps=12 "
                                          "--checkpoint.override='[\"train.steps\"]'");
        EXPECT(ran.code == 0 && has(ran.out, " thread, " + precision), "%s: code %d, '%s'", precision.c_str(),
               ran.code, ran.err.c_str());
    }
}

// An imported model brings its tokenizer; resuming needs neither the model nor model.vocab.
TEST(fine_tuning_goes_on) {
    const string prose = tiny_program_config("origin", saving_every(20, text_config()));
    EXPECT(train_gpt(prose).code == 0 && train_gpt(prose, "--export=hf:" + folder("hf")).code == 0, "export");
    json changes = saving_every(2, text_config());
    changes["data"].erase("tokenizer");
    changes["model"]["init"] = "hf:" + folder("hf");
    changes["train"]["steps"] = 6, changes["eval"]["every"] = 3, changes["sample"]["every"] = 3;
    const Ran ran = train_gpt(tiny_program_config("tuned", changes));
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(rows_of("tuned", "sample").size() == 2 && rows_of("tuned", "val").at(0).contains("bits_per_byte"),
           "no text");
    EXPECT(there(folder("tuned") + "/step_6/tokenizer.json"), "no tokenizer in the checkpoint");
    copy_up_to(2, "tuned", "tuned_on");
    fs::remove_all(folder("hf"));
    const Ran on = train_gpt(tiny_program_config("tuned_on", changes));
    EXPECT(on.code == 0 && !has(on.out, "refused"), "code %d, '%s'", on.code, on.err.c_str());
    expect_same_run("tuned_on", "tuned", 6);
}

// ---------------------------------------------------------------------------------------------------------
// from a folder that is named

// A folder with later checkpoints refuses a resume from an older step; both remedies work.
TEST(a_checkpoint_that_is_not_the_newest) {
    const string from = "--checkpoint.resume=" + folder("named") + "/step_4";
    const Ran refused = go_on("named", 10, from);
    for (const string& word : {string("step 4"), folder("named") + "/step_10", string("--run.dir="),
                               string("--checkpoint.resume=auto")})
        EXPECT(refused.code == 78 && has(refused.err, word), "code %d, no '%s' in '%s'", refused.code,
               word.c_str(), refused.err.c_str());
    EXPECT(rows_in_common("named") == rows_in_common(straight()), "its metrics are touched");

    const string elsewhere = tiny_program_config("elsewhere", saving_every(2));
    EXPECT(train_gpt(elsewhere, from).code == 0, "another folder");
    EXPECT(weights_of("elsewhere", 10) == weights_of(straight(), 10), "another folder: tensors differ");
    // the same command again would go back
    EXPECT(train_gpt(elsewhere, from).code == 78, "back to step 4");
}

// With a slash at the end, or through a link, the name still means the folder of run.dir: no second save.
// Leftovers of an earlier start do no harm.
TEST(a_checkpoint_by_another_name) {
    for (const string& name : {string("/step_6/"), string("/../by_name/./step_6"), string("/../link")}) {
        copy_up_to(6, straight(), "by_name");
        fs::remove(folder("link"));
        fs::create_directory_symlink(folder("by_name") + "/step_6", folder("link"));
        fs::create_directories(folder("by_name") + "/step_8.tmp-1");
        std::ofstream(folder("by_name") + "/step_8.tmp-1/rank_00000.safetensors") << "half";
        std::ofstream(folder("by_name") + "/shared.tmp-77") << "";
        const Ran ran = train_gpt(tiny_program_config("by_name", saving_every(2)),
                                  "--checkpoint.resume=" + folder("by_name") + name);
        EXPECT(ran.code == 0 && !has(ran.err, "warning"), "%s: code %d, '%s'", name.c_str(), ran.code,
               ran.err.c_str());
        expect_same_run("by_name", straight(), 10);
        for (const auto& e : fs::directory_iterator(folder("by_name")))
            EXPECT(!has(e.path().filename(), "tmp"), "%s is left", e.path().c_str());
    }
}

// An evaluation of an earlier checkpoint leaves the run as it is, but for its own rows.
TEST(an_evaluation_cuts_nothing) {
    const string before = text_of(folder(straight()) + "/metrics.jsonl"),
                 config = text_of(folder(straight()) + "/config.json");
    const Ran good = go_on("look", 10, "--train.steps=0 --checkpoint.resume=" + folder("look") + "/step_6");
    EXPECT(good.code == 0, "code %d, '%s'", good.code, good.err.c_str());
    EXPECT(text_of(folder("look") + "/metrics.jsonl").starts_with(before), "rows are gone");
    EXPECT(text_of(folder("look") + "/config.json") == config, "its settings are replaced");
    EXPECT(rows_of("look", "val").size() == 4 && rows_of("look", "val").back()["step"] == 6, "an evaluation");
    EXPECT(train_gpt(tiny_program_config("look", saving_every(2))).code == 0, "the run is still done");
    EXPECT(rows_in_common("look") == rows_in_common(straight()), "and has its rows");
}

// A run stopped before the first step is unchanged.
TEST(stopped_in_the_first_turn) {
    copy_up_to(6, straight(), "at_once");
    const string config = tiny_program_config("at_once", saving_every(2));
    const Ran ran = run("FAULT=load:0:1500 ./train_gpt " + config + " & pid=$!; sleep 0.7; kill -TERM $pid; "
                        "wait $pid");
    EXPECT(ran.code == 75 && has(ran.out, "saved as " + folder("at_once") + "/step_6;"), "code %d, '%s' '%s'",
           ran.code, ran.out.c_str(), ran.err.c_str());
}
