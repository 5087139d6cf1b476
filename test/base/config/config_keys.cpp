// INTERFACE.md's table: every key is there, and no other. Help on a part of them.
#include <cstring>
#include <set>
#include <sstream>

#include "llmc/base/config/fields.h"
#include "llmc/base/config/options.h"
#include "test/test.h"

using std::string;

TEST(keys_are_those_of_the_interface) {
    std::stringstream table(
        "about run.dir run.seed run.device run.precision run.products run.threads run.hang_timeout "
        "run.sniff run.check_every run.replay_every run.elastic run.slots run.min_ranks "
        "model.layers model.heads model.channels model.context model.vocab model.init "
        "model.norm model.norm_gain model.norm_eps model.bias model.position "
        "model.rope_theta model.rope_still model.qk_norm model.qk_gain model.attention_scale model.window "
        "model.kv_heads model.head_channels "
        "model.activation model.ffn_channels model.tied model.softcap "
        "model.shortcut model.value_embeddings "
        "model.softcap_kind model.embed_norm model.document_mask model.init_kind model.rope_scaling "
        "data.train data.val data.tokenizer data.shuffle data.rows "
        "train.steps train.batch_tokens train.micro_batch train.max_skips "
        "train.rollback "
        "optimizer.lr optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.weight_decay "
        "optimizer.grad_clip optimizer.schedule optimizer.warmup optimizer.final_lr optimizer.decay "
        "optimizer.stochastic_rounding optimizer.kind optimizer.matrix_lr optimizer.matrix_decay "
        "optimizer.momentum optimizer.momentum_warmup optimizer.polynomial optimizer.iterations "
        "optimizer.cautious optimizer.cautious_adamw optimizer.embed_lr optimizer.head_lr "
        "optimizer.vector_lr optimizer.state optimizer.master model.depth model.qkv_bias "
        "parallel.tp parallel.pp parallel.cp parallel.cp_kind parallel.zero parallel.zero_group "
        "parallel.ranks "
        "parallel.transport parallel.schedule parallel.virtual_stages parallel.order parallel.overlap "
        "parallel.reduce parallel.reduce_dtype "
        "memory.recompute memory.offload memory.device_gb eval.every eval.batches eval.tasks eval.task_every "
        "eval.task_limit eval.task_folder "
        "sample.every sample.tokens sample.temperature sample.top_k sample.top_p sample.prompt "
        "checkpoint.every checkpoint.keep_last checkpoint.keep_every checkpoint.resume "
        "checkpoint.async checkpoint.hook checkpoint.hook_timeout "
        "checkpoint.override log.every log.comm log.peak_tflops log.tensorboard "
        "log.prometheus log.trace log.health log.histograms cluster.gpu cluster.file cluster.gpus_per_node "
        "cluster.node_gbs cluster.network_gbs cluster.memory_gb cluster.watts cluster.dollars_per_hour "
        "cluster.failure_hours cluster.days cluster.dollars");
    std::set<string> promised;
    for (string key; table >> key;) promised.insert(key);
    Config c;
    std::set<string> found;
    for (const Field& f : fields(c)) EXPECT(found.insert(f.path()).second, "%s twice", f.path().c_str());
    for (const string& p : promised) EXPECT(found.contains(p), "%s is missing", p.c_str());
    for (const string& p : found) EXPECT(promised.contains(p), "%s is not promised", p.c_str());
}

TEST(help_on_a_section) {
    const string section = help_text("", "optimizer"), setting = help_text("", "train.steps");
    EXPECT(section.starts_with("optimizer: ") && section.find("optimizer.lr") != string::npos &&
               section.find("train.batch") == string::npos, "%s", section.c_str());
    EXPECT(setting.starts_with("  train.steps") && setting.find("train.batch") == string::npos, "%s",
           setting.c_str());
    const string help = help_text("    FORMATS\n");
    EXPECT(help.find("--export") < help.find("FORMATS") && help.find("FORMATS") < help.find("--watch"),
           "formats stand with --export");
    for (const std::vector<const char*>& args : std::vector<std::vector<const char*>>{
             {"./train_gpt", "--help", "optimizer"}, {"./train_gpt", "--help=optimizer"}}) {
        const Options o = parse_command_line(int(args.size()), args.data());
        EXPECT(o.help && o.config_path == "optimizer", "'%s'", o.config_path.c_str());
    }
    for (const char* topic : {"nosuch", "optimizer.nosuch", "optimiser"}) {
        const char* args[] = {"./train_gpt", "--help", topic};
        const Fatal f = test::fatal_of([&] { parse_command_line(3, args); });
        EXPECT(f.code == kExitConfig && strstr(f.what(), topic) && strstr(f.what(), "checkpoint, "),
               "%d '%s'", f.code, f.what());
    }
    for (const char* config : {"{}", "scripts/quickstart.json", "."}) {     // its help, as without
        const char* args[] = {"./train_gpt", config, "--help"};
        EXPECT(help_text("", parse_command_line(3, args).config_path) == help_text(), "%s", config);
    }
}

TEST(rules_of_rollbacks) {
    Config c = parse_config(R"({"train": {"rollback": {"every": 20, "z": 4.5}}})", "a config");
    const RollbackRule plain;
    EXPECT((c.train.rollback == RollbackRule{.every = 20, .z = 4.5}) && plain.every == 0, "by default");
    set_value(c, "train.rollback", R"({"every": 5, "skip": 0})");
    EXPECT((c.train.rollback == RollbackRule{.every = 5, .skip = 0}), "a rule is given whole");
    for (const char* rule : {"5", "{\"evry\":5}", "{\"every\":\"often\"}", "{\"every\":-1}", "{\"z\":0}",
                             "{\"z\":-1}", "{\"steps\":0}", "{\"steps\":101}", "{\"skip\":-1}",
                             "{\"most\":0}", "{\"steps\":1.5}", "[]"}) {
        const Fatal f = test::fatal_of([&] { set_value(c, "train.rollback", rule); });
        EXPECT(f.code == kExitConfig && strstr(f.what(), rule) && strstr(f.what(), "train.rollback") &&
                   strstr(f.what(), "\"z\": above 0"), "%s: '%s'", rule, f.what());
    }
}

// The numbers of YaRN that are not named are the paper's.
TEST(every_rope_scaling_reads_back) {
    Config cfg;
    for (const char* form : {R"("none")", R"({"type": "linear", "factor": 2.5})",
                             R"({"type": "llama3", "factor": 8, "low": 1, "high": 4, "context": 64})",
                             R"({"type": "yarn", "factor": 4, "context": 64, "beta_fast": 16, )"
                             R"("beta_slow": 2, "attention": 1.25})"}) {
        cfg = parse_config(fmt::format(R"({{"model": {{"rope_scaling": {}}}}})", form), "echo");
        const string read = value_json(&cfg.model.rope_scaling);
        EXPECT(read == form, "%s", read.c_str());
    }
    set_value(cfg, "model.rope_scaling", R"({"type": "yarn", "factor": 4, "context": 64})");
    const RopeScaling expected = {.kind = RopeScalingKind::Yarn, .factor = 4, .context = 64};
    EXPECT(cfg.model.rope_scaling == expected && expected.beta_fast == 32 && expected.beta_slow == 1);
}
