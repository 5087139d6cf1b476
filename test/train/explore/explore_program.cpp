// ./train_gpt --explore as a user starts it: its numbers are those of --plan; what cannot be is a line; no
// address names a file, or asks for work without end.
#include "llmc/base/config/fields.h"
#include "llmc/train/explore/address_settings.h"
#include "llmc/train/explore/explore_service.h"
#include "test/train/explore/explored.h"

using namespace test;
using std::string;

TEST(its_numbers_are_those_of_plan) {
    const Explored page("equal.log");
    for (const string& state :
         {kGpu + "parallel.ranks=8&train.batch_tokens=524288",
          kGpu + "parallel.ranks=64&parallel.tp=4&parallel.zero=1&train.micro_batch=2&run.precision=bf16&"
                 "train.batch_tokens=524288&model.layers=36&model.heads=20&model.channels=1280",
          kGpu + "parallel.ranks=16&parallel.pp=4&parallel.schedule=interleaved&parallel.virtual_stages=3&"
                 "train.batch_tokens=262144&train.micro_batch=1&memory.recompute=block&optimizer.kind=muon",
          kGpu + "run.precision=fp32&cluster.memory_gb=0.5&model.window=%5B64,64,0%5D&model.context=128",
          string("model.vocab=512&model.context=64&train.batch_tokens=1024&run.precision=fp32")}) {
        string spoken = state;
        for (const auto& [code, c] : {std::pair{"%5B", "["}, {"%5D", "]"}})
            if (const size_t at = spoken.find(code); at != string::npos) spoken.replace(at, 3, c);
        EXPECT(page.object("/plan.json", state) == printed(empty_config(), spoken), "%s", state.c_str());
    }
}

TEST(a_long_list_stands_in_an_address) {
    const Explored page("long.log");
    string window = "[0";
    for (int i = 0; i < 3000; i++) window += ",1024";
    const string state = kGpu + "parallel.ranks=8&train.batch_tokens=524288&model.window=" + window + "]";
    EXPECT(page.object("/plan.json", state) == printed(empty_config(), state), "another plan");
    EXPECT(status(page.get("/", state)) == 200, "the page");
}

TEST(settings_of_the_program_are_the_base) {
    const string config = tiny_program_config("explored");
    const Explored page("base.log", config + " --parallel.ranks=2");
    const string more = "parallel.zero=2&cluster.gpu=a100";
    EXPECT(page.object("/plan.json", more) == printed(config, "parallel.ranks=2&" + more), "other numbers");
    const json start = page.object("/start.json", "");
    EXPECT(start["config"]["model"]["layers"] == 2 && start["needed"] == json({{"cluster.gpu", "h100"}}),
           "%s", start["needed"].dump().c_str());
    const string command = page.object("/detail.json", more)["command"];
    EXPECT(command ==
               "./train_gpt " + config + " --parallel.ranks=2 --parallel.zero=2 --cluster.gpu=a100 --plan",
           "%s", command.c_str());
}

TEST(details_are_what_the_plan_is_made_of) {
    const Explored page("details.log");
    for (const string& mesh : {string("&parallel.ranks=8&parallel.pp=4&parallel.zero=1"),
                               string("&parallel.ranks=64&parallel.pp=32&train.batch_tokens=16777216")}) {
        const string state = kGpu + "model.layers=32&train.micro_batch=4&train.batch_tokens=262144" + mesh;
        const json d = page.object("/detail.json", state), &plan = d["plan"];
        EXPECT(plan == page.object("/plan.json", state), "another plan");
        const double seconds = plan["step_seconds"];
        double sum = 0;
        for (const char* part : {"products", "attention", "other", "exposed", "bubble"})
            sum += d["step"][part].get<double>();
        EXPECT_NEAR(sum, seconds, 1e-9 * seconds);
        EXPECT_NEAR(d["step"]["bubble"].get<double>() / seconds, plan["bubble"].get<double>(), 1e-12);
        for (int zero = 0; zero < 4; zero++)
            EXPECT(
                d["zero"][zero] == page.object("/plan.json", state + fmt::format("&parallel.zero={}", zero)),
                "ZeRO %d", zero);
        const json& drawing = d["drawing"];
        EXPECT_NEAR(drawing["seconds"].get<double>() + drawing["seconds_left_out"].get<double>(), seconds,
                    1e-9 * seconds);
        for (const json& row : drawing["stages"]) {
            if (row["stage"] != drawing["busiest"]) continue;
            EXPECT_NEAR(row["waits"].get<double>(), d["step"]["bubble"].get<double>(), 1e-9 * seconds);
        }
        EXPECT(drawing["stages"].size() >= 4 && drawing["stages"].size() <= 17, "%zu stages are drawn",
               drawing["stages"].size());
        EXPECT(json::parse(d["config_text"].get<string>()) == d["config"] &&
                   d["config"]["model"]["layers"] == 32,
               "%s", d["config_text"].get<string>().c_str());
        EXPECT(d["run"]["dollars"].get<double>() > 0 && d["machine"]["gpu"] == "h100", "no price");
    }
}

