#include <algorithm>
#include <cstring>
#include <fstream>

#include "llmc/base/config/fields.h"
#include "llmc/base/config/options.h"
#include "llmc/base/host/version.h"
#include "test/test.h"

using std::string;

static string write_file(const string& name, const string& text) {
    const string path = test::folder(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
}

static Options parse(const string& json, std::vector<string> args) {
    const string file = write_file("config.json", json);
    std::vector<const char*> argv = {"./train_gpt", file.c_str()};
    for (const string& a : args) argv.push_back(a.c_str());
    return parse_command_line(int(argv.size()), argv.data());
}

// The command ends with exit code 78 and at most 8 lines with every word.
static void expect_refused(const char* what, const Fatal& e, std::vector<const char*> words) {
    const string text = e.what();
    EXPECT(e.code == kExitConfig, "%s: code %d, '%s'", what, e.code, text.c_str());
    EXPECT(std::count(text.begin(), text.end(), '\n') <= 6, "%s: too long: '%s'", what, text.c_str());
    for (const char* w : words) EXPECT(strstr(text.c_str(), w), "%s: no '%s' in '%s'", what, w, text.c_str());
}

static void refuse_args(std::vector<string> args, std::vector<const char*> words) {
    expect_refused(args.empty() ? "" : args[0].c_str(), test::fatal_of([&] { parse("{}", args); }), words);
}

static void refuse_json(const string& json, std::vector<const char*> words) {
    expect_refused(json.substr(0, 60).c_str(), test::fatal_of([&] { parse_config(json, "some.json"); }),
                   words);
}

// ---------------------------------------------------------------------------------------------------------

TEST(defaults_hold) {
    const Options o = parse("{}", {});
    EXPECT(o.config.model.channels == 768 && !o.plan && !o.generate, "channels %d", o.config.model.channels);
    for (const char* section : {"run", "model", "data", "train", "optimizer", "parallel", "memory", "eval",
                                "sample", "checkpoint", "log"})
        parse(fmt::format("{{\"{}\": {{}}}}", section), {});
}

// Sets every field to something other than its default.
static void change(const Field& f) {
    std::visit([&](auto* p) {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, bool>) *p = !*p;
        else if constexpr (std::is_same_v<T, double>) *p = *p == 0.7 ? 0.3 : 0.7;
        else if constexpr (std::is_arithmetic_v<T>) *p = f.limits.high <= 3 ? T(f.limits.high) : *p + 3;
        else if constexpr (std::is_same_v<T, string>) {
            *p = "a \"text\"\n with \xc3\xa9, \\ and \x01";
        } else if constexpr (std::is_same_v<T, Word>) {
            EXPECT(p->parse(strrchr(p->words, '|') + 1), "%s", p->words);
        } else if constexpr (std::is_same_v<T, std::vector<Corpus>>) *p = {{"a/*.bin", 0.1}, {"b", 3}};
        else if constexpr (std::is_same_v<T, std::vector<int>>) *p = {64, 64, 0};
        else if constexpr (std::is_same_v<T, std::vector<int64_t>>) *p = {3, 1000000};
        else if constexpr (std::is_same_v<T, RopeScaling>) *p = {RopeScalingKind::Llama3, 32, 0.5, 3, 4096};
        else if constexpr (std::is_same_v<T, RollbackRule>) *p = {100, 4.5, 2, 0, 7};
        else *p = {"optimizer.lr", "train.steps"};
    }, f.value);
}

TEST(config_to_json_and_back) {
    Config a;
    const string before = to_json(a);
    for (const Field& f : fields(a)) {
        const string was = value_json(f.value);
        change(f);
        EXPECT(value_json(f.value) != was && allowed(f), "%s stays %s", f.path().c_str(), was.c_str());
    }
    Config b = parse_config(to_json(a), "echo");
    const auto x = fields(a), y = fields(b);
    EXPECT(x.size() == y.size() && x.size() > 60, "%zu and %zu", x.size(), y.size());
    for (size_t i = 0; i < x.size(); i++) {
        const bool same =
            std::visit([&](auto* p) { return *p == *std::get<decltype(p)>(y[i].value); }, x[i].value);
        EXPECT(same, "%s: %s and %s", x[i].path().c_str(), value_json(x[i].value).c_str(),
               value_json(y[i].value).c_str());
    }
    EXPECT(to_json(Config{}) == before && to_json(b) == to_json(a), "%s", to_json(b).c_str());
}

TEST(zero_has_no_sign) {
    Config cfg;
    set_value(cfg, "optimizer.lr", "-0e-4");
    EXPECT(to_json(parse_config(to_json(cfg), "echo")) == to_json(cfg), "an echo that reads back differs");
}