TEST(other_numbers_of_gpus_are_planned_alike) {
    const Explored page("speed.log");
    const string state =
        kGpu + "train.batch_tokens=262144&train.micro_batch=2&parallel.tp=2&parallel.ranks=48";
    const string fits =
        kGpu + "train.batch_tokens=262144&train.micro_batch=2&parallel.tp=2&parallel.ranks=16";
    EXPECT(status(page.get("/speed.json", state)) == 400, "48 ranks do not divide the batch");
    const json speed = page.object("/speed.json", fits);
    std::vector<int> counts;
    for (const json& point : speed["points"]) {
        counts.push_back(point["mesh"]["ranks"]);
        const string other = fits + fmt::format("&parallel.ranks={}", counts.back());
        EXPECT(point == page.object("/plan.json", other), "%d GPUs", counts.back());
    }
    EXPECT(counts == std::vector<int>({2, 4, 8, 16, 32, 64, 128, 256}), "%s",
           speed.dump().substr(0, 300).c_str());
    EXPECT(speed["missing"][0]["ranks"] == 512 &&
               speed["missing"][0]["why"].get<string>().find("train.batch_tokens") != string::npos,
           "%s", speed["missing"].dump().c_str());
}

TEST(the_fastest_mesh_is_that_of_the_search) {
    const Explored page("best.log");
    const string state = kGpu + "train.batch_tokens=262144&parallel.ranks=8";
    // also from a mesh that cannot be
    const json best = page.object("/best.json", state + "&parallel.tp=5");
    const json found = printed(empty_config(), state, "--plan=search");
    EXPECT(best["plan"] == found["candidates"][0], "%s", best.dump().c_str());
    EXPECT(best["examined"] == found["rejected"].get<int>() + int(found["candidates"].size()), "%s",
           best["examined"].dump().c_str());
    string settings;
    for (const auto& [key, value] : best["settings"].items())
        settings += "&" + key + "=" + value.get<string>();
    EXPECT(page.object("/plan.json", state + settings) == best["plan"], "%s", settings.c_str());
    const json none = page.object("/best.json", state + "&cluster.memory_gb=0.01");
    EXPECT(none["plan"].is_null() && none["settings"].empty() && none["examined"] > 100, "%s",
           none.dump().c_str());
}

TEST(what_cannot_be_is_one_line_and_the_server_goes_on) {
    const Explored page("wrong.log");
    const string eight = kGpu + "parallel.ranks=8&";
    const std::pair<string, string> wrong[] = {
        {eight + "parallel.tp=5", "5"},
        {eight + "parallel.pp=16", "pp"},
        {eight + "parallel.zero=4", "parallel.zero=4"},
        {eight + "parallel.tp=x", "parallel.tp=x"},
        {eight + "parallel.tp=", "parallel.tp"},
        {eight + "model.layrs=3", "model.layers"},
        {eight + "layers=3", "layers"},
        {eight + "=3", "no such setting"},
        {eight + "cluster.gpu=b9000", "b9000"},
        {eight + "cluster.gpu=..%2Fh100", "../h100"},
        {eight + "model.heads=7", "heads"},
        {eight + "train.batch_tokens=1000", "1000"},
        {eight + "run.precision=fp8", "fp8"},
        {eight + "run.precision=fp64", "bf16 or fp32"},
        {eight + "run.products=fp8&cluster.gpu=a100", "fp8_tflops"},
        {eight + "parallel.cp=3", "cp"},
        {eight + "cluster.node_gbs=-1", "node_gbs"},
        {eight + "model.window=%5B%5B%5B", "model.window"},
        {eight + "model.layers=%3Cscript%3E%0Aalert(1)%00%1b", "model.layers"},
        {eight + "model.layers=" + string(5000, '9'), "model.layers"},
        {string("cluster.gpu=h100&parallel.ranks=8"), "data.train"}};
    for (const auto& [query, words] : wrong)
        for (const char* path : {"/plan.json", "/detail.json", "/speed.json"}) {
            const string answer = page.get(path, query), line = body(answer);
            EXPECT(status(answer) == 400 && line.find(words) != string::npos, "%s: %s", query.c_str(),
                   answer.substr(0, 300).c_str());
            EXPECT(line.size() < 1000 && line.find('\n') == line.size() - 1 && no_message(line).empty(),
                   "%s is no line: %s", query.c_str(), line.c_str());
        }
    EXPECT(status(page.get("/detail.json", "model.vocab=99")) == 400, "times without a GPU");
    EXPECT(status(page.get("/nothing.json")) == 404 && status(page.get("/../README.md")) == 404,
           "other paths");
    EXPECT(status(page.get("/")) == 200 && status(page.get("/plan.json", eight)) == 200, "after all that");
}

// The page's state stands in its address. A mesh that cannot be is no success, and the page shows why.
TEST(the_page_of_a_state_that_cannot_be_has_status_400) {
    const Explored page("page_status.log");
    const string whole = body(page.get("/"));
    EXPECT(whole.find("<html") != string::npos, "%s", whole.substr(0, 200).c_str());
    const std::pair<string, int> states[] = {
        {"", 200},
        {"parallel.tp=2", 200},             // the page adds what is needed: a GPU, ranks, a batch, tokens
        {kGpu + "parallel.ranks=8&parallel.tp=4", 200},
        {kGpu + "parallel.ranks=8&parallel.tp=5", 400},
        {kGpu + "parallel.ranks=8&parallel.pp=16", 400},
        {"parallel.tp=5", 400},
        {"model.layrs=3", 400},
        {"cluster.gpu=b9000", 400},
        {"data.train=%2Fetc%2Fpasswd", 400}};
    for (const auto& [query, expected] : states) {
        const string answer = page.get("/", query);
        EXPECT(status(answer) == expected && body(answer) == whole, "%s: status %d, %zu bytes",
               query.c_str(), status(answer), body(answer).size());
        EXPECT(answer.find("text/html") != string::npos, "%s", answer.substr(0, 200).c_str());
    }
}

// Sections and keys of a plan alone, and no text among these but the name of a GPU: a text may name a file.
TEST(no_address_names_a_file) {
    Config cfg;
    for (const Field& f : fields(cfg)) {
        const bool plain =
            std::holds_alternative<int*>(f.value) || std::holds_alternative<int64_t*>(f.value) ||
            std::holds_alternative<double*>(f.value) || std::holds_alternative<bool*>(f.value) ||
            std::holds_alternative<Word*>(f.value) || f.path() == "cluster.gpu" ||
            f.path() == "model.window" || f.path() == "model.rope_scaling" || f.path() == "train.rollback";
        EXPECT(plain || !stands_in_an_address(f.path()), "%s", f.path().c_str());
    }
    for (const char* key :
         {"data.train", "data.val", "data.tokenizer", "data.shuffle", "model.init", "cluster.file", "run.dir",
          "run.threads", "checkpoint.resume", "checkpoint.override", "eval.tasks", "eval.task_folder",
          "log.prometheus", "log.trace", "sample.prompt", "about", "nothing"})
        EXPECT(!stands_in_an_address(key), "%s", key);
    for (const char* key : {"model.layers", "model.window", "train.steps", "optimizer.kind", "parallel.tp",
                            "memory.recompute", "cluster.gpu", "cluster.memory_gb", "run.precision"})
        EXPECT(stands_in_an_address(key), "%s", key);
    const string secret = folder("secret.json");
    std::ofstream(secret) << "{\"gpu\": \"MARK\"}";
    const Explored page("files.log");
    for (const char* key :
         {"cluster.file", "model.init", "data.tokenizer", "data.train", "checkpoint.resume"}) {
        const string answer = page.get("/plan.json", kGpu + key + "=" + secret);
        EXPECT(status(answer) == 400 && body(answer).find(string("--") + key) == 0 &&
                   answer.find("MARK") == string::npos,
               "%s: %s", key, answer.c_str());
    }
}