TEST(every_key_is_set_by_the_command_line) {
    Config a, b;
    for (const Field& f : fields(a)) {
        change(f);
        string text = value_json(f.value);
        if (auto* s = std::get_if<string*>(&f.value)) text = **s;
        if (auto* word = std::get_if<Word*>(&f.value)) text = (*word)->text();
        set_value(b, f.path(), text);
    }
    EXPECT(to_json(a) == to_json(b), "%s", to_json(b).c_str());
}

TEST(help_has_every_key_and_fits) {
    const string help = help_text();
    Config c;
    for (const Field& f : fields(c))
        EXPECT(help.find("  " + f.path() + "  ") != string::npos, "%s", f.path().c_str());
    size_t begin = 0;
    for (size_t end; (end = help.find('\n', begin)) != string::npos; begin = end + 1) {
        const string line = help.substr(begin, end - begin);
        EXPECT(line.size() <= 110 && !line.ends_with(" "), "'%s'", line.c_str());
    }
    for (const char* word :
         {"75", "76", "77", "78", "79", "--plan", "--generate", "--export", "cosine, linear, wsd",
          "template adds one, else"})
        EXPECT(help.find(word) != string::npos, "%s", word);
}

TEST(version_names_the_commit) {
    const string text = version_text("oneDNN 2.6.3");
    EXPECT(strlen(commit) >= 7, "%s", commit);
    for (const char* word : {commit, "oneDNN 2.6.3", "fp64", "cpu"})
        EXPECT(text.find(word) != string::npos, "%s", text.c_str());
}

// ---------------------------------------------------------------------------------------------------------
// command line

TEST(command_line_goes_before_the_file) {
    const Options o =
        parse(R"({"about": "x", "train": {"steps": 5, "batch_tokens": 4096}, "optimizer": {"lr": 1}})",
              {"--train.steps=7", "--train.steps=9", "--optimizer.lr", ".5", "--data.shuffle=false",
               R"(--data.train=[{"path": "a*.bin", "weight": 2}, {"path": "b.bin"}])", "--data.val=v=1.bin",
               "--sample.prompt=", "--generate", "Once", "--train.micro_batch=2"});
    const Config& c = o.config;
    EXPECT(c.train.steps == 9 && c.train.batch_tokens == 4096 && c.train.micro_batch == 2, "%lld",
           (long long)c.train.steps);
    EXPECT(c.optimizer.lr == 0.5 && !c.data.shuffle && c.about == "x" && c.sample.prompt.empty(), "lr %g",
           c.optimizer.lr);
    const std::vector<Corpus> two = {{"a*.bin", 2}, {"b.bin", 1}}, one = {{"v=1.bin", 1}};
    EXPECT(c.data.train == two && c.data.val == one, "%s", to_json(c).c_str());
    EXPECT(!o.plan && o.generate == "Once" && !o.export_to && !o.help, "flags");
    EXPECT(parse("{}", {"--plan"}).plan, "plan");
    EXPECT(parse("{}", {"--generate=a=b c"}).generate == "a=b c", "generate");
    EXPECT(parse(R"({"train": {"steps": 1e3}})", {"--run.seed=2e2"}).config.train.steps == 1000,
           "1e3 is an integer");
}