// Every number that a plan's work grows with has a limit; at the limit there is an answer of bounded size.
TEST(work_of_a_request_is_bounded) {
    const Explored page("bounds.log");
    for (const char* silly :
         {"model.layers=1024", "parallel.ranks=1048576", "parallel.ranks=99999999999",
          "parallel.pp=1024&model.layers=256&parallel.ranks=1024",
          "model.context=1&train.batch_tokens=1000000000", "parallel.tp=1024&parallel.pp=1024"}) {
        const string answer = page.get("/detail.json", kGpu + silly);
        EXPECT(status(answer) == 400, "%s: %s", silly, answer.substr(0, 200).c_str());
    }
    const string large = page.get("/detail.json", kGpu +
                                                      "model.layers=256&parallel.pp=64&parallel.ranks=64&"
                                                      "train.batch_tokens=16777216&train.micro_batch=1");
    EXPECT(status(large) == 200 && body(large).size() < 1000000, "%zu bytes", large.size());
    const json drawing = json::parse(body(large))["drawing"];
    EXPECT(drawing["of_stages"] == 64 && drawing["micros_left_out"] == 16384 - 6 * 64, "%s",
           drawing["of_stages"].dump().c_str());
    EXPECT(status(page.get("/")) == 200, "after that");
}

TEST(one_search_at_a_time) {
    const Exploration exploration = {.base = {}, .command = "", .planner_of = {}};
    ExploreService service{.exploration = exploration};
    const std::lock_guard busy(service.searching);
    const HttpAnswer answer = service.answer({.path = "/best.json"});
    EXPECT(answer.status == 503 && answer.body.find("another search") == 0, "%s", answer.body.c_str());
}

TEST(flags_of_explore_are_checked) {
    const string config = tiny_program_config("explored");
    const std::pair<string, string> mistakes[] = {
        {"--explore --port=70000", "--port=70000: expected a port"},
        {"--explore --host=256.0.0.1 --port=0", "--explore: cannot listen"},
        {"--explore=yes", "--explore takes no value"},
        {"--explore --plan", "at a time"},
        {"--explore --watch=runs", "--watch takes a folder"},
        {"--explore --json", "--json is for --plan"},
        {"--explore --model.layers=0", "model.layers"},
        {"--explore --cluster.gpu=auto", "cluster.gpu = auto: the page of --explore measures no machine"},
        {config + " --explore --parallel.tp=x", "parallel.tp"},
        {"--explorer", "Did you mean --explore?"}};
    for (const auto& [args, words] : mistakes) {
        const Ran ran = run("timeout 10 ./train_gpt " + args);
        EXPECT(ran.code == 78 && ran.err.find(words) != string::npos && no_message(ran.err).empty(),
               "%s: exit %d '%s'", args.c_str(), ran.code, ran.err.c_str());
    }
    const Program hosted("explore_host.log", "--explore --port=0 --host=127.0.0.1");
    EXPECT(hosted.says("Ctrl-C"), "%s", text_of(hosted.log).c_str());
    const string log = text_of(hosted.log), token = log.substr(log.find("?token=") + 7, 32);
    const string query = kGpu + "parallel.ranks=1";
    EXPECT(status(ask(port_of(log), "/plan.json?" + query)) == 403, "without a token");
    EXPECT(status(ask(port_of(log), "/plan.json?token=" + token + "&" + query)) == 200, "with the token");
    kill(hosted.pid, SIGINT);
    EXPECT(hosted.ends() && text_of(hosted.log) == log, "%s", text_of(hosted.log).c_str());
}