TEST(integers_in_millions) {
    const Config c = parse(R"({"train": {"steps": "2M", "batch_tokens": 4096}})",
                           {"--eval.every=1.5B", "--run.seed", "1.1M", "--log.every=0.5M"}).config;
    EXPECT(c.train.steps == 2'000'000 && c.eval.every == 1'500'000'000 && c.run.seed == 1'100'000 &&
               c.log.every == 500'000, "%s", to_json(c).c_str());
    refuse_args({"--train.batch_tokens=64k"}, {"train.batch_tokens=64k", "k may be 1000 or 1024"});
    for (const char* wrong : {"--train.steps=M", "--train.steps=0.0000001M", "--train.steps=1MM",
                              "--train.steps=9B", "--optimizer.lr=1M", "--data.train=[1M"})
        refuse_args({wrong}, {"expected"});
}

TEST(help_needs_no_config) {
    for (const char* flag : {"--help", "-h", "--version"}) {
        const char* argv[] = {"./train_gpt", flag};
        const Options o = parse_command_line(2, argv);
        EXPECT(o.version == !strcmp(flag, "--version") && o.help != o.version, "%s", flag);
    }
}

TEST(command_line_errors) {
    const char* argv[] = {"./train_gpt", "--plan"};
    expect_refused("nothing", test::fatal_of([&] { parse_command_line(1, argv); }),
                   {"usage", "CONFIG.json", "--help"});
    expect_refused("no config", test::fatal_of([&] { parse_command_line(2, argv); }), {"no config", "{}"});
    refuse_args({"--optimizer.lrr=1"}, {"--optimizer.lrr", "optimizer.lr?"});
    refuse_args({"--lr=1"}, {"--lr", "optimizer.lr?"});
    refuse_args({"--train.lr=1"}, {"--train.lr", "optimizer.lr?"});
    refuse_args({"--trian.stesp=1"}, {"train.steps?"});
    refuse_args({"--every=1"}, {"eval.every", "log.every"});
    refuse_args({"--plan", "--generate=x"}, {"one of --plan", "--report and --explore"});
    refuse_args({"--generat=x"}, {"--generat:", "--generate?"});
    refuse_args({"--model=x"}, {"--model", "there is no such setting"});
    refuse_args({"--optimizer.lrr"}, {"optimizer.lr?"});
    refuse_args({"--train.steps"}, {"--train.steps", "needs a value"});
    refuse_args({"--train.steps", "--plan"}, {"--train.steps", "needs a value"});
    refuse_args({"--plan=yes"}, {"--plan=yes", "--plan=search"});
    refuse_args({"--json"}, {"--json is for --plan"});
    refuse_args({"--generate"}, {"--generate needs a value", "--generate=TEXT"});
    for (const char* flag :
         {"--generate", "--system", "--evaluate", "--export", "--watch", "--port", "--host"})
        refuse_args({flag, "--run.threads=1"}, {flag, "needs a value", "found --run.threads=1"});
    EXPECT(parse("{}", {"--generate=--text"}).generate == "--text", "a text with dashes");
    refuse_args({"-x"}, {"-x", "two dashes"});
    refuse_args({"other.json"}, {"config.json", "other.json"});
    const string long_name(100000, 'x');
    refuse_args({"--" + long_name + "=1"}, {"there is no such setting"});
}

TEST(value_errors) {
    refuse_args({"--train.steps=many"}, {"--train.steps=many", "an integer"});
    refuse_args({"--train.steps=1.5"}, {"--train.steps=1.5", "an integer"});
    refuse_args({"--train.steps="}, {"--train.steps=", "an integer"});
    refuse_args({"--train.steps=-1"}, {"-1", "an integer of 0 to 1000000000"});
    refuse_args({"--train.batch_tokens=9000000000000000000"}, {"an integer of 1 to 1000000000"});
    refuse_args({"--optimizer.warmup=1000000001"}, {"an integer of 0 to 1000000000"});
    refuse_args({"--optimizer.decay=-1"}, {"an integer of 0 to"});
    refuse_args({"--eval.batches=2000000000"}, {"an integer of -1 to"});
    refuse_args({"--sample.every=-1"}, {"at least 0"});
    refuse_args({"--train.steps=99999999999999999999"}, {"99999999999999999999", "an integer"});
    refuse_args({"--model.heads=0"}, {"--model.heads=0", "1 to 4096"});
    refuse_args({"--model.layers=5000000000"}, {"5000000000", "1 to 1024"});
    refuse_args({"--optimizer.lr=11"}, {"--optimizer.lr=11", "a number of 0 to 10"});
    refuse_args({"--optimizer.lr=nan"}, {"nan", "a number of 0 to 10"});
    refuse_args({"--optimizer.grad_clip=inf"}, {"inf", "a number"});
    refuse_args({"--optimizer.beta1=1"}, {"less than 1"});
    refuse_args({"--optimizer.lr=\"1\""}, {"a number"});
    refuse_args({"--data.shuffle=1"}, {"true or false"});
    refuse_args({"--run.device=tpu"}, {"tpu", "auto, cpu, cuda"});
    refuse_args({"--run.device=auto|cpu"}, {"one of"});
    refuse_args({"--data.train=[1]"}, {"[1]", "weight"});
    refuse_args({"--data.train=[]"}, {"weight"});
    refuse_args({R"(--data.train=[{"path": "a", "weight": 0}])"}, {"above 0"});
    refuse_args({R"(--data.train=[{"path": "a", "wieght": 1}])"}, {"wieght", "weight"});
    refuse_args({"--data.train=["}, {"weight"});
    refuse_args({"--checkpoint.override=lr"}, {"a JSON list"});
}

// ---------------------------------------------------------------------------------------------------------
// files

TEST(json_errors) {
    for (const char* nul : {R"({"run": {"dir": "runs/a\u0000b"}})", R"({"data": {"train": "a\u0000"}})",
                            R"({"eval": {"tasks": ["a", "\u0000"]}})"})
        refuse_json(nul, {"NUL", "some.json"});
    refuse_json("{\"train\": {\"steps\": 10,}}", {"some.json", "line 1", "column 24", "\"steps\": 10,}"});
    refuse_json("{\n  \"train\": {\n    \"steps\" 10\n  }\n}", {"line 3", "column 14"});
    refuse_json("{\"train\": {\"steps\": 10}", {"line 1", "column 24"});
    refuse_json("{\"train\": {\"steps\": 10}\n\n  ", {"line 1", "column 24", "\"steps\": 10}\n"});
    refuse_json("", {"some.json", "line 1"});
    refuse_json("hello\x1b[31m", {"line 1"});
    refuse_json(string(300, '['), {"some.json", "nested"});
    refuse_json("{\"about\": \"\xff\"}", {"some.json", "line 1"});
    refuse_json("{\"train\": {\"steps\": 1e999}}", {"some.json"});
    refuse_json("[]", {"some.json", "object"});
    refuse_json("{\"train\": 5}", {"some.json", "train = 5", "object"});
    refuse_json("{\"trian\": {}}", {"some.json: trian", "there is no such section", "Did you mean train?"});
    refuse_json("{\"optimizer\": {\"lrr\": 1}}", {"some.json: optimizer.lrr", "optimizer.lr?"});
    refuse_json("{\"train\": {\"lr\": 1}}", {"some.json: train.lr", "optimizer.lr?"});
    refuse_json("{\"train\": {\"steps\": \"many\"}}", {"some.json: train.steps = \"many\"", "an integer"});
    refuse_json("{\"train\": {\"steps\": null}}", {"train.steps = null"});
    refuse_json("{\"model\": {\"heads\": 0}}", {"model.heads = 0", "1 to 4096"});
    refuse_json("{\"about\": 3}", {"about = 3", "a text"});
    refuse_json("{\"train\": {\"steps\": 1, \"steps\": 2}}", {"\"steps\"", "twice"});
    refuse_json("{\"train\": {}, \"train\": {}}", {"\"train\"", "twice"});
    EXPECT(parse_config("\xEF\xBB\xBF{}", "bom").train.steps == 1000, "a byte order mark is fine");
}

TEST(file_errors) {
    const string dir = test::temporary_directory();
    expect_refused("absent", test::fatal_of([&] { load_config(dir + "/absent.json"); }),
                   {"absent.json", "No such file"});
    expect_refused("folder", test::fatal_of([&] { load_config(dir); }), {dir.c_str()});
    expect_refused("empty", test::fatal_of([&] { load_config(write_file("empty.json", "")); }),
                   {"empty.json", "empty"});
}

TEST(what_has_to_hold_between_settings) {
    refuse_args({"--model.channels=64", "--model.heads=5"},
                {"model.heads = 5", "model.channels = 64", "is 4"});
    refuse_args({"--model.context=64", "--train.batch_tokens=500"},
                {"batch_tokens = 500", "context = 64", "448 and 512"});
    refuse_args({"--model.context=64", "--train.batch_tokens=500", "--train.micro_batch=4"},
                {"500", "micro_batch = 4 x model.context = 64, which is 256", "256 and 512"});
    refuse_args({"--train.batch_tokens=500"}, {"500", "1024", "least is 1024"});
    refuse_args({"--optimizer.schedule=wsd", "--optimizer.decay=950"}, {"100 + 950", "train.steps = 1000"});
    refuse_args({"--run.dir="}, {"run.dir is empty"});
    refuse_args({"--memory.offload=weights", "--parallel.pp=2"}, {"memory.offload = weights", "pp = 2"});
    for (const char* flag : {"--about=a run", "--plan"})
        refuse_args({flag, "--parallel.schedule=interleaved"}, {"virtual_stages", "at least 2", "1f1b"});
    parse("{}", {"--parallel.schedule=interleaved", "--parallel.virtual_stages=2"});
    refuse_args({"--parallel.schedule=zb", "--parallel.virtual_stages=2"}, {"= interleaved has virtual"});
    refuse_args({"--parallel.schedule=zb", "--parallel.pp=2", "--memory.recompute=block"}, {"= block with"});
    parse("{}", {"--parallel.schedule=zb", "--memory.recompute=block"});        // one stage has one list
    parse("{}", {"--optimizer.schedule=wsd", "--optimizer.decay=900"});
    parse("{}", {"--train.steps=0"});
}

TEST(features_of_later_versions) {
    refuse_args({"--run.device=cuda"}, {"run.device = cuda", "built for cpu", "make DEVICE=cuda"});
    refuse_args({"--run.device=emulated"}, {"run.device = emulated", "built for cpu", "DEVICE=emulated"});
    for (const char* setting :
         {"run.device=cpu", "parallel.tp=1", "parallel.ranks=1", "checkpoint.resume=never",
          "model.init=runs/x/step_5", "parallel.overlap=false", "memory.recompute=block"})
        parse("{}", {string("--") + setting});
}
